"""The gates on a scripted world: all links whole, then each one broken on its own.

What a real or simulated node says in these cases is tested where the node is; here the question is
whether the gates look at every link and call the broken one by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from simulator.gates import (
    CARD_POD,
    ORDINARY_POD,
    Answer,
    ApiRefused,
    CardState,
    Check,
    ConfiguredRuntime,
    Object,
    Request,
    run,
)

R = "huawei.com/Ascend910"
GOOD_LOG = "device /dev/davinci0\n[1, 2, 3, 4] + [10, 20, 30, 40] = [11, 22, 33, 44]\n"

LOADED = Answer(call="load libdcmi.so", got="loaded")
ACCEPTED = Answer(call="connect kubelet.sock", got="accepted")


@dataclass
class World:
    """A node whose every answer can be replaced."""

    library_answer: Answer = LOADED
    card_states: tuple[CardState, ...] = tuple(CardState(card_id=n, health="OK") for n in range(8))
    is_deployed: bool = True
    ready: int = 1
    capacity: int | None = 8
    allocatable: int | None = 8
    socket: Answer = ACCEPTED
    log: str = "registered"
    classes: tuple[str, ...] = ("ascend",)
    default: str = "runc"
    binaries: dict[str, str] = field(default_factory=lambda: {"runc": "runc", "ascend": "/x"})
    state: str = "ok"
    refusal: str = ""
    outcome: dict[str, Any] = field(default_factory=lambda: {"phase": "Succeeded"})
    outcome_log: str = GOOD_LOG
    events: tuple[str, ...] = ()
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    sticks: bool = False

    def library(self) -> Answer:
        return self.library_answer

    def cards(self) -> tuple[Answer, tuple[CardState, ...]]:
        return Answer(call="npu-smi info", got=f"{len(self.card_states)} cards"), self.card_states

    def daemon_set(self) -> Object | None:
        if not self.is_deployed:
            return None
        return {"status": {"desiredNumberScheduled": 1, "numberReady": self.ready}}

    def plugin_log(self) -> str:
        return self.log

    def kubelet_socket(self) -> Answer:
        return self.socket

    def node(self) -> Object | None:
        def counts(value: int | None) -> dict[str, str]:
            return {} if value is None else {R: str(value)}

        return {
            "status": {
                "capacity": counts(self.capacity),
                "allocatable": counts(self.allocatable),
            }
        }

    def runtime_class(self, name: str) -> Object | None:
        return {"handler": name} if name in self.classes else None

    def containerd(self) -> tuple[Answer, ConfiguredRuntime | None]:
        return Answer(call="read config.toml", got=", ".join(self.binaries)), ConfiguredRuntime(
            default=self.default,
            binaries=self.binaries,
            binary_state=dict.fromkeys(self.binaries, self.state),
        )

    def create_pod(self, pod: Object) -> Object:
        name = pod["metadata"]["name"]
        if name == CARD_POD and self.refusal:
            raise ApiRefused(self.refusal)
        is_card = name == CARD_POD
        self.pods[name] = {**pod, "status": self.outcome if is_card else {"phase": "Succeeded"}}
        return self.pods[name]

    def pod(self, name: str) -> Object | None:
        return self.pods.get(name)

    def pod_events(self, name: str) -> list[Object]:
        texts = self.events if name == CARD_POD else ()
        return [{"type": "Warning", "reason": "Failed", "message": text} for text in texts]

    def pod_log(self, name: str) -> str:
        return self.outcome_log if name == CARD_POD else "an ordinary pod runs\n"

    def delete_pod(self, name: str) -> None:
        if not self.sticks:
            self.pods.pop(name, None)

    def wait_for(self, claim: Callable[[], bool], within_s: float) -> bool:
        return claim()


def failed(log: str = "") -> dict[str, Any]:
    return {"outcome": {"phase": "Failed"}, "outcome_log": log}


def pending(text: str, *, event: bool = False) -> dict[str, Any]:
    if event:
        return {"outcome": {"phase": "Pending"}, "outcome_log": "", "events": (text,)}
    conditions = [{"reason": "Unschedulable", "message": text}]
    return {"outcome": {"phase": "Pending", "conditions": conditions}, "outcome_log": ""}


NO_DEVICE = "no device was given to this container"
BROKEN: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("library-missing", "host", {"library_answer": Answer(call="", got="", kind="missing")}, {}),
    ("library-refused", "host", {"library_answer": Answer(call="", got="", kind="refused")}, {}),
    ("no-cards", "host", {"card_states": ()}, {}),
    ("cards-missing", "host", {"card_states": (CardState(card_id=0, health="OK"),)}, {}),
    (
        "card-unhealthy",
        "host",
        {
            "card_states": tuple(
                CardState(card_id=n, health="Alarm" if n == 3 else "OK") for n in range(8)
            )
        },
        {},
    ),
    ("plugin-not-deployed", "registration", {"is_deployed": False}, {}),
    ("plugin-not-ready", "registration", {"ready": 0}, {}),
    (
        "kubelet-socket-unreachable",
        "registration",
        {
            "socket": Answer(call="", got="no such file", kind="missing"),
            "capacity": None,
            "allocatable": None,
        },
        {},
    ),
    (
        "plugin-missed-kubelet-restart",
        "registration",
        {"capacity": 0, "allocatable": 0, "log": "stream closed; not registering again"},
        {},
    ),
    ("runtime-class-missing", "registration", {"classes": ()}, {}),
    ("handler-missing", "registration", {"binaries": {"runc": "runc"}}, {}),
    ("binary-missing", "registration", {"state": "missing"}, {}),
    ("binary-not-executable", "registration", {"state": "not-executable"}, {}),
    ("default-runtime-changed", "registration", {"default": "ascend"}, {}),
    (
        "request-not-integer",
        "compute",
        {"refusal": f'spec.containers[0].resources.limits[{R}]: "500m": must be an integer'},
        {"cards": "500m"},
    ),
    (
        "request-too-many",
        "compute",
        pending(f"0/1 nodes are available: 1 Insufficient {R}."),
        {"cards": "9"},
    ),
    ("request-zero", "compute", failed(NO_DEVICE), {"cards": "0"}),
    ("pod-asks-no-card", "compute", failed(NO_DEVICE), {"cards": None}),
    ("pod-without-runtime-class", "compute", failed(NO_DEVICE), {"pod_runtime_class": ""}),
    (
        "node-selector-no-match",
        "compute",
        pending("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
        {"node_selector": {"zone": "nowhere"}},
    ),
    (
        "image-architecture",
        "compute",
        pending("no match for platform in manifest: not found", event=True),
        {"image": "npu-testbed/vector-add:arm64-only"},
    ),
    (
        "driver-cann-mismatch",
        "compute",
        failed("driver 25.2.0 is too old for CANN 9.0, which needs 26.0 or newer"),
        {},
    ),
    (
        "wrong-cards-visible",
        "compute",
        {"outcome_log": GOOD_LOG + "device /dev/davinci1\n"},
        {},
    ),
    ("not-freed", "compute", {"sticks": True}, {}),
]


def test_a_whole_chain_passes_every_gate_and_leaves_nothing() -> None:
    world, reported = World(), list[Check]()
    verdict = run(world, Request(), reported.append)
    assert verdict.passed
    assert reported == list(verdict.checks)
    assert {check.gate for check in verdict.checks} == {"host", "registration", "compute"}
    assert world.pods == {}


@pytest.mark.parametrize(
    ("cause", "gate", "world", "request_"), BROKEN, ids=[row[0] for row in BROKEN]
)
def test_one_broken_link_fails_its_gate_and_is_named(
    cause: str, gate: str, world: dict[str, Any], request_: dict[str, Any]
) -> None:
    verdict = run(World(**world), Request(**request_))
    assert verdict.broken is not None
    assert (verdict.broken.gate, verdict.broken.cause) == (gate, cause)
    assert verdict.broken is verdict.checks[-1]
    assert verdict.broken.next_step
    assert all(check.passed for check in verdict.checks[:-1])


def test_pods_of_a_failed_compute_gate_are_deleted() -> None:
    world = World(**failed(NO_DEVICE))
    assert not run(world, Request()).passed
    assert ORDINARY_POD not in world.pods
    assert CARD_POD not in world.pods
