"""Between the messages of the plugin API and the values the cores work with. Pure."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from fake_kubelet import api
from fake_kubelet.messages import (
    AllocateResponse,
    Answer,
    Ask,
    CallFailed,
    Device,
    DeviceSpec,
    Mount,
    PluginOptions,
    Preferred,
    PreStart,
)


def request_of(ask: Ask) -> tuple[str, Any, type[Any]]:
    """Method path, request message and response class of a call to a plugin."""
    if isinstance(ask, Preferred):
        preferred = api.PreferredAllocationRequest()
        one = preferred.container_requests.add(allocation_size=ask.size)
        one.available_deviceIDs.extend(ask.available)
        one.must_include_deviceIDs.extend(ask.must_include)
        return api.PREFERRED, preferred, api.PreferredAllocationResponse
    if isinstance(ask, PreStart):
        pre_start = api.PreStartContainerRequest(devices_ids=ask.device_ids)
        return api.PRE_START, pre_start, api.PreStartContainerResponse
    allocate = api.AllocateRequest()
    allocate.container_requests.add().devices_ids.extend(ask.device_ids)
    return api.ALLOCATE, allocate, api.AllocateResponse


def answer_of(ask: Ask, message: Any) -> Answer:
    """What a plugin's answer says; only the first container's part counts."""
    if isinstance(ask, PreStart):
        return None
    if not message.container_responses:
        if isinstance(ask, Preferred):
            return ()
        text = f"no containers return in allocation response {message}".strip()
        return CallFailed(text, is_answer=True)
    first = message.container_responses[0]
    return tuple(first.deviceIDs) if isinstance(ask, Preferred) else response_of(first)


def response_of(message: Any) -> AllocateResponse:
    """One ContainerAllocateResponse."""
    return AllocateResponse(
        envs=dict(message.envs),
        devices=tuple(
            DeviceSpec(
                host_path=device.host_path,
                container_path=device.container_path,
                permissions=device.permissions,
            )
            for device in message.devices
        ),
        mounts=tuple(
            Mount(
                host_path=mount.host_path,
                container_path=mount.container_path,
                read_only=mount.read_only,
            )
            for mount in message.mounts
        ),
        annotations=dict(message.annotations),
        cdi_devices=tuple(device.name for device in message.cdi_devices),
        raw=message.SerializeToString(deterministic=True),
    )


def response_bytes(response: AllocateResponse) -> bytes:
    """A response as a checkpoint keeps it."""
    if response.raw:
        return response.raw
    message = api.ContainerAllocateResponse(envs=response.envs, annotations=response.annotations)
    for mount in response.mounts:
        message.mounts.add(
            container_path=mount.container_path,
            host_path=mount.host_path,
            read_only=mount.read_only,
        )
    for device in response.devices:
        message.devices.add(
            container_path=device.container_path,
            host_path=device.host_path,
            permissions=device.permissions,
        )
    for name in response.cdi_devices:
        message.cdi_devices.add(name=name)
    return bytes(message.SerializeToString(deterministic=True))


def response_from_bytes(raw: bytes) -> AllocateResponse:
    """A response out of a checkpoint; what cannot be read is an empty one."""
    try:
        return response_of(api.ContainerAllocateResponse.FromString(raw))
    except DecodeError:
        return AllocateResponse()


def shown_ask(ask: Ask) -> dict[str, Any]:
    """A call's request as plain values, for observers."""
    if isinstance(ask, Preferred):
        return {
            "resource": ask.resource,
            "available": list(ask.available),
            "must_include": list(ask.must_include),
            "size": ask.size,
        }
    return {"resource": ask.resource, "devices": list(ask.device_ids)}


def shown_answer(answer: Answer) -> dict[str, Any]:
    """A call's answer as plain values, for observers; what is empty is left out."""
    if isinstance(answer, CallFailed):
        return {"error": answer.text}
    if not isinstance(answer, AllocateResponse):
        return {} if answer is None else {"devices": list(answer)}
    device_specs = [
        {"host": d.host_path, "container": d.container_path, "permissions": d.permissions}
        for d in answer.devices
    ]
    mounts = [
        {"host": m.host_path, "container": m.container_path, "read_only": m.read_only}
        for m in answer.mounts
    ]
    parts = {
        "envs": dict(answer.envs),
        "device_specs": device_specs,
        "mounts": mounts,
        "annotations": dict(answer.annotations),
        "cdi_devices": list(answer.cdi_devices),
    }
    return {name: part for name, part in parts.items() if part}


def options_of(message: Any) -> PluginOptions:
    """DevicePluginOptions."""
    return PluginOptions(
        pre_start_required=message.pre_start_required,
        preferred_allocation=message.get_preferred_allocation_available,
    )


def devices_of(message: Any) -> list[Device]:
    """The devices of one ListAndWatchResponse."""
    return [
        Device(
            id=row.ID,
            health=row.health,
            numa_nodes=tuple(node.ID for node in row.topology.nodes)
            if row.HasField("topology")
            else None,
        )
        for row in message.devices
    ]
