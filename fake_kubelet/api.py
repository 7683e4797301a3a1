"""The device-plugin API on the wire: message classes and method paths of `v1beta1`.

Built at import from the table below (facts of `kubernetes/kubelet:pkg/apis/deviceplugin/v1beta1`),
in a descriptor pool of our own, so it never clashes with classes a user generated.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "v1beta1"
VERSION = "v1beta1"

REGISTER = f"/{PACKAGE}.Registration/Register"
GET_OPTIONS = f"/{PACKAGE}.DevicePlugin/GetDevicePluginOptions"
LIST_AND_WATCH = f"/{PACKAGE}.DevicePlugin/ListAndWatch"
PREFERRED = f"/{PACKAGE}.DevicePlugin/GetPreferredAllocation"
ALLOCATE = f"/{PACKAGE}.DevicePlugin/Allocate"
PRE_START = f"/{PACKAGE}.DevicePlugin/PreStartContainer"

# message -> fields in number order from 1: (name, type); `*` repeats, `map` is string to string.
_MESSAGES: dict[str, tuple[tuple[str, str], ...]] = {
    "Empty": (),
    "DevicePluginOptions": (
        ("pre_start_required", "bool"),
        ("get_preferred_allocation_available", "bool"),
    ),
    "RegisterRequest": (
        ("version", "string"),
        ("endpoint", "string"),
        ("resource_name", "string"),
        ("options", "DevicePluginOptions"),
    ),
    "NUMANode": (("ID", "int64"),),
    "TopologyInfo": (("nodes", "*NUMANode"),),
    "Device": (("ID", "string"), ("health", "string"), ("topology", "TopologyInfo")),
    "ListAndWatchResponse": (("devices", "*Device"),),
    "ContainerPreferredAllocationRequest": (
        ("available_deviceIDs", "*string"),
        ("must_include_deviceIDs", "*string"),
        ("allocation_size", "int32"),
    ),
    "PreferredAllocationRequest": (("container_requests", "*ContainerPreferredAllocationRequest"),),
    "ContainerPreferredAllocationResponse": (("deviceIDs", "*string"),),
    "PreferredAllocationResponse": (
        ("container_responses", "*ContainerPreferredAllocationResponse"),
    ),
    "ContainerAllocateRequest": (("devices_ids", "*string"),),
    "AllocateRequest": (("container_requests", "*ContainerAllocateRequest"),),
    "Mount": (("container_path", "string"), ("host_path", "string"), ("read_only", "bool")),
    "DeviceSpec": (
        ("container_path", "string"),
        ("host_path", "string"),
        ("permissions", "string"),
    ),
    "CDIDevice": (("name", "string"),),
    "ContainerAllocateResponse": (
        ("envs", "map"),
        ("mounts", "*Mount"),
        ("devices", "*DeviceSpec"),
        ("annotations", "map"),
        ("cdi_devices", "*CDIDevice"),
    ),
    "AllocateResponse": (("container_responses", "*ContainerAllocateResponse"),),
    "PreStartContainerRequest": (("devices_ids", "*string"),),
    "PreStartContainerResponse": (),
}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="fake_kubelet/deviceplugin.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field_name, kind) in enumerate(fields, 1):
            field = message.field.add(name=field_name, number=number, label=_Field.LABEL_OPTIONAL)
            if kind == "map":
                entry_name = f"{field_name.title()}Entry"
                entry = message.nested_type.add(name=entry_name)
                entry.options.map_entry = True
                for entry_number, part in enumerate(("key", "value"), 1):
                    entry.field.add(
                        name=part,
                        number=entry_number,
                        label=_Field.LABEL_OPTIONAL,
                        type=_Field.TYPE_STRING,
                    )
                field.label = _Field.LABEL_REPEATED
                field.type = _Field.TYPE_MESSAGE
                field.type_name = f".{PACKAGE}.{name}.{entry_name}"
                continue
            if kind.startswith("*"):
                field.label, kind = _Field.LABEL_REPEATED, kind[1:]
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def message(name: str) -> Any:
    """The class of a message, for example `message("Device")`."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


Empty = message("Empty")
DevicePluginOptions = message("DevicePluginOptions")
RegisterRequest = message("RegisterRequest")
ListAndWatchResponse = message("ListAndWatchResponse")
AllocateRequest = message("AllocateRequest")
AllocateResponse = message("AllocateResponse")
PreferredAllocationRequest = message("PreferredAllocationRequest")
PreStartContainerRequest = message("PreStartContainerRequest")
PreStartContainerResponse = message("PreStartContainerResponse")


def encode(sent: Any) -> bytes:
    """Serializer for gRPC."""
    return bytes(sent.SerializeToString())
