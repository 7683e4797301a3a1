"""The kubelet's gRPC APIs on the wire: message classes and method paths.

Built at import from the tables below (facts of `kubernetes/kubelet:pkg/apis`), in descriptor pools
of our own, so it never clashes with classes a user generated. `python -m fake_kubelet.api` prints
them as .proto files, which lie in `proto/`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
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

GET_INFO = "/pluginregistration.Registration/GetInfo"
NOTIFY = "/pluginregistration.Registration/NotifyRegistrationStatus"

# message -> fields in number order from 1: (name, type); `*` repeats, `map` is string to string,
# an empty name leaves its number out.
Messages = Mapping[str, tuple[tuple[str, str], ...]]

_DEVICE_PLUGIN: dict[str, tuple[tuple[str, str], ...]] = {
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

_POD_RESOURCES_ALPHA: Messages = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", "*PodResources"),),
    "PodResources": (
        ("name", "string"),
        ("namespace", "string"),
        ("containers", "*ContainerResources"),
    ),
    "ContainerResources": (("name", "string"), ("devices", "*ContainerDevices")),
    "ContainerDevices": (("resource_name", "string"), ("device_ids", "*string")),
}

_POD_RESOURCES: Messages = {
    "AllocatableResourcesRequest": (),
    "AllocatableResourcesResponse": (
        ("devices", "*ContainerDevices"),
        ("cpu_ids", "*int64"),
        ("memory", "*ContainerMemory"),
    ),
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", "*PodResources"),),
    "PodResources": (
        ("name", "string"),
        ("namespace", "string"),
        ("containers", "*ContainerResources"),
    ),
    "ContainerResources": (
        ("name", "string"),
        ("devices", "*ContainerDevices"),
        ("cpu_ids", "*int64"),
        ("memory", "*ContainerMemory"),
        ("dynamic_resources", "*DynamicResource"),
    ),
    "ContainerMemory": (
        ("memory_type", "string"),
        ("size", "uint64"),
        ("topology", "TopologyInfo"),
    ),
    "ContainerDevices": (
        ("resource_name", "string"),
        ("device_ids", "*string"),
        ("topology", "TopologyInfo"),
    ),
    "TopologyInfo": (("nodes", "*NUMANode"),),
    "NUMANode": (("ID", "int64"),),
    "DynamicResource": (
        ("", ""),  # class_name, dropped in 1.31
        ("claim_name", "string"),
        ("claim_namespace", "string"),
        ("claim_resources", "*ClaimResource"),
    ),
    "ClaimResource": (
        ("cdi_devices", "*CDIDevice"),
        ("driver_name", "string"),
        ("pool_name", "string"),
        ("device_name", "string"),
    ),
    "CDIDevice": (("name", "string"),),
    "GetPodResourcesRequest": (("pod_name", "string"), ("pod_namespace", "string")),
    "GetPodResourcesResponse": (("pod_resources", "PodResources"),),
}

_PLUGIN_REGISTRATION: Messages = {
    "PluginInfo": (
        ("type", "string"),
        ("name", "string"),
        ("endpoint", "string"),
        ("supported_versions", "*string"),
    ),
    "RegistrationStatus": (("plugin_registered", "bool"), ("error", "string")),
    "RegistrationStatusResponse": (),
    "InfoRequest": (),
}

# package -> (messages, service -> method -> (request, response; `*` streams))
_PACKAGES: dict[str, tuple[Messages, Mapping[str, Mapping[str, tuple[str, str]]]]] = {
    "v1beta1": (
        _DEVICE_PLUGIN,
        {
            "Registration": {"Register": ("RegisterRequest", "Empty")},
            "DevicePlugin": {
                "GetDevicePluginOptions": ("Empty", "DevicePluginOptions"),
                "ListAndWatch": ("Empty", "*ListAndWatchResponse"),
                "GetPreferredAllocation": (
                    "PreferredAllocationRequest",
                    "PreferredAllocationResponse",
                ),
                "Allocate": ("AllocateRequest", "AllocateResponse"),
                "PreStartContainer": ("PreStartContainerRequest", "PreStartContainerResponse"),
            },
        },
    ),
    "v1": (
        _POD_RESOURCES,
        {
            "PodResourcesLister": {
                "List": ("ListPodResourcesRequest", "ListPodResourcesResponse"),
                "GetAllocatableResources": (
                    "AllocatableResourcesRequest",
                    "AllocatableResourcesResponse",
                ),
                "Get": ("GetPodResourcesRequest", "GetPodResourcesResponse"),
            }
        },
    ),
    "v1alpha1": (
        _POD_RESOURCES_ALPHA,
        {"PodResourcesLister": {"List": ("ListPodResourcesRequest", "ListPodResourcesResponse")}},
    ),
    "pluginregistration": (
        _PLUGIN_REGISTRATION,
        {
            "Registration": {
                "GetInfo": ("InfoRequest", "PluginInfo"),
                "NotifyRegistrationStatus": ("RegistrationStatus", "RegistrationStatusResponse"),
            }
        },
    ),
}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
}


def packages() -> tuple[str, ...]:
    """The API packages there are."""
    return tuple(_PACKAGES)


def _file(package: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"fake_kubelet/{package}.proto", package=package, syntax="proto3"
    )
    messages, services = _PACKAGES[package]
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field_name, kind) in enumerate(fields, 1):
            if not field_name:
                continue
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
                field.type_name = f".{package}.{name}.{entry_name}"
                continue
            if kind.startswith("*"):
                field.label, kind = _Field.LABEL_REPEATED, kind[1:]
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
    for name, methods in services.items():
        service = file.service.add(name=name)
        for method, (request, response) in methods.items():
            service.method.add(
                name=method,
                input_type=f".{package}.{request}",
                output_type=f".{package}.{response.lstrip('*')}",
                server_streaming=response.startswith("*"),
            )
    return file


def proto_text(package: str) -> str:
    """The package as a .proto file, for protoc and other languages."""
    messages, services = _PACKAGES[package]
    lines = [
        f"// Made by `python -m fake_kubelet.api {package}`.",
        'syntax = "proto3";',
        "",
        f"package {package};",
    ]
    for name, methods in services.items():
        lines += ["", f"service {name} {{"]
        for method, (request, response) in methods.items():
            returns = response.replace("*", "stream ")
            lines.append(f"  rpc {method}({request}) returns ({returns}) {{}}")
        lines.append("}")
    for name, fields in messages.items():
        lines += ["", f"message {name} {{"]
        for number, (field_name, kind) in enumerate(fields, 1):
            if not field_name:
                lines.append(f"  reserved {number};")
                continue
            shown = "map<string, string>" if kind == "map" else kind.replace("*", "repeated ")
            lines.append(f"  {shown} {field_name} = {number};")
        lines.append("}")
    return "\n".join(lines) + "\n"


# One pool per package: the packages share names of messages, never types.
@functools.cache
def _pool(package: str) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file(package))
    return pool


@functools.cache
def message(package: str, name: str) -> Any:
    """The class of a message, for example `message("v1beta1", "Device")`."""
    found = _pool(package).FindMessageTypeByName(f"{package}.{name}")
    return message_factory.GetMessageClass(found)


Empty = message(PACKAGE, "Empty")
DevicePluginOptions = message(PACKAGE, "DevicePluginOptions")
RegisterRequest = message(PACKAGE, "RegisterRequest")
ListAndWatchResponse = message(PACKAGE, "ListAndWatchResponse")
AllocateRequest = message(PACKAGE, "AllocateRequest")
AllocateResponse = message(PACKAGE, "AllocateResponse")
ContainerAllocateResponse = message(PACKAGE, "ContainerAllocateResponse")
PreferredAllocationRequest = message(PACKAGE, "PreferredAllocationRequest")
PreferredAllocationResponse = message(PACKAGE, "PreferredAllocationResponse")
PreStartContainerRequest = message(PACKAGE, "PreStartContainerRequest")
PreStartContainerResponse = message(PACKAGE, "PreStartContainerResponse")


def encode(sent: Any) -> bytes:
    """Serializer for gRPC."""
    return bytes(sent.SerializeToString())


if __name__ == "__main__":
    import sys

    for wanted in sys.argv[1:] or packages():
        print(proto_text(wanted), end="")
