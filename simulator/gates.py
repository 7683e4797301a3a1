"""The three gates, each check with its evidence, and the name of the first broken link.

Owns: which checks there are, in what order, and what a failed one means. Looks at the world only
through a `Probe`, so the same checks judge the simulated node, the live one and a real cluster.
Rules: a check never changes what a later one looks at, except that the compute gate creates and
deletes its own two pods; the first failed check ends the run, because later links hang on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Gate = Literal["host", "registration", "compute"]
Object = Mapping[str, Any]

RESULT = "[11, 22, 33, 44]"
ORDINARY_POD = "gate-ordinary"
CARD_POD = "gate-card"
REGISTER_WITHIN_S = 30.0
POD_WITHIN_S = 30.0


class ApiRefused(Exception):
    """The Kubernetes API refused a request; the text is its message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a look at the host gave: the call that was made, what came back, and its kind."""

    call: str
    got: str
    kind: str = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardState:
    """One card as the driver reports it; `health` is the npu-smi word."""

    card_id: int
    health: str
    codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredRuntime:
    """What containerd's configuration says: default, handlers with their programs, and whether
    each program can be executed (`ok`, `missing`, `not-executable`)."""

    default: str
    binaries: Mapping[str, str]
    binary_state: Mapping[str, str]


class Probe(Protocol):
    """Everything the gates look at. Objects are Kubernetes JSON; absent ones are None."""

    def library(self) -> Answer: ...
    def cards(self) -> tuple[Answer, tuple[CardState, ...]]: ...
    def daemon_set(self) -> Object | None: ...
    def plugin_log(self) -> str: ...
    def kubelet_socket(self) -> Answer: ...
    def node(self) -> Object | None: ...
    def runtime_class(self, name: str) -> Object | None: ...
    def containerd(self) -> tuple[Answer, ConfiguredRuntime | None]: ...
    def create_pod(self, pod: Object) -> Object: ...
    def pod(self, name: str) -> Object | None: ...
    def pod_events(self, name: str) -> list[Object]: ...
    def pod_log(self, name: str) -> str: ...
    def delete_pod(self, name: str) -> None: ...
    def wait_for(self, claim: Callable[[], bool], within_s: float) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the card pod asks for, and how many cards the node should have."""

    expected_cards: int = 8
    resource: str = "huawei.com/Ascend910"
    runtime_class: str = "ascend"
    pod_runtime_class: str = "ascend"
    cards: str | None = "1"
    image: str = "npu-testbed/vector-add:1"
    ordinary_image: str = "docker.io/library/busybox"
    node_selector: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One link of the chain: how it was looked at, what came back, what was wanted."""

    gate: Gate
    title: str
    passed: bool
    call: str
    got: str
    wanted: str
    cause: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All checks made; a failed run names gate and cause of the first broken link."""

    checks: tuple[Check, ...]

    @property
    def broken(self) -> Check | None:
        return next((check for check in self.checks if not check.passed), None)

    @property
    def passed(self) -> bool:
        return self.broken is None


def run(probe: Probe, request: Request, report: Callable[[Check], None] | None = None) -> Verdict:
    """Go through the gates in order and stop at the first broken link."""
    checks: list[Check] = []
    for check in _checks(probe, request):
        checks.append(check)
        if report is not None:
            report(check)
        if not check.passed:
            break
    return Verdict(checks=tuple(checks))


def _checks(probe: Probe, request: Request) -> Iterator[Check]:
    yield from _host(probe, request)
    yield from _registration(probe, request)
    try:
        yield from _compute(probe, request)
    finally:
        for name in (ORDINARY_POD, CARD_POD):
            if probe.pod(name) is not None:
                probe.delete_pod(name)


