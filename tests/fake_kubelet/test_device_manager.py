"""The device manager against the table of kubelet behaviour, and under any order of events."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kubelet.checkpoint import encode
from fake_kubelet.device_manager import (
    AllocationError,
    DeviceManager,
    RegistrationError,
    check_registration,
    is_extended_resource,
)
from fake_kubelet.messages import (
    Allocate,
    AllocateResponse,
    Answer,
    CallFailed,
    Device,
    DeviceSpec,
    PluginOptions,
    RegisterRequest,
)
from fake_kubelet.personality import personality

R = "huawei.com/Ascend910"


def devices(healthy: int, sick: int = 0) -> list[Device]:
    return [
        Device(id=f"Ascend910-{n}", health="Healthy" if n < healthy else "Unhealthy")
        for n in range(healthy + sick)
    ]


def manager(
    version: str = "1.28", *, alive: set[str] | None = None, seed: int = 1
) -> DeviceManager:
    made: list[DeviceManager] = []

    def active() -> set[str]:
        return set(made[0].holders()) if alive is None else alive

    made.append(
        DeviceManager(
            personality(version), grace_s=300, rng=random.Random(seed), active_pods=active
        )
    )
    return made[0]


def connect(made: DeviceManager, client: int, resource: str = R) -> None:
    made.dialling(resource, "x.sock", client)
    made.connected(resource, "x.sock", client, PluginOptions())


def pick(
    made: DeviceManager,
    uid: str,
    count: int,
    resource: str = R,
    answer: Answer = AllocateResponse(),  # noqa: B008 - a plain value
) -> tuple[str, ...] | None:
    """Allocate for a container; the ids the plugin was asked for, None when it was not asked."""
    steps = made.allocate(uid, "main", {resource: count}, is_reusable=False)
    asked = None
    try:
        _, ask = next(steps)
        while True:
            assert isinstance(ask, Allocate)
            asked = ask.device_ids
            _, ask = steps.send(answer)
    except StopIteration:
        return asked


def ready(healthy: int = 8, sick: int = 0) -> DeviceManager:
    made = manager()
    connect(made, 1, R)
    made.reported(R, devices(healthy, sick))
    return made


def counts(made: DeviceManager, now: float = 0) -> tuple[int | None, int | None]:
    seen = made.look(now)
    return seen.capacity.get(R), seen.allocatable.get(R)


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("huawei.com/Ascend910", True),
        ("huawei.com/Ascend910-2c.1cpu.16g", True),
        ("Huawei.com/x", False),
        ("Ascend910", False),
        ("npu.kubernetes.io/x", False),
        ("requests.huawei.com/x", False),
        ("huawei.com/" + "x" * 63, True),
        ("huawei.com/" + "x" * 64, False),
        ("huawei.com/-x", False),
        ("huawei.com/x/y", False),
    ],
)
def test_resource_name_rule(name: str, is_valid: bool) -> None:
    assert is_extended_resource(name) is is_valid


def test_registration_is_refused_in_the_kubelets_words() -> None:
    def refused(version: str, name: str) -> str:
        with pytest.raises(RegistrationError) as error:
            check_registration(
                RegisterRequest(version=version, endpoint="x.sock", resource_name=name)
            )
        return str(error.value)

    assert refused("v1alpha", "bad") == (
        'requested API version "v1alpha" is not supported by kubelet. '
        'Supported version is ["v1beta1"]'
    )
    assert refused("v1beta1", "bad") == 'the ResourceName "bad" is invalid'


def test_registered_without_a_list_shows_nothing() -> None:
    made = manager()
    connect(made, 1, R)
    assert counts(made) == (None, None)


def test_list_health_and_empty_list() -> None:
    made = ready(7, 1)
    assert counts(made) == (8, 7)
    made.reported(R, [])
    assert counts(made) == (0, 0)


def test_stopped_plugin_keeps_capacity_for_five_minutes() -> None:
    made = ready()
    assert made.stream_ended(R, "x.sock", 1, 100) == 1
    assert counts(made, 100) == (8, 0)
    assert counts(made, 400) == (8, 0)
    assert made.look(400.1).removed == (R,)
    assert counts(made, 401) == (None, None)


def test_plugin_back_within_grace_shows_its_devices_again() -> None:
    made = ready()
    made.stream_ended(R, "x.sock", 1, 100)
    connect(made, 2, R)
    made.reported(R, devices(8))
    assert counts(made, 1000) == (8, 8)


def test_late_end_of_an_old_stream_disconnects_the_new_client() -> None:
    """kubernetes/kubernetes#121994, as 1.28 has it."""
    made = ready()
    connect(made, 2, R)
    assert made.stream_ended(R, "x.sock", 1, 5) == 2
    assert counts(made, 5) == (8, 0)


