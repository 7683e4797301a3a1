"""The device manager against the table of kubelet behaviour, and under any order of events."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fake_kubelet.device_manager import (
    AllocationError,
    Device,
    DeviceManager,
    PluginOptions,
    RegisterRequest,
    RegistrationError,
    check_registration,
    is_extended_resource,
)
from fake_kubelet.effects import AllocateResponse, DeviceSpec

R = "huawei.com/Ascend910"


def devices(healthy: int, sick: int = 0) -> list[Device]:
    return [
        Device(id=f"Ascend910-{n}", health="Healthy" if n < healthy else "Unhealthy")
        for n in range(healthy + sick)
    ]


def manager() -> DeviceManager:
    return DeviceManager(grace_s=300, rng=random.Random(1))


def ready(healthy: int = 8, sick: int = 0) -> DeviceManager:
    made = manager()
    made.connected(R, 1, PluginOptions())
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
    made.connected(R, 1, PluginOptions())
    assert counts(made) == (None, None)


def test_list_health_and_empty_list() -> None:
    made = ready(7, 1)
    assert counts(made) == (8, 7)
    made.reported(R, [])
    assert counts(made) == (0, 0)


def test_stopped_plugin_keeps_capacity_for_five_minutes() -> None:
    made = ready()
    assert made.stream_ended(R, 100) == 1
    assert counts(made, 100) == (8, 0)
    assert counts(made, 400) == (8, 0)
    assert made.look(400.1).removed == (R,)
    assert counts(made, 401) == (None, None)


def test_plugin_back_within_grace_shows_its_devices_again() -> None:
    made = ready()
    made.stream_ended(R, 100)
    made.connected(R, 2, PluginOptions())
    made.reported(R, devices(8))
    assert counts(made, 1000) == (8, 8)


def test_late_end_of_an_old_stream_disconnects_the_new_client() -> None:
    """kubernetes/kubernetes#121994, as 1.28 has it."""
    made = ready()
    made.connected(R, 2, PluginOptions())
    assert made.stream_ended(R, 5) == 2
    assert counts(made, 5) == (8, 0)


def test_restart_keeps_allocations_and_shows_zero_until_the_plugin_returns() -> None:
    made = ready()
    picked = made.pick("u1", "main", R, 2)
    assert picked is not None
    assert made.restart(10) == [1]
    assert counts(made, 10) == (0, 0)
    with pytest.raises(AllocationError, match="no healthy devices present"):
        made.pick("u2", "main", R, 1)
    made.connected(R, 2, PluginOptions())
    made.reported(R, devices(8))
    assert counts(made, 11) == (8, 8)
    assert made.allocated(R) == set(picked[1])


def test_refusals_come_in_the_kubelets_order_and_words() -> None:
    with pytest.raises(AllocationError, match=f"cannot allocate unregistered device {R}"):
        manager().pick("u", "main", R, 1)
    with pytest.raises(AllocationError, match="no healthy devices present"):
        ready(0, 8).pick("u", "main", R, 1)
    with pytest.raises(AllocationError, match=r"Requested: 9, Available: 8"):
        ready().pick("u", "main", R, 9)
    made = ready()
    made.pick("u", "main", R, 8)
    with pytest.raises(AllocationError, match=r"changed request .* from 8 to 7"):
        made.pick("u", "main", R, 7)
    assert made.pick("u", "main", R, 8) is None
    made.reported(R, devices(7, 1))
    with pytest.raises(AllocationError, match="previously allocated devices are no longer healthy"):
        made.pick("u", "main", R, 8)


def test_failed_allocate_frees_its_ids_and_finished_pods_are_collected() -> None:
    made = ready()
    made.pick("u1", "main", R, 8)
    made.release("u1", "main", R)
    made.pick("u2", "main", R, 8)
    with pytest.raises(AllocationError, match="Available: 0"):
        made.pick("u3", "main", R, 1)
    made.collect(["u3"])
    assert made.pick("u3", "main", R, 1) is not None


def test_answers_are_merged_and_the_first_wins() -> None:
    made = ready()
    made.connected("huawei.com/other", 2, PluginOptions())
    made.reported("huawei.com/other", [Device(id="o-0", health="Healthy")])
    node = DeviceSpec(host_path="/dev/a", container_path="/dev/a")
    for resource, value in ((R, "first"), ("huawei.com/other", "second")):
        made.pick("u", "main", resource, 1)
        made.answered("u", "main", resource, AllocateResponse(envs={"K": value}, devices=(node,)))
    merged = made.run_options("u", "main")
    assert merged.envs == {"K": "first"}
    assert merged.devices == (node,)


@given(st.integers(min_value=1, max_value=8), st.integers())
def test_same_seed_same_choice(count: int, seed: int) -> None:
    def chosen() -> object:
        made = DeviceManager(grace_s=300, rng=random.Random(seed))
        made.connected(R, 1, PluginOptions())
        made.reported(R, devices(8))
        return made.pick("u", "main", R, count)

    assert chosen() == chosen()


class AnyOrder(RuleBasedStateMachine):
    """Random plugins, pods, restarts and losses."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = manager()
        self.now = 0.0
        self.client = 0
        self.alive: dict[str, tuple[str, ...]] = {}
        self.made = 0

    @rule()
    def plugin_connects(self) -> None:
        self.client += 1
        self.manager.connected(R, self.client, PluginOptions())

    @rule(healthy=st.integers(0, 8), sick=st.integers(0, 4))
    def plugin_reports(self, healthy: int, sick: int) -> None:
        if self.client:
            self.manager.reported(R, devices(healthy, sick))

    @rule()
    def stream_ends(self) -> None:
        self.manager.stream_ended(R, self.now)

    @rule(seconds=st.floats(0, 400))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def kubelet_restarts(self) -> None:
        self.manager.restart(self.now)

    @rule(count=st.integers(0, 9))
    def pod_comes(self, count: int) -> None:
        self.made += 1
        uid = f"u{self.made}"
        self.manager.collect([*self.alive, uid])
        try:
            picked = self.manager.pick(uid, "main", R, count)
        except AllocationError:
            return
        self.alive[uid] = picked[1] if picked else ()
        assert len(self.alive[uid]) == count

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def pod_ends(self, data: st.DataObject) -> None:
        del self.alive[data.draw(st.sampled_from(sorted(self.alive)))]

    @invariant()
    def no_device_has_two_holders(self) -> None:
        held = [device for ids in self.alive.values() for device in ids]
        assert len(held) == len(set(held))

    @invariant()
    def allocatable_never_exceeds_capacity(self) -> None:
        seen = self.manager.look(self.now)
        for name, allocatable in seen.allocatable.items():
            assert 0 <= allocatable <= seen.capacity[name]


TestAnyOrder = AnyOrder.TestCase
