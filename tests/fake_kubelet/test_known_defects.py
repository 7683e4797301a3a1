"""Known defects of kubelets, by `kubernetes/kubernetes` number.

A version that has one shows it, one that has not does not."""

from __future__ import annotations

from typing import Any

import pytest

from fake_kubelet.messages import AllocateResponse, PluginOptions
from tests.fake_kubelet.world import R, World


def rebooted(version: str) -> World:
    """A pod that held a device meets a kubelet whose plugin is blocked."""
    world = World(version)
    plugin = world.plugin()
    world.pod("app", restartPolicy="Always")
    world.do("register-block")
    world.do("node-reboot")
    plugin.register()
    world.run(5)
    return world


@pytest.mark.parametrize("version", ["1.19", "1.24"])
def test_109595_a_reboot_starts_a_pod_on_devices_nobody_reported(version: str) -> None:
    world = rebooted(version)
    assert world.phase("app") == "Running"
    assert set(world.env("app")["IDS"].split(",")) == world.ids("app")


@pytest.mark.parametrize("version", ["1.28", "1.32", "1.36"])
def test_109595_fixed_and_125579_the_pod_fails_for_good(version: str) -> None:
    world = rebooted(version)
    assert world.phase("app") == "Failed"
    assert f"no healthy devices present; cannot allocate unhealthy devices {R}" in (
        world.message("app")
    )
    world.do("rpc-release")
    world.run(600)
    assert world.phase("app") == "Failed"


@pytest.mark.parametrize(("version", "is_killed"), [("1.26", True), ("1.28", False)])
def test_118559_a_kubelet_restart_kills_running_pods(version: str, is_killed: bool) -> None:
    world = World(version)
    world.plugin()
    world.pod("app")
    world.do("kubelet-restart")
    world.run(40)
    assert (world.phase("app") == "Failed") is is_killed


def test_118559_residual_a_runtime_that_is_down_hides_the_containers() -> None:
    world = World("1.36")
    world.plugin()
    world.pod("app")
    world.do("kubelet-restart", "runtime_down=true")
    world.run(40)
    assert world.phase("app") == "Failed"


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.24", f"requested number of devices unavailable for {R}. Requested: 1, Available: 0"),
        ("1.28", f"no healthy devices present; cannot allocate unhealthy devices {R}"),
    ],
)
def test_119248_a_pod_in_the_window_of_a_plugin_restart_fails(version: str, text: str) -> None:
    world = World(version)
    plugin = world.plugin()
    plugin.stop()
    world.run(1)
    world.pod("new")
    assert text in world.message("new")
    world.run(7)
    world.plugin()
    world.pod("later")
    world.run(1)
    assert world.phase("later") == "Running"