def test_late_end_of_an_old_stream_is_harmless_where_streams_are_told_apart() -> None:
    made = manager("1.24")
    connect(made, 1)
    made.reported(R, devices(8))
    connect(made, 2)
    assert made.stream_ended(R, "x.sock", 1, 5) == 1
    assert counts(made, 5) == (8, 8)


def test_restart_keeps_allocations_and_shows_zero_until_the_plugin_returns() -> None:
    before = ready()
    picked = pick(before, "u1", 2)
    assert picked is not None
    made = manager()
    assert made.recover(encode(before.checkpoint()), 10) is None
    assert counts(made, 10) == (0, 0)
    with pytest.raises(AllocationError, match="no healthy devices present"):
        pick(made, "u2", 1)
    connect(made, 2)
    made.reported(R, devices(8))
    assert counts(made, 11) == (8, 8)
    assert made.allocated(R) == set(picked)


def test_refusals_come_in_the_kubelets_order_and_words() -> None:
    assert pick(manager(), "u", 1) is None  # unknown: nothing happens
    with pytest.raises(AllocationError, match="no healthy devices present"):
        pick(ready(0, 8), "u", 1)
    with pytest.raises(AllocationError, match=r"Requested: 9, Available: 8"):
        pick(ready(), "u", 9)
    made = ready()
    pick(made, "u", 8)
    with pytest.raises(AllocationError, match=r"changed request .* from 8 to 7"):
        pick(made, "u", 7)
    assert pick(made, "u", 8) is None
    made.reported(R, devices(7, 1))
    with pytest.raises(AllocationError, match="previously allocated devices are no longer healthy"):
        pick(made, "u", 8)


def test_failed_allocate_frees_its_ids_and_finished_pods_are_collected() -> None:
    alive: set[str] = {"u1", "u2", "u3"}
    made = manager(alive=alive)
    connect(made, 1)
    made.reported(R, devices(8))
    with pytest.raises(AllocationError, match="boom"):
        pick(made, "u1", 8, answer=CallFailed("boom"))
    pick(made, "u2", 8)
    with pytest.raises(AllocationError, match="Available: 0"):
        pick(made, "u3", 1)
    alive.discard("u2")
    assert pick(made, "u3", 1) is not None


def test_empty_answer_leaks_its_picks() -> None:
    made = ready()
    failed = CallFailed("no containers return in allocation response", is_answer=True)
    with pytest.raises(AllocationError, match="no containers return"):
        pick(made, "u1", 3, answer=failed)
    assert len(made.leaked()[R]) == 3
    with pytest.raises(AllocationError, match="Available: 5"):
        pick(made, "u2", 6)


def test_answers_are_merged_and_the_first_wins() -> None:
    made = ready()
    other = "huawei.com/other"
    connect(made, 2, other)
    made.reported(other, [Device(id="o-0", health="Healthy")])
    node = DeviceSpec(host_path="/dev/a", container_path="/dev/a")
    for resource, value in ((R, "first"), (other, "second")):
        pick(made, "u", 1, resource, AllocateResponse(envs={"K": value}, devices=(node,)))
    merged = made.run_options("u", "main")
    assert merged.envs == {"K": "first"}
    assert merged.devices == (node,)


@given(st.integers(min_value=1, max_value=8), st.integers())
def test_same_seed_same_choice(count: int, seed: int) -> None:
    def chosen() -> object:
        made = manager(seed=seed)
        connect(made, 1)
        made.reported(R, devices(8))
        return pick(made, "u", count)

    assert chosen() == chosen()
