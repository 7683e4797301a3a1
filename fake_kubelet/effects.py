"""What the kubelet core asks its surroundings to do: plain values, carried out elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fake_kubelet.checkpoint import Checkpoint
from fake_kubelet.messages import AllocateResponse, Ask


@dataclass(frozen=True, slots=True)
class Connect:
    """Dial the plugin and, where `asks_options`, ask its options; report `plugin_connected` or
    `connect_failed`. `endpoint` lies in the plugin directory unless `is_path`; `authority` is what
    the plugin sees, None for the path."""

    client: int
    resource: str
    endpoint: str
    is_path: bool = False
    asks_options: bool = True
    authority: str | None = "localhost"


@dataclass(frozen=True, slots=True)
class AnswerRegister:
    """Answer the Register call of a client; a text refuses it with status Unknown."""

    client: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Watch:
    """Start ListAndWatch; report `devices_reported` and `stream_ended`."""

    client: int


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection to a plugin."""

    client: int


@dataclass(frozen=True, slots=True)
class CallPlugin:
    """Call a plugin; report `call_answered`."""

    call: int
    client: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class CancelCall:
    """Nobody waits for this call any more."""

    call: int


@dataclass(frozen=True, slots=True)
class OpenSockets:
    """Clear the plugin directory of `removes` (all_files or sockets) and listen anew. `is_strict`:
    a file that cannot be removed keeps the kubelet from listening."""

    removes: str
    is_strict: bool = True


@dataclass(frozen=True, slots=True)
class CloseSockets:
    """Stop listening; the socket files stay behind, as those of a process that is gone do."""


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Replace the checkpoint file; `checkpoint.encode` gives its bytes."""

    content: Checkpoint
    version: str


@dataclass(frozen=True, slots=True)
class Boot:
    """The service manager starts the kubelet again: read the checkpoint, call `start`."""


@dataclass(frozen=True, slots=True)
class Record:
    """Something worth telling an observer, as plain values."""

    kind: str
    fields: Mapping[str, Any]


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
    """Create the node object, or bring an existing one up to date. `resets_extended` sets every
    extended resource of an existing one to 0 first."""

    node: Mapping[str, Any]
    resets_extended: bool = False


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


PluginEffect = (
    Connect
    | AnswerRegister
    | Watch
    | Disconnect
    | CallPlugin
    | CancelCall
    | OpenSockets
    | CloseSockets
)
RuntimeEffect = RunSandbox | StartContainer | KillContainer | KillPod
ApiEffect = UpdatePodStatus | DeletePod | RegisterNode | UpdateNodeStatus | RenewLease | PostEvent
Effect = PluginEffect | RuntimeEffect | ApiEffect | WriteCheckpoint | SetTimer | Boot | Record
