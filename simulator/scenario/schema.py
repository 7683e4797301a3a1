"""What a scenario file may say: the closed list of settings, steps and expectations.

These classes are the definition: the loader reads field names, types, defaults and choices from
them, so a field exists exactly once. Times are seconds of scenario time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault code on a card."""

    card: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The host: its cards and what its driver package looks like."""

    profile: str = "atlas-800t-a2-910b3"
    cards: int = 8
    listed_cards: int | None = None
    library: Literal["ok", "missing", "group-writable"] = "ok"
    driver_version: str | None = None
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The device plugin's deployment."""

    deployed: bool = True
    answer: Literal["runtime", "devices"] = "runtime"
    notices_kubelet_restart: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """The kubelet: `socket: removed` deletes kubelet.sock once it listens."""

    socket: Literal["present", "removed"] = "present"
    node_status_update_s: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """containerd's configuration and the handler's program."""

    handler: Literal["present", "missing"] = "present"
    binary: Literal["present", "missing", "not-executable"] = "present"
    default: Literal["runc", "ascend"] = "runc"
    runtime_class: Literal["present", "missing"] = "present"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """The pod that the compute gate runs; `runtime_class: ""` leaves it out of the pod."""

    runtime_class: str = "ascend"
    cards: str | None = "1"
    image: str = "npu-testbed/vector-add:1"
    node_selector: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectFault:
    """Raise a fault code on a card."""

    card: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverFault:
    """Clear a fault code from a card."""

    card: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCard:
    """A card stops answering; its ids stay."""

    card: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnCard:
    """A dropped card answers again."""

    card: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPlugin:
    """End the plugin's process and keep it down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlugin:
    """Start the plugin's process again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartKubelet:
    """Stop and start the kubelet: its sockets vanish and come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePod:
    """Create a pod in namespace default."""

    name: str
    runtime_class: str = "ascend"
    cards: str | None = "1"
    image: str = "npu-testbed/vector-add:1"
    command: tuple[str, ...] = ()
    node_selector: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod:
    """Delete a pod of namespace default."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectNode:
    """The node object shows these counts within the window."""

    within: float
    capacity: int | None = None
    allocatable: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectPod:
    """A pod reaches a phase, or its log or message holds a text, within the window."""

    name: str
    within: float
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "absent"] | None = None
    log: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGates:
    """Run the three gates and compare the verdict; `cause` names the broken link."""

    fails: Literal["host", "registration", "compute"] | None = None
    cause: str | None = None


Step = (
    Wait
    | InjectFault
    | RecoverFault
    | DropCard
    | ReturnCard
    | StopPlugin
    | StartPlugin
    | RestartKubelet
    | CreatePod
    | DeletePod
    | ExpectNode
    | ExpectPod
    | RunGates
)

STEPS: dict[str, type[Step]] = {
    "wait": Wait,
    "fault": InjectFault,
    "recover": RecoverFault,
    "drop": DropCard,
    "return": ReturnCard,
    "plugin-stop": StopPlugin,
    "plugin-start": StartPlugin,
    "kubelet-restart": RestartKubelet,
    "pod-create": CreatePod,
    "pod-delete": DeletePod,
    "expect-node": ExpectNode,
    "expect-pod": ExpectPod,
    "gates": RunGates,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario file."""

    name: str
    about: str = ""
    seed: int = 1
    node: NodeSettings = field(default_factory=NodeSettings)
    plugin: PluginSettings = field(default_factory=PluginSettings)
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    pod: PodSettings = field(default_factory=PodSettings)
    steps: tuple[Step, ...] = ()