def _host(probe: Probe, request: Request) -> Iterator[Check]:
    library = probe.library()
    yield Check(
        gate="host",
        title="the driver library can be loaded",
        passed=library.kind == "ok",
        call=library.call,
        got=library.got,
        wanted="libdcmi.so present, owned by root, writable by nobody else",
        cause="library-refused" if library.kind == "refused" else "library-missing",
        next_step="install the driver package, or take group and other write permission away",
    )
    answer, cards = probe.cards()
    yield Check(
        gate="host",
        title="the host lists its cards",
        passed=answer.kind == "ok" and len(cards) == request.expected_cards,
        call=answer.call,
        got=answer.got,
        wanted=f"{request.expected_cards} cards",
        cause="no-cards" if not cards else "cards-missing",
        next_step="see whether the cards are seated and the driver has found them (lspci, dmesg)",
    )
    sick = [card for card in cards if card.health != "OK"]
    yield Check(
        gate="host",
        title="every card is healthy",
        passed=not sick,
        call=answer.call,
        got="; ".join(
            " ".join([f"card {card.card_id} {card.health}", *(f"{c:08X}" for c in card.codes)])
            for card in sick
        )
        or f"{len(cards)} x OK",
        wanted="health OK on each card",
        cause="card-unhealthy",
        next_step="look up the fault code; reset or replace the card",
    )


def _registration(probe: Probe, request: Request) -> Iterator[Check]:
    daemon_set = probe.daemon_set()
    yield Check(
        gate="registration",
        title="the device plugin is deployed",
        passed=daemon_set is not None,
        call="GET daemonsets -n kube-system ascend-device-plugin",
        got="NotFound" if daemon_set is None else "found",
        wanted="the DaemonSet",
        cause="plugin-not-deployed",
        next_step="apply the device plugin's DaemonSet",
    )
    probe.wait_for(
        lambda: (
            _ready(probe.daemon_set())
            and count(probe.node(), "allocatable", request.resource) == request.expected_cards
        ),
        REGISTER_WITHIN_S,
    )
    daemon_set = probe.daemon_set()
    yield Check(
        gate="registration",
        title="the plugin's pod is Ready",
        passed=_ready(daemon_set),
        call="GET daemonsets -n kube-system ascend-device-plugin .status",
        got=f"{_status(daemon_set).get('numberReady', 0)} of "
        f"{_status(daemon_set).get('desiredNumberScheduled', 0)} ready",
        wanted="all ready",
        cause="plugin-not-ready",
        next_step="read the plugin's log",
    )
    socket = probe.kubelet_socket()
    capacity = count(probe.node(), "capacity", request.resource)
    allocatable = count(probe.node(), "allocatable", request.resource)
    is_registered = capacity == allocatable == request.expected_cards
    reason, next_step = "", ""
    if not is_registered:
        reason, next_step = _why_unregistered(probe, socket, capacity)
    yield Check(
        gate="registration",
        title="the node shows the cards in Capacity and Allocatable",
        passed=is_registered,
        call=f"GET node .status.capacity/.allocatable[{request.resource}]; {socket.call}",
        got=f"capacity {capacity}, allocatable {allocatable}; {socket.got}",
        wanted=f"{request.expected_cards} and {request.expected_cards}",
        cause=reason,
        next_step=next_step,
    )
    runtime_class = probe.runtime_class(request.runtime_class)
    yield Check(
        gate="registration",
        title=f"RuntimeClass {request.runtime_class} exists",
        passed=runtime_class is not None,
        call=f"GET runtimeclasses {request.runtime_class}",
        got="NotFound" if runtime_class is None else f"handler {runtime_class['handler']}",
        wanted="a handler name",
        cause="runtime-class-missing",
        next_step="apply the RuntimeClass object",
    )
    yield from _handler(probe, str(runtime_class["handler"]) if runtime_class else "")


def _handler(probe: Probe, handler: str) -> Iterator[Check]:
    answer, configured = probe.containerd()
    binaries = configured.binaries if configured else {}
    yield Check(
        gate="registration",
        title=f"containerd knows the handler {handler}",
        passed=handler in binaries,
        call=answer.call,
        got=answer.got,
        wanted=f"a runtimes.{handler} table",
        cause="handler-missing",
        next_step=f"add runtimes.{handler} to containerd's configuration and restart containerd",
    )
    binary = binaries.get(handler, "")
    state = configured.binary_state.get(handler, "missing") if configured else "missing"
    yield Check(
        gate="registration",
        title="the handler's program can be executed",
        passed=state == "ok",
        call=f"{answer.call}: BinaryName",
        got=f"{binary}: {state}",
        wanted="an executable file",
        cause=f"binary-{state}",
        next_step="install the Ascend runtime at that path, mode 0755",
    )
    default = configured.default if configured else ""
    yield Check(
        gate="registration",
        title="the default runtime is still runc",
        passed=default == "runc",
        call=f"{answer.call}: default_runtime_name",
        got=default,
        wanted="runc",
        cause="default-runtime-changed",
        next_step='set default_runtime_name = "runc"; pods choose the handler by RuntimeClass',
    )