@pytest.mark.parametrize(("version", "phase"), [("1.23", "Failed"), ("1.32", "Succeeded")])
def test_117955_a_completed_pod_is_admitted_again(version: str, phase: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.pod("job", annotations={"fake-kubelet/exit-after": "1"})
    world.run(2)
    world.pod("others", 2)
    world.do("register-block")
    world.do("kubelet-restart")
    plugin.register()
    world.run(40)
    assert world.phase("job") == phase


@pytest.mark.parametrize(("switches", "streams"), [({}, 4), ({"duplicate_register": "no_op"}, 1)])
def test_124716_each_duplicate_register_leaks_a_stream(
    switches: dict[str, str], streams: int
) -> None:
    world = World("1.36", switches=switches)
    plugin = world.plugin()
    for _ in range(3):
        plugin.register()
        world.run(0)
    assert len(plugin.streams) == streams
    assert world.kubelet.links.open_streams() == {R: streams}


@pytest.mark.parametrize(
    ("version", "allocatable"), [("1.24", "2"), ("1.28", "0"), ("1.36", "0"), ("1.37", "2")]
)
def test_121994_the_end_of_an_old_plugin_disconnects_the_new_one(
    version: str, allocatable: str
) -> None:
    world = World(version)
    old = world.plugin(endpoint="old.sock")
    world.plugin(endpoint="new.sock")
    old.stop()
    assert world.counts() == ("2", allocatable)


@pytest.mark.parametrize("version", ["1.19", "1.28", "1.37"])
def test_125501_a_broken_stream_is_never_tried_again(version: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.do("stream-cut", f"resource={R}")
    assert world.counts() == ("2", "0")
    world.run(250)
    assert plugin.stream_calls == 1
    plugin.register()
    assert world.counts() == ("2", "2")


@pytest.mark.parametrize("version", ["1.28", "1.36"])
def test_128167_a_deleted_socket_goes_unnoticed(version: str) -> None:
    world = World(version)
    world.plugin()
    world.do("kubelet-socket-remove")
    late = world.serve("Other-1", resource="example.com/other", endpoint="o.sock")
    late.register()
    assert late.register_answers == ["no such file"]
    assert world.counts() == ("2", "2")
    world.do("kubelet-restart")
    late.register()
    assert world.counts("example.com/other") == ("1", "1")


@pytest.mark.parametrize(("rule", "count"), [("always", "0"), ("if_empty", "3")])
def test_73948_a_restart_zeroes_what_was_set_by_hand(rule: str, count: str) -> None:
    world = World("1.28", switches={"reset_extended_resources": rule})
    world.api.node["status"]["capacity"]["example.com/dongle"] = "3"
    world.do("kubelet-restart")
    assert world.counts("example.com/dongle") == (count, count)


@pytest.mark.parametrize(("version", "is_read"), [("1.28", True), ("1.31", False), ("1.20", False)])
def test_102880_an_old_checkpoint(version: str, is_read: bool) -> None:
    world = World(version)
    world.plugin()
    world.pod("app")
    world.do("kubelet-stop")
    world.do("checkpoint-corrupt", "how=v1")
    world.do("kubelet-start")
    assert bool(world.kubelet.devices.allocated(R)) is is_read
    assert ("checkpoint.not-believed" in [kind for kind, _ in world.records]) is not is_read


@pytest.mark.parametrize("how", ["bad_sum", "truncated", "missing", "empty"])
@pytest.mark.parametrize("version", ["1.19", "1.28", "1.36"])
def test_116125_a_lost_checkpoint_runs_pods_without_devices(version: str, how: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.pod("app", restartPolicy="Always")
    world.do("kubelet-stop")
    world.do("checkpoint-corrupt", f"how={how}")
    world.do("node-reboot")
    world.run(1)
    assert world.phase("app") == "Running"
    assert world.env("app") == {}
    plugin.register()
    world.run(1)
    world.runtime.exit("uid-1", "main", 1)
    world.run(400)
    assert set(world.env("app")["IDS"].split(",")) == world.ids("app")


def test_75880_a_device_in_two_running_pods_is_seen() -> None:
    world = World("1.28")
    plugin = world.plugin("Dev-1")
    world.pod("first", restartPolicy="Always")
    world.do("kubelet-stop")
    world.do("checkpoint-corrupt", "how=missing")
    world.do("kubelet-start")
    plugin.register()
    world.run(1)
    world.pod("second")
    assert world.ids("second") == {"Dev-1"}
    assert world.env("first") == world.env("second")
    # The first is known to hold it again once its container is started anew.
    assert world.kubelet.held_twice() == {}


@pytest.mark.parametrize(("version", "panics"), [("1.28", True), ("1.30", False)])
def test_the_end_of_a_forgotten_stream_panics(version: str, panics: bool) -> None:
    world = World(version)
    plugin = world.plugin()
    plugin.register()  # its first stream is forgotten now
    world.run(0)
    first, second = plugin.streams
    plugin.end_stream(second)
    world.run(320)  # the resource is dropped
    world.do("rpc", "method=GetDevicePluginOptions", "action=hold")
    plugin.register()
    plugin.end_stream(first)
    assert world.kubelet.is_up is not panics
    assert ("kubelet.panic" in [kind for kind, _ in world.records]) is panics
    world.run(11)
    assert world.kubelet.is_up  # started again by the service manager


@pytest.mark.parametrize(("version", "panics"), [("1.28", True), ("1.30", False)])
def test_119560_a_rebuild_during_an_allocation_panics(version: str, panics: bool) -> None:
    world = World(version)
    other = "example.com/other"
    world.plugin("o-1", resource=other, endpoint="o.sock")
    plugin = world.serve("d1", "d2", "d3")
    plugin.options = PluginOptions(preferred_allocation=True)
    plugin.register()
    world.run(1)
    world.pod("gone", resource=other)
    world.do("rpc", "method=GetPreferredAllocation", "action=hold")
    world.pod("app", 1)
    world.api.delete("default", "gone", 0)
    world.run(1)
    world.listed()  # frees what it held, and rebuilds
    world.do("rpc-release")
    world.run(1)
    assert ("kubelet.panic" in [kind for kind, _ in world.records]) is panics
    assert (world.phase("app") == "Running") is not panics


@pytest.mark.parametrize(
    ("version", "is_final_early"), [("1.22", True), ("1.23", False), ("1.36", False)]
)
def test_104560_a_finished_pod_still_holds_its_devices(version: str, is_final_early: bool) -> None:
    world = World(version)
    world.plugin("Dev-1")
    world.pod("old")
    world.wiring.apply(world.kubelet.container_exited("uid-1", "main", 0, "", "", 1.0))
    assert (world.phase("old") == "Succeeded") is is_final_early
    world.pod("new")
    assert world.phase("new") == "Failed" or not is_final_early


def test_106884_a_force_deleted_pod_holds_until_its_containers_are_gone() -> None:
    world = World("1.28")
    world.plugin("Dev-1")
    world.pod("old")
    world.do("pod-hold-terminating", "pod=old", "seconds=30")
    world.do("pod-force-delete", "pod=old")
    world.pod("second")
    assert "Requested: 1, Available: 0" in world.message("second")
    world.run(31)
    world.pod("third")
    assert world.phase("third") == "Running"


@pytest.mark.parametrize("version", ["1.19", "1.28", "1.36"])
def test_117435_a_plugin_that_hangs_in_allocate_stops_the_node(version: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.do("rpc", "method=Allocate", "action=hold")
    world.pod("device")
    world.pod("plain", None)
    world.run(3600)
    assert world.phase("device") == world.phase("plain") == "Pending"
    assert world.kubelet.queued == 2
    assert plugin.asked == []
    world.do("rpc-release")
    world.run(1)
    assert world.phase("device") == world.phase("plain") == "Running"


@pytest.mark.parametrize(("version", "waits"), [("1.19", True), ("1.28", False)])
def test_96779_quantity_zero_with_pre_start(version: str, waits: bool) -> None:
    world = World(version)
    plugin = world.serve()
    plugin.options = PluginOptions(pre_start_required=True)
    plugin.register()
    world.run(1)
    world.pod("zero", 0)
    world.run(1)
    state = world.api.pods["default", "zero"]["status"]["containerStatuses"][0]["state"]
    assert ("waiting" in state) is waits
    if waits:
        assert "no devices found allocated in local cache" in state["waiting"]["message"]


@pytest.mark.parametrize("version", ["1.19", "1.28", "1.36"])
def test_71312_surplus_of_init_containers_stays_with_the_pod(version: str) -> None:
    world = World(version)
    world.plugin(*(f"d{n}" for n in range(8)))

    def wants(name: str, count: int) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {R: str(count)}}}

    world.pod("app", initContainers=[wants("init", 5)], containers=[wants("main", 2)])
    world.runtime.exit("uid-1", "init", 0)
    world.run(1)
    assert len(world.kubelet.devices.allocated(R)) == 5
    assert len(world.listed()["app"]["main"]) == 2
    world.pod("more", 4)
    assert "Requested: 4, Available: 3" in world.message("more")


@pytest.mark.parametrize("version", ["1.19", "1.28", "1.36"])
def test_92396_a_resource_once_registered_stays_at_zero(version: str) -> None:
    world = World(version)
    first = world.plugin()
    first.stop()
    world.run(320)
    world.plugin("n-1", resource="example.com/renamed", endpoint="n.sock")
    assert world.counts() == ("0", "0")
    assert world.counts("example.com/renamed") == ("1", "1")


def test_130145_picks_leak_when_an_answer_is_empty() -> None:
    world = World("1.28")
    plugin = world.plugin()
    world.do("rpc", "method=GetPreferredAllocation", "action=fail")
    plugin.options = PluginOptions(preferred_allocation=True)
    world.do("kubelet-restart")
    plugin.register()
    world.run(1)
    world.pod("app")
    assert "device plugin GetPreferredAllocation rpc failed with err: " in world.message("app")


def test_62773_every_list_is_a_whole_picture() -> None:
    world = World("1.28")
    plugin = world.plugin()
    plugin.stop()
    world.run(5)
    again = world.plugin()
    assert world.counts() == ("2", "2")
    again.devices.pop("Dev-2")
    again.send()
    assert world.counts() == ("1", "1")


def test_137534_a_pick_under_way_is_given_to_another_pod() -> None:
    """A rebuild of what is taken, while an Allocate is under way, forgets its picks."""
    world = World("1.28")
    world.plugin("Dev-1")
    world.do("rpc", "method=Allocate", "action=hold", "last=1")
    world.pod("first")
    assert world.kubelet.devices.leaked() == {R: frozenset({"Dev-1"})}
    world.do("rpc-release")
    world.run(1)
    assert world.kubelet.devices.leaked() == {}
    assert world.phase("first") == "Running"


@pytest.mark.parametrize("action", ["fail", "delay", "drop", "hold"])
@pytest.mark.parametrize(
    "method",
    ["Register", "GetDevicePluginOptions", "ListAndWatch", "Allocate", "PreStartContainer"],
)
def test_every_call_can_be_made_to_go_wrong_once(method: str, action: str) -> None:
    world = World("1.28")
    plugin = world.serve()
    plugin.options = PluginOptions(pre_start_required=True)
    words = [f"method={method}", f"action={action}", "seconds=5", "last=1"]
    world.do("rpc", *words)
    plugin.register()
    world.run(1)
    if action in ("fail", "drop", "hold") and method in (
        "Register", "GetDevicePluginOptions", "ListAndWatch",
    ):  # fmt: skip
        world.do("rpc-release")
        world.run(1)
        plugin.register()
    world.run(6)
    assert world.counts() == ("2", "2")
    world.pod("app")
    world.run(31)
    world.do("rpc-release")
    world.run(20)
    assert world.kubelet.queued == 0 or (method, action) == ("Allocate", "drop")
    if (method, action) == ("Allocate", "fail"):
        assert "code = Unavailable desc = made to fail" in world.message("app")
    elif (method, action) != ("Allocate", "drop"):
        assert world.phase("app") == "Running"
    assert isinstance(world.kubelet.devices.run_options("uid-1", "main"), AllocateResponse)
