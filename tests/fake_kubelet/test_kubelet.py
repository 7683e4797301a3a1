"""The kubelet core: the life of pods, one input and its effects at a time."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kubelet.checkpoint import encode
from fake_kubelet.device_manager import RegistrationError
from fake_kubelet.effects import (
    AnswerRegister,
    Boot,
    CallPlugin,
    Connect,
    DeletePod,
    Disconnect,
    Effect,
    KillContainer,
    KillPod,
    OpenSockets,
    PostEvent,
    RunSandbox,
    SetTimer,
    StartContainer,
    UpdateNodeStatus,
    UpdatePodStatus,
    Watch,
    WriteCheckpoint,
)
from fake_kubelet.kubelet import Kubelet, Settings
from fake_kubelet.messages import (
    AllocateResponse,
    CallFailed,
    Device,
    PluginOptions,
    RegisterRequest,
)
from fake_kubelet.status import NodeIdentity

R = "huawei.com/Ascend910"


def handler_of(name: str | None) -> str:
    if name not in (None, "ascend"):
        raise LookupError(f'runtimeclass.node.k8s.io "{name}" not found')
    return name or ""


def kubelet(cards: int | None = 8) -> Kubelet:
    made = Kubelet(
        NodeIdentity(name="n1"),
        rng=random.Random(1),
        handler_of=handler_of,
        settings=Settings(node_status_update_s=10),
    )
    made.start(0)
    if cards is not None:
        register(made, cards)
    return made


def register(made: Kubelet, cards: int, now: float = 0) -> int:
    request = RegisterRequest(version="v1beta1", endpoint="x.sock", resource_name=R)
    client, effects = made.register(request, now)
    assert [connect.client for connect in of(Connect, effects)] == [client]
    connected = made.plugin_connected(client, PluginOptions(), now)
    assert of(Watch, connected) == [Watch(client)]
    assert of(AnswerRegister, connected) == [AnswerRegister(client, None)]
    devices = [Device(id=f"Ascend910-{n}", health="Healthy") for n in range(cards)]
    made.devices_reported(client, devices, now)
    return client


def pod(uid: str = "u1", *, cards: int | None = None, inits: int = 0, **spec: Any) -> Any:
    def container(name: str) -> dict[str, Any]:
        limits = {} if cards is None else {R: str(cards)}
        return {"name": name, "image": "i", "resources": {"limits": limits}}

    return {
        "metadata": {"name": f"p-{uid}", "namespace": "default", "uid": uid},
        "spec": {
            "initContainers": [container(f"init{n}") for n in range(inits)],
            "containers": [container("main")],
            "restartPolicy": "Never",
            **spec,
        },
    }


def of(kind: type, effects: list[Effect]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def phase(effects: list[Effect]) -> str:
    return str(of(UpdatePodStatus, effects)[-1].status["phase"])


def test_pod_without_devices_lives_and_ends() -> None:
    made = kubelet()
    (sandbox,) = of(RunSandbox, made.pod_assigned(pod(), 1))
    assert sandbox.handler == ""
    (start,) = of(StartContainer, made.sandbox_started("u1", 2))
    assert start.options == AllocateResponse()
    started = made.container_started("u1", "main", "containerd://x", 3)
    assert [e.reason for e in of(PostEvent, started)] == ["Pulled", "Created", "Started"]
    assert phase(started) == "Running"
    ended = made.container_exited("u1", "main", 0, "", "", 4)
    assert phase(ended) == "Running"  # final only when nothing is left
    assert of(KillPod, ended) == [KillPod("u1", 0.0)]
    assert phase(made.pod_stopped("u1", 5)) == "Succeeded"


def test_devices_are_asked_for_before_the_sandbox_and_reach_the_container() -> None:
    made = kubelet()
    effects = made.pod_assigned(pod(cards=2, runtimeClassName="ascend"), 1)
    (call,) = of(CallPlugin, effects)
    assert len(set(call.ask.device_ids)) == 2
    assert of(RunSandbox, effects) == []
    answer = AllocateResponse(envs={"K": "V"})
    (sandbox,) = of(RunSandbox, made.call_answered(call.call, answer, 2))
    assert sandbox.handler == "ascend"
    (start,) = of(StartContainer, made.sandbox_started("u1", 3))
    assert start.options == answer


def test_admission_is_serial_and_goes_on_after_an_error() -> None:
    made = kubelet()
    (first,) = of(CallPlugin, made.pod_assigned(pod("u1", cards=8), 1))
    assert of(CallPlugin, made.pod_assigned(pod("u2", cards=8), 1)) == []
    effects = made.call_answered(first.call, CallFailed("rpc error: code = Unknown desc = x"), 2)
    (rejected,) = of(UpdatePodStatus, effects)
    assert rejected.status["reason"] == "UnexpectedAdmissionError"
    assert rejected.status["message"] == (
        "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = x, "
        "which is unexpected"
    )
    assert len(of(CallPlugin, effects)) == 1


def test_too_many_devices_reject_the_pod_for_good() -> None:
    effects = kubelet().pod_assigned(pod(cards=9), 1)
    (status,) = of(UpdatePodStatus, effects)
    assert "Requested: 9, Available: 8" in status.status["message"]
    assert of(PostEvent, effects)[0].reason == "UnexpectedAdmissionError"


def test_unknown_resource_admits_without_a_device() -> None:
    assert of(RunSandbox, kubelet(cards=None).pod_assigned(pod(cards=1), 1))


def test_init_containers_run_one_by_one_before_the_rest() -> None:
    made = kubelet()
    made.pod_assigned(pod(inits=2), 1)
    order = []
    effects = made.sandbox_started("u1", 2)
    for _ in range(3):
        (start,) = of(StartContainer, effects)
        order.append(start.container)
        made.container_started("u1", start.container, "x", 3)
        effects = made.container_exited("u1", start.container, 0, "", "", 4)
    assert order == ["init0", "init1", "main"]
    assert phase(made.pod_stopped("u1", 5)) == "Succeeded"


def test_failed_init_container_fails_the_pod() -> None:
    made = kubelet()
    made.pod_assigned(pod(inits=1), 1)
    made.sandbox_started("u1", 2)
    made.container_started("u1", "init0", "x", 3)
    made.container_exited("u1", "init0", 7, "", "", 4)
    assert phase(made.pod_stopped("u1", 5)) == "Failed"


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        ("Never", 0, "Succeeded"),
        ("Never", 3, "Failed"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 3, "restart"),
        ("Always", 0, "restart"),
        ("Always", 3, "restart"),
    ],
)
def test_restart_policy(policy: str, code: int, expected: str) -> None:
    made = kubelet()
    made.pod_assigned(pod(restartPolicy=policy), 1)
    made.sandbox_started("u1", 2)
    made.container_started("u1", "main", "x", 3)
    effects = made.container_exited("u1", "main", code, "", "", 4)
    timers = of(SetTimer, effects)
    if expected == "restart":
        assert timers == [SetTimer("container:u1:main", 14)]
        (start,) = of(StartContainer, made.timer("container:u1:main", 14))
        assert start.attempt == 1
    else:
        assert timers == []
        assert phase(made.pod_stopped("u1", 5)) == expected


def test_back_off_doubles_up_to_five_minutes() -> None:
    made = kubelet()
    made.pod_assigned(pod(restartPolicy="Always"), 0)
    made.sandbox_started("u1", 0)
    delays = []
    for _ in range(8):
        made.container_started("u1", "main", "x", 0)
        (timer,) = of(SetTimer, made.container_exited("u1", "main", 1, "", "", 0))
        delays.append(timer.at_s)
        made.timer(timer.key, timer.at_s)
    assert delays == [10, 20, 40, 80, 160, 300, 300, 300]


def test_failed_sandbox_is_an_event_and_tried_again() -> None:
    made = kubelet()
    made.pod_assigned(pod(), 1)
    effects = made.sandbox_failed("u1", "no runtime", 2)
    assert of(PostEvent, effects)[0].reason == "FailedCreatePodSandBox"
    (timer,) = of(SetTimer, effects)
    assert of(RunSandbox, made.timer(timer.key, timer.at_s))


def test_vanished_runtime_class_fails_the_sandbox() -> None:
    effects = kubelet().pod_assigned(pod(runtimeClassName="gone"), 1)
    assert "not found" in of(PostEvent, effects)[0].message


def test_image_that_cannot_be_pulled_waits_whatever_the_policy() -> None:
    made = kubelet()
    made.pod_assigned(pod(), 1)
    made.sandbox_started("u1", 2)
    effects = made.container_failed("u1", "main", "ErrImagePull", "no such image", 3)
    waiting = of(UpdatePodStatus, effects)[-1].status["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "ErrImagePull", "message": "no such image"}
    (timer,) = of(SetTimer, effects)
    assert of(StartContainer, made.timer(timer.key, timer.at_s))


def test_deleting_kills_first_and_removes_the_object_last() -> None:
    made = kubelet()
    made.pod_assigned(pod(), 1)
    made.sandbox_started("u1", 2)
    made.container_started("u1", "main", "x", 3)
    marked = pod()
    marked["metadata"] |= {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 7}
    effects = made.pod_deleting(marked, 4)
    assert of(KillPod, effects) == [KillPod("u1", 7.0)]
    assert of(DeletePod, effects) == []
    assert made.pod_deleting(marked, 5) == []
    made.container_exited("u1", "main", 137, "", "", 6)
    assert of(DeletePod, made.pod_stopped("u1", 7)) == [DeletePod("default", "p-u1", "u1")]


def test_forced_deletion_kills_at_once() -> None:
    made = kubelet()
    made.pod_assigned(pod(), 1)
    made.sandbox_started("u1", 2)
    assert of(KillPod, made.pod_gone("u1", 3)) == [KillPod("u1", 30.0)]


def test_held_pod_stays_down_until_released() -> None:
    made = kubelet()
    made.pod_assigned(pod(restartPolicy="Always"), 1)
    made.sandbox_started("u1", 2)
    made.container_started("u1", "main", "x", 3)
    assert of(KillContainer, made.hold_pod("u1", 4))
    made.container_exited("u1", "main", 137, "", "", 5)
    assert made.timer("container:u1:main", 15) == []
    assert of(StartContainer, made.release_pod("u1", 20))


def test_restart_cuts_connections_clears_sockets_and_keeps_pods() -> None:
    made = kubelet(cards=None)
    client = register(made, 8)
    (call,) = of(CallPlugin, made.pod_assigned(pod(cards=1), 1))
    written = of(WriteCheckpoint, made.call_answered(call.call, AllocateResponse(), 1))
    made.sandbox_started("u1", 2)
    made.container_started("u1", "main", "x", 3)
    stopped = made.restart(10)
    assert of(Disconnect, stopped) == [Disconnect(client)]
    assert of(Boot, stopped) == [Boot()]
    effects = made.start(10, encode(written[-1].content, written[-1].version))
    assert of(OpenSockets, effects) == [OpenSockets("all_files")]
    assert of(KillPod, effects) == []
    assert of(UpdateNodeStatus, effects)[0].status["capacity"][R] == "0"
    register(made, 8, now=11)
    (call,) = of(CallPlugin, made.pod_assigned(pod("u2", cards=7), 12))
    held = made.devices.holdings("u1")["main"][R].ids
    assert not set(call.ask.device_ids) & set(held)


def test_node_is_written_when_something_changed_and_every_five_minutes() -> None:
    made = kubelet(cards=None)
    assert of(UpdateNodeStatus, made.timer("node", 10)) == []
    register(made, 8, now=11)
    (update,) = of(UpdateNodeStatus, made.timer("node", 20))
    assert update.status["allocatable"][R] == "8"
    assert of(UpdateNodeStatus, made.timer("node", 30)) == []
    assert of(UpdateNodeStatus, made.timer("node", 321))


def test_bad_registration_is_refused() -> None:
    request = RegisterRequest(version="v1", endpoint="x", resource_name=R)
    with pytest.raises(RegistrationError):
        kubelet().register(request, 0)


@given(st.lists(st.sampled_from(["exit0", "exit1", "delete", "gone", "restart", "timer"])))
def test_no_order_of_reports_makes_it_crash(reports: list[str]) -> None:
    made = kubelet()
    for effect in made.pod_assigned(pod(cards=1, restartPolicy="OnFailure"), 0):
        if isinstance(effect, CallPlugin):
            made.call_answered(effect.call, AllocateResponse(), 0)
    made.sandbox_started("u1", 0)
    made.container_started("u1", "main", "x", 0)
    for now, report in enumerate(reports, 1):
        if report.startswith("exit"):
            made.container_exited("u1", "main", int(report[-1]), "", "", now)
        elif report == "delete":
            marked = pod()
            marked["metadata"] |= {"deletionTimestamp": "t"}
            made.pod_deleting(marked, now)
        elif report == "gone":
            made.pod_gone("u1", now)
            made.pod_stopped("u1", now)
        elif report == "restart":
            made.restart(now)
            made.start(now, None)
        else:
            for key in ("node", "lease", "sandbox:u1", "container:u1:main"):
                made.timer(key, now)