def _compute(probe: Probe, request: Request) -> Iterator[Check]:
    probe.create_pod(_ordinary_pod(request))
    probe.wait_for(lambda: _is_over(probe.pod(ORDINARY_POD)), POD_WITHIN_S)
    ordinary = probe.pod(ORDINARY_POD)
    yield Check(
        gate="compute",
        title="an ordinary pod still runs on the default runtime",
        passed=phase(ordinary) == "Succeeded",
        call=f"POST pod {ORDINARY_POD}; GET pod, log",
        got=f"{phase(ordinary)}: "
        + (_text(probe.pod_log(ORDINARY_POD)) or trouble(probe, ordinary)),
        wanted="Succeeded",
        cause="ordinary-pod-failed",
        next_step="read the pod's events",
    )
    try:
        probe.create_pod(_card_pod(request))
        refusal = ""
    except ApiRefused as error:
        refusal = str(error)
    yield Check(
        gate="compute",
        title="the API accepts the pod that asks for a card",
        passed=not refusal,
        call=f"POST pod {CARD_POD} ({request.resource}: {request.cards})",
        got=refusal or "created",
        wanted="created",
        cause="request-not-integer" if "must be an integer" in refusal else "pod-refused",
        next_step="ask for a whole number of cards",
    )
    probe.wait_for(lambda: _is_over(probe.pod(CARD_POD)) or _is_stuck(probe), POD_WITHIN_S)
    pod = probe.pod(CARD_POD)
    said = trouble(probe, pod)
    log = probe.pod_log(CARD_POD)
    has_computed = phase(pod) == "Succeeded" and RESULT in log
    cause, next_step = ("", "") if has_computed else _why_not_computed(request, said, log)
    yield Check(
        gate="compute",
        title="the pod gets its card through the handler and computes",
        passed=has_computed,
        call=f"GET pod {CARD_POD}, events, log",
        got=f"{phase(pod)}: {_text(log) or said}",
        wanted=f"Succeeded with {RESULT}",
        cause=cause,
        next_step=next_step,
    )
    seen = [word for word in log.split() if word.startswith("/dev/davinci")]
    yield Check(
        gate="compute",
        title="the container saw exactly its card",
        passed=len(set(seen)) == 1,
        call=f"GET log {CARD_POD}",
        got=", ".join(sorted(set(seen))) or "no card",
        wanted="one /dev/davinciN",
        cause="wrong-cards-visible",
        next_step="compare ASCEND_VISIBLE_DEVICES with the container's /dev",
    )
    for name in (ORDINARY_POD, CARD_POD):
        probe.delete_pod(name)
    is_free = probe.wait_for(
        lambda: all(probe.pod(name) is None for name in (ORDINARY_POD, CARD_POD)), POD_WITHIN_S
    )
    allocatable = count(probe.node(), "allocatable", request.resource)
    yield Check(
        gate="compute",
        title="afterwards everything is free again",
        passed=is_free and allocatable == request.expected_cards,
        call="DELETE both pods; GET node",
        got=f"pods {'gone' if is_free else 'still there'}, allocatable {allocatable}",
        wanted=f"pods gone, allocatable {request.expected_cards}",
        cause="not-freed",
        next_step="look for a pod stuck in Terminating",
    )


def _why_unregistered(probe: Probe, socket: Answer, capacity: int | None) -> tuple[str, str]:
    log = probe.plugin_log()
    if socket.kind == "missing":
        return (
            "kubelet-socket-unreachable",
            "restart the kubelet: it does not notice that kubelet.sock was deleted",
        )
    if any("could not contact the kubelet" in line for line in log.splitlines()[-3:]):
        return "kubelet-socket-unreachable", "see why the plugin cannot reach kubelet.sock"
    if capacity is not None and "not registering again" in log:
        return (
            "plugin-missed-kubelet-restart",
            "restart the plugin's pod: the kubelet restarted and the plugin did not notice",
        )
    return "plugin-not-registered", "read the plugin's log"


