"""What a scenario file may say: the closed list of settings, steps and expectations.

These classes are the definition: the loader reads field names, types, defaults and choices from
them, so a field exists exactly once. Times are seconds of scenario time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fake_kubelet.actions import ACTIONS, Action
from fake_kubelet.personality import DEFAULT_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault code on a chip."""

    card: int
    code: str
    chip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The host: its cards and what its driver package looks like. `profile` is a shipped product or
    the path of a profile file; `cards` left out is as many as the product has; `phy_ids` are the
    numbers of /dev/davinciN where they differ from the driver's order."""

    profile: str = "atlas-800t-a2-910b3"
    cards: int | None = None
    listed_cards: int | None = None
    library: Literal["ok", "missing", "group-writable"] = "ok"
    breaks: tuple[str, ...] = ()
    driver_version: str | None = None
    phy_ids: tuple[int, ...] = ()
    log_calls: bool = False
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The device plugin's deployment."""

    deployed: bool = True
    answer: Literal["runtime", "devices"] = "runtime"
    notices_kubelet_restart: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """The kubelet: the Kubernetes version it behaves like, with some switches set otherwise, and
    its Topology Manager policy. `socket: removed` deletes kubelet.sock once it listens."""

    version: str = DEFAULT_VERSION
    switches: dict[str, str] = field(default_factory=dict)
    topology_policy: Literal["none", "best-effort", "restricted", "single-numa-node"] = "none"
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
    """Raise a fault code, or the fault of that name, on a chip; `once` only tells of it."""

    card: int
    code: str
    chip: int = 0
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverFault:
    """Clear a fault code from a chip."""

    card: int
    code: str
    chip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchFault:
    """Raise a fault of the super-pod's switch: `[0x00f1fef5,155912,cpu,na]`."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRecover:
    """Clear a fault of the switch."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCard:
    """A card stops answering; its ids stay. `answers` is the driver's code meanwhile."""

    card: int
    answers: str = "-8012"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnCard:
    """A dropped card answers again."""

    card: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetChip:
    """Reset a chip, and its ring, as an operator would."""

    card: int
    chip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartDriver:
    """The host boots or loads its driver anew: every chip boots; vNPUs stay as the driver keeps
    them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetBehaviour:
    """How a chip behaves when it is reset next: refuses so often, never boots, its faults come back
    so many seconds after the boot, the boot takes so long; `outband` gives it a way out of band."""

    card: int
    chip: int = 0
    fails: int = 0
    never_boots: bool = False
    faults_return_after: float | None = None
    boot_s: float | None = None
    outband: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PinReading:
    """A field of the hardware image keeps this value whatever the model says (`temp_c`,
    `utilization_pct.2`)."""

    card: int
    field: str
    value: int
    chip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpinReading:
    """A pinned field follows the model again."""

    card: int
    field: str
    chip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldCard:
    """A container holds a card alone: others that have its device file fail to start the driver's
    library with `answers`."""

    card: int
    container: str
    answers: Literal["-8005", "-8020"] = "-8005"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCard:
    """Nobody holds the card alone any more."""

    card: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLink:
    """The RoCE port of a chip goes up or down; `network_health` is the probe's result."""

    card: int
    state: Literal["up", "down"]
    chip: int = 0
    network_health: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProcess:
    """A process of the host uses a chip."""

    card: int
    pid: int
    chip: int = 0
    name: str = "python3"
    memory_mb: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EndProcess:
    """A process no longer uses a chip."""

    card: int
    pid: int
    chip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSlice:
    """Make a vNPU from a template."""

    card: int
    template: str
    chip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UseSlice:
    """A container uses a vNPU; a leaking one stays in use when the container is gone."""

    card: int
    vdev: int
    container: str
    chip: int = 0
    leaks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveSlice:
    """The container that used vNPUs of a chip is gone."""

    card: int
    container: str
    chip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroySlice:
    """Destroy a vNPU."""

    card: int
    vdev: int
    chip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCall:
    """Driver calls behave as told: a code, a delay, or a hang until released. Left out: every
    function, card or chip. Counted per process from 1; `chance` is 0 to 1, drawn from the seed."""

    function: str | None = None
    card: int | None = None
    chip: int | None = None
    answers: str = "0"
    delay: float = 0.0
    hang: bool = False
    first: int = 1
    last: int | None = None
    chance: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearCalls:
    """Forget all scripted calls, and release those that hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCalls:
    """Note every driver call from now on, or no longer."""

    on: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPlugin:
    """End the plugin's process and keep it down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlugin:
    """Start the plugin's process again."""


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
class ExpectCard:
    """npu-smi shows this health word for a chip within the window; `absent`: it is not listed."""

    card: int
    within: float
    health: Literal["OK", "Warning", "Alarm", "Critical", "UNKNOWN", "absent"]
    chip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGates:
    """Run the three gates and compare the verdict; `cause` names the broken link."""

    fails: Literal["host", "registration", "compute"] | None = None
    cause: str | None = None


Step = (
    Wait
    | InjectFault
    | RecoverFault
    | SwitchFault
    | SwitchRecover
    | DropCard
    | ReturnCard
    | ResetChip
    | RestartDriver
    | ResetBehaviour
    | ExpectCard
    | PinReading
    | UnpinReading
    | HoldCard
    | ReleaseCard
    | ChangeLink
    | StartProcess
    | EndProcess
    | CreateSlice
    | UseSlice
    | LeaveSlice
    | DestroySlice
    | ScriptCall
    | ClearCalls
    | LogCalls
    | StopPlugin
    | StartPlugin
    | Action
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
    "switch-fault": SwitchFault,
    "switch-recover": SwitchRecover,
    "drop": DropCard,
    "return": ReturnCard,
    "reset": ResetChip,
    "driver-restart": RestartDriver,
    "reset-behaviour": ResetBehaviour,
    "pin": PinReading,
    "unpin": UnpinReading,
    "hold": HoldCard,
    "release": ReleaseCard,
    "link": ChangeLink,
    "process-start": StartProcess,
    "process-end": EndProcess,
    "vnpu-create": CreateSlice,
    "vnpu-use": UseSlice,
    "vnpu-leave": LeaveSlice,
    "vnpu-destroy": DestroySlice,
    "call-script": ScriptCall,
    "call-clear": ClearCalls,
    "call-log": LogCalls,
    "plugin-stop": StopPlugin,
    "plugin-start": StartPlugin,
    **ACTIONS,
    "pod-create": CreatePod,
    "pod-delete": DeletePod,
    "expect-node": ExpectNode,
    "expect-pod": ExpectPod,
    "expect-card": ExpectCard,
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
