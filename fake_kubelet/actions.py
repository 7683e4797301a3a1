"""What can be done to a kubelet on purpose: one class per action, and how each is carried out.

The same actions are verbs of scenarios, of the command line and of the Python API; the field names
are the words used everywhere. Times are seconds. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, get_type_hints

from fake_kubelet import checkpoint, rules
from fake_kubelet.personality import UnknownPersonality, personality
from fake_kubelet.pods import Pod
from fake_kubelet.wiring import Wiring


class BadAction(Exception):
    """An action that cannot be done; the text says what was got and what is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartKubelet:
    """Stop the kubelet and start it `delay` later: its connections break, its sockets are made
    anew. Without `keep_containers` every container is lost meanwhile; with `runtime_down` the
    container runtime cannot say which containers run; `order_seed` decides in which order the pods
    are met at the start."""

    delay: float = 0.0
    keep_containers: bool = True
    runtime_down: bool = False
    order_seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashKubelet:
    """The kubelet dies; the service manager starts it `delay` later."""

    delay: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopKubelet:
    """The kubelet ends and stays down; containers keep running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartKubelet:
    """Start a stopped kubelet."""

    runtime_down: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootNode:
    """The machine restarts: containers are lost, the boot id changes, the kubelet starts `delay`
    later."""

    delay: float = 0.0
    order_seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSocket:
    """Delete kubelet.sock; nothing makes it again before the next start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStream:
    """Break the connections to a resource's plugins from the kubelet's side."""

    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRegister:
    """Calls of Register wait until `rpc-release`; `resource` left out: of every plugin."""

    resource: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCall:
    """Calls between kubelet and plugins: `hold` them until `rpc-release`, `fail` them with `code`
    and `message`, `delay` them, or `drop` their answers; from the `first` to the `last` that fits,
    counted from now."""

    method: Literal[
        "Register",
        "GetDevicePluginOptions",
        "ListAndWatch",
        "GetPreferredAllocation",
        "Allocate",
        "PreStartContainer",
    ]
    action: Literal["hold", "fail", "delay", "drop"]
    resource: str | None = None
    first: int = 1
    last: int | None = None
    seconds: float = 0.0
    code: str = "Unavailable"
    message: str = "made to fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCalls:
    """Forget every rule for calls, and let go of those that are held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSync:
    """The node is looked at, and written, only every so many seconds (a real kubelet: 10)."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptCheckpoint:
    """Damage the checkpoint file; the next start finds it so."""

    how: Literal["bad_sum", "truncated", "v1", "missing", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceDelete:
    """Delete a pod's object at once; its containers are stopped after that."""

    pod: str
    namespace: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldTerminating:
    """When the pod is deleted, its containers take so many seconds to go."""

    pod: str
    seconds: float
    namespace: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPodResources:
    """Somebody lists pod-resources every so many seconds, which frees what finished pods held; 0
    ends it."""

    every: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SetVersion:
    """Behave like another Kubernetes version from the next start on, some switches set
    otherwise."""

    version: str
    switches: dict[str, str] = field(default_factory=dict)


Action = (
    RestartKubelet
    | CrashKubelet
    | StopKubelet
    | StartKubelet
    | RebootNode
    | RemoveSocket
    | CutStream
    | BlockRegister
    | RuleCall
    | ReleaseCalls
    | SlowSync
    | CorruptCheckpoint
    | ForceDelete
    | HoldTerminating
    | ListPodResources
    | SetVersion
)

ACTIONS: dict[str, type[Action]] = {
    "kubelet-restart": RestartKubelet,
    "kubelet-crash": CrashKubelet,
    "kubelet-stop": StopKubelet,
    "kubelet-start": StartKubelet,
    "node-reboot": RebootNode,
    "kubelet-socket-remove": RemoveSocket,
    "stream-cut": CutStream,
    "register-block": BlockRegister,
    "rpc": RuleCall,
    "rpc-release": ReleaseCalls,
    "node-sync": SlowSync,
    "checkpoint-corrupt": CorruptCheckpoint,
    "pod-force-delete": ForceDelete,
    "pod-hold-terminating": HoldTerminating,
    "podresources-list": ListPodResources,
    "kubelet-version": SetVersion,
}


_VERBS = {kind: verb for verb, kind in ACTIONS.items()}


def shown(action: Action) -> dict[str, Any]:
    """An action as plain values: its verb, and what was said of it."""
    said = {one.name: getattr(action, one.name) for one in fields(action)}
    return {"verb": _VERBS[type(action)], **said}


def parse(verb: str, words: list[str]) -> Action:
    """An action from words: `rpc method=Allocate action=hold`, `switches.NAME=VALUE` for a table.
    Raises BadAction."""
    kind = ACTIONS.get(verb)
    if kind is None:
        raise BadAction(f"unknown action {verb!r}, wanted one of {', '.join(ACTIONS)}")
    hints = get_type_hints(kind)
    known = {one.name: one for one in fields(kind)}
    given: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name, _, key = name.partition(".")
        if not equals or name not in known:
            wanted = " ".join(f"{one}=..." for one in known) or "no words"
            raise BadAction(f"{verb}: got {word!r}, wanted {wanted}")
        if key:
            given.setdefault(name, {})[key] = text
        else:
            given[name] = _value(f"{verb} {name}", text, hints[name])
    missing = [
        one.name
        for one in known.values()
        if one.default is MISSING and one.default_factory is MISSING and one.name not in given
    ]
    if missing:
        raise BadAction(f"{verb}: {', '.join(missing)} missing")
    return kind(**given)


def _value(where: str, text: str, hint: Any) -> Any:
    kinds = getattr(hint, "__args__", None) or (hint,)
    if getattr(hint, "__origin__", None) is Literal:
        if text not in kinds:
            raise BadAction(f"{where} is {text!r}, wanted {' or '.join(kinds)}")
        return text
    if bool in kinds:
        if text not in ("true", "false"):
            raise BadAction(f"{where} is {text!r}, wanted true or false")
        return text == "true"
    for number in (int, float):
        if number in kinds:
            try:
                return number(text)
            except ValueError:
                raise BadAction(f"{where} is {text!r}, wanted a number") from None
    return text


def perform(action: Action, wiring: Wiring, force_delete: Callable[[str, str], None]) -> None:
    """Carry an action out; `force_delete` removes a pod's object (namespace, name). Raises
    BadAction."""
    kubelet, now = wiring.kubelet, wiring.now()
    match action:
        case RestartKubelet():
            wiring.apply(
                kubelet.restart(
                    now,
                    delay_s=action.delay,
                    keeps_containers=action.keep_containers,
                    is_runtime_down=action.runtime_down,
                    order_seed=action.order_seed,
                )
            )
        case CrashKubelet():
            wiring.apply(kubelet.restart(now, delay_s=action.delay, is_crash=True))
        case StopKubelet():
            wiring.apply(kubelet.stop(now))
        case StartKubelet():
            wiring.boot(is_runtime_down=action.runtime_down)
        case RebootNode():
            wiring.apply(kubelet.reboot(now, delay_s=action.delay, order_seed=action.order_seed))
        case RemoveSocket():
            wiring.plugins.remove_socket()
        case CutStream():
            wiring.apply(kubelet.cut_streams(action.resource))
        case BlockRegister():
            rule = rules.CallRule(method="Register", action="hold", resource=action.resource)
            kubelet.set_rule(rule)
        case RuleCall():
            kubelet.set_rule(_rule(action))
        case ReleaseCalls():
            wiring.apply(kubelet.release_calls(now))
        case SlowSync():
            if action.seconds <= 0:
                raise BadAction(f"seconds is {action.seconds}, wanted more than 0")
            wiring.apply(kubelet.update_every(action.seconds, now))
        case CorruptCheckpoint():
            try:
                damaged = checkpoint.damage(wiring.plugins.read_checkpoint() or b"", action.how)
            except (ValueError, KeyError, TypeError, checkpoint.CorruptCheckpoint) as error:
                raise BadAction(f"the checkpoint is not sound to begin with: {error}") from None
            wiring.plugins.replace_checkpoint(damaged)
        case ForceDelete():
            _find(wiring, action.namespace, action.pod)
            force_delete(action.namespace, action.pod)
        case HoldTerminating():
            pod = _find(wiring, action.namespace, action.pod)
            kubelet.hold_terminating(pod.uid, action.seconds)
        case ListPodResources():
            wiring.apply(kubelet.collect_every(action.every, now))
        case SetVersion():
            try:
                kubelet.behave_like(personality(action.version, action.switches))
            except UnknownPersonality as error:
                raise BadAction(str(error)) from None


def _rule(action: RuleCall) -> rules.CallRule:
    try:
        return rules.CallRule(
            method=action.method,
            action=action.action,
            resource=action.resource,
            first=action.first,
            last=action.last,
            delay_s=action.seconds,
            code=action.code,
            message=action.message,
        )
    except rules.BadRule as error:
        raise BadAction(str(error)) from None


def _find(wiring: Wiring, namespace: str, name: str) -> Pod:
    for pod in wiring.kubelet.pods.values():
        if (pod.namespace, pod.name) == (namespace, name) and not pod.is_orphan:
            return pod
    raise BadAction(f"no pod {namespace}/{name} on this node")