def _why_not_computed(request: Request, trouble: str, log: str) -> tuple[str, str]:
    """From what the cluster says of the card pod to the link that is broken."""
    said = f"{trouble}\n{log}"
    if f"Insufficient {request.resource}" in said:
        return "request-too-many", "ask for no more cards than the node has free"
    if "node affinity/selector" in said:
        return "node-selector-no-match", "correct the selector or label the node"
    if "no match for platform" in said or "exec format error" in said:
        return "image-architecture", "build the image for the node's architecture"
    if "no runtime for" in said:
        return "handler-missing", "add the handler to containerd's configuration"
    if "driver" in log and "CANN" in log:
        return "driver-cann-mismatch", "install a driver that the image's CANN supports"
    if not request.pod_runtime_class:
        return "pod-without-runtime-class", f"set runtimeClassName: {request.runtime_class}"
    if request.cards is None:
        return "pod-asks-no-card", f"add {request.resource}: 1 to the limits"
    if request.cards == "0":
        return "request-zero", "ask for at least one card"
    return "pod-failed", "read the pod's events and log"


def _ordinary_pod(request: Request) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": ORDINARY_POD, "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": request.ordinary_image,
                    "command": ["/bin/sh", "-c", "echo an ordinary pod runs"],
                }
            ],
        },
    }


def _card_pod(request: Request) -> Object:
    container: dict[str, Any] = {"name": "main", "image": request.image}
    if request.cards is not None:
        container["resources"] = {"limits": {request.resource: request.cards}}
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if request.pod_runtime_class:
        spec["runtimeClassName"] = request.pod_runtime_class
    if request.node_selector:
        spec["nodeSelector"] = dict(request.node_selector)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": CARD_POD, "namespace": "default"},
        "spec": spec,
    }


def _status(thing: Object | None) -> Object:
    return (thing or {}).get("status") or {}


def _ready(daemon_set: Object | None) -> bool:
    status = _status(daemon_set)
    desired = status.get("desiredNumberScheduled", 0)
    return bool(desired) and status.get("numberReady", 0) == desired


def count(node: Object | None, field_name: str, resource: str) -> int | None:
    """A node's `capacity` or `allocatable` of a resource, None when it has no such key."""
    value = (_status(node).get(field_name) or {}).get(resource)
    return None if value is None else int(value)


def phase(pod: Object | None) -> str:
    """A pod's phase, `absent` when there is no such pod."""
    return str(_status(pod).get("phase", "absent"))


def _is_over(pod: Object | None) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def _is_stuck(probe: Probe) -> bool:
    """Nothing will change without someone's help: unschedulable, or a start that is refused."""
    pod = probe.pod(CARD_POD)
    if any(c.get("reason") == "Unschedulable" for c in _status(pod).get("conditions") or ()):
        return True
    refusals = ("FailedCreatePodSandBox", "Failed", "ErrImagePull")
    return any(event.get("reason") in refusals for event in probe.pod_events(CARD_POD))


def trouble(probe: Probe, pod: Object | None) -> str:
    """What the cluster itself says is wrong with a pod."""
    if pod is None:
        return ""
    said = [str(_status(pod).get("message", ""))]
    said += [str(c.get("message", "")) for c in _status(pod).get("conditions") or ()]
    for status in _status(pod).get("containerStatuses") or ():
        for state in (status.get("state") or {}).values():
            said.append(f"{state.get('reason', '')} {state.get('message', '')}")
    name = str(pod["metadata"]["name"])
    said += [
        str(event.get("message", ""))
        for event in probe.pod_events(name)
        if event.get("type") == "Warning"
    ]
    return "; ".join(dict.fromkeys(text.strip() for text in said if text.strip()))


def _text(log: str) -> str:
    return " / ".join(line.strip() for line in log.splitlines() if line.strip())
