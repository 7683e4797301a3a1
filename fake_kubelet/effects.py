"""What the kubelet core asks its surroundings to do: plain values, carried out elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """A device file for a container, as the plugin's Allocate names it."""

    host_path: str
    container_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount for a container."""

    host_path: str
    container_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateResponse:
    """One container's answer from a plugin, or several merged."""

    envs: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[DeviceSpec, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Connect:
    """Dial the plugin and ask its options; report `plugin_connected` or `connect_failed`."""

    client: int
    resource: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Start ListAndWatch; report `devices_reported` and `stream_ended`."""

    client: int


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection to a plugin."""

    client: int


@dataclass(frozen=True, slots=True)
class CallAllocate:
    """Call Allocate for one container; report `allocate_answered`."""

    call: int
    client: int
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WipeSockets:
    """Remove every file in the plugin directory and listen anew, as a starting kubelet does."""


@dataclass(frozen=True, slots=True)
class RunSandbox:
    """Make the pod's sandbox; report `sandbox_started` or `sandbox_failed`."""

    pod: Mapping[str, Any]
    handler: str


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Start one container; report `container_started` or `container_failed`, then
    `container_exited`."""

    pod: Mapping[str, Any]
    container: str
    attempt: int
    options: AllocateResponse


@dataclass(frozen=True, slots=True)
class KillContainer:
    """Stop one container; its exit is reported as usual."""

    uid: str
    container: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class KillPod:
    """Stop every container and the sandbox; report `pod_stopped`."""

    uid: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class UpdatePodStatus:
    """Write a pod's status sub-resource."""

    namespace: str
    name: str
    uid: str
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Remove the pod object: its containers are gone."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class RegisterNode:
    """Create the node object, or bring an existing one up to date."""

    node: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UpdateNodeStatus:
    """Write the node's status sub-resource."""

    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Renew the node's lease."""

    node_name: str


@dataclass(frozen=True, slots=True)
class PostEvent:
    """Record a Kubernetes event on an object (`involved` is its reference)."""

    involved: Mapping[str, str]
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call `timer(key)` at `at_s`; a later one with the same key replaces it."""

    key: str
    at_s: float


Effect = (
    Connect
    | Watch
    | Disconnect
    | CallAllocate
    | WipeSockets
    | RunSandbox
    | StartContainer
    | KillContainer
    | KillPod
    | UpdatePodStatus
    | DeletePod
    | RegisterNode
    | UpdateNodeStatus
    | RenewLease
    | PostEvent
    | SetTimer
)
