"""The upstream end-to-end cases of device plugins, in virtual time, by version."""

from __future__ import annotations

import pytest

from fake_kubelet.messages import AllocateResponse
from fake_kubelet.personality import versions
from tests.fake_kubelet.world import R, World

ALL = versions()
FROM_1_25 = [v for v in ALL if int(v[2:]) >= 25]
KEEPS_RUNNING = [v for v in ALL if int(v[2:]) not in (25, 26)]  # there #118559 ends it
every_version = pytest.mark.parametrize("version", ALL)
from_1_25 = pytest.mark.parametrize("version", FROM_1_25)


def container(name: str, count: int = 1, **more: str) -> dict[str, object]:
    return {"name": name, "resources": {"limits": {R: str(count)}}, **more}


@every_version
def test_dp1_plain_allocation(version: str) -> None:
    world = World(version)
    world.plugin()
    assert world.counts() == ("2", "2")
    world.pod("user")
    world.pod("plugin", None)
    assert world.env("user") == {"IDS": next(iter(world.ids("user")))}
    for api in ("v1", "v1alpha1"):
        listed = world.listed(api)
        assert set(listed) == {"user", "plugin"}
        assert listed["user"] == {"main": sorted(world.ids("user"))}


@every_version
def test_dp3_a_restarted_container_keeps_its_device(version: str) -> None:
    world = World(version)
    world.plugin()
    world.pod("one", restartPolicy="Always")
    first = world.ids("one")
    world.runtime.exit("uid-1", "main", 0)
    world.run(11)
    assert world.ids("one") == first
    assert world.env("one") == {"IDS": next(iter(first))}
    world.pod("two")
    assert not world.ids("two") & first
    assert world.listed()["one"] == {"main": sorted(first)}


CDI = "vendor.example/device=d1"


@every_version
def test_dp2_cdi_devices(version: str) -> None:
    minor = int(version[2:])
    is_there, is_annotated = minor >= 29, 29 <= minor <= 31
    world = World(version)
    plugin = world.plugin()
    plugin.answer = lambda ask: AllocateResponse(cdi_devices=(CDI,), envs={"A": "1"})  # type: ignore[method-assign]
    uid = world.pod("p", 1)
    given = world.runtime.options[uid, "main"]
    assert given.envs == {"A": "1"}
    assert given.cdi_devices == ((CDI,) if is_there else ())
    key = f"cdi.k8s.io/devicemanager_{uid}-main"
    assert given.annotations == ({key: CDI} if is_annotated else {})


@pytest.mark.parametrize("version", KEEPS_RUNNING)
def test_dp4_a_kubelet_restart_leaves_the_pod_running(version: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.pod("user")
    first = world.ids("user")
    world.do("kubelet-restart")
    assert plugin.streams == []
    plugin.register()
    assert world.counts() == ("2", "2")
    assert world.phase("user") == "Running"
    status = world.api.pods["default", "user"]["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0
    assert world.listed()["user"] == {"main": sorted(first)}


@pytest.mark.parametrize("version", KEEPS_RUNNING)
def test_dp5_container_restart_then_kubelet_restart(version: str) -> None:
    world = World(version, seed=4)
    plugin = world.plugin()
    world.pod("user", restartPolicy="Always")
    first = world.ids("user")
    world.runtime.exit("uid-1", "main", 1)
    world.run(11)
    world.do("kubelet-restart")
    plugin.register()
    world.run(310)
    assert world.ids("user") == first


@pytest.mark.parametrize("version", [v for v in ALL if int(v[2:]) >= 32])
def test_dp6_a_completed_pod_stays_completed(version: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.pod("job", annotations={"fake-kubelet/exit-after": "1"})
    world.run(2)
    plugin.stop()
    assert world.counts() == ("2", "0")
    world.do("kubelet-restart")
    world.run(60)
    assert world.phase("job") == "Succeeded"


@every_version
def test_dp7_a_plugin_restart_changes_no_allocation(version: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.pod("user")
    before = world.listed()["user"]
    plugin.stop()
    world.run(1)
    world.plugin()
    assert world.counts() == ("2", "2")
    assert world.listed()["user"] == before


@pytest.mark.parametrize("version", KEEPS_RUNNING)
def test_dp8_kubelet_restart_then_plugin_restart(version: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.pod("user")
    world.do("kubelet-restart")
    plugin.register()
    world.run(1)
    plugin.stop()
    world.plugin()
    assert world.phase("user") == "Running"
    assert world.counts() == ("2", "2")


@every_version
def test_dp9_an_orphan_is_removed_and_holds_nothing(version: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.pod("user")
    world.do("kubelet-stop")
    world.do("pod-force-delete", "pod=user")
    world.do("kubelet-start")
    plugin.register()
    world.run(31)
    assert "user" not in world.listed()
    world.pod("all", 2)
    assert len(world.ids("all")) == 2


@pytest.mark.parametrize("version", [v for v in ALL if int(v[2:]) >= 30])
def test_dp10_a_sidecar_shares_with_the_init_container(version: str) -> None:
    world = World(version)
    world.plugin()
    world.pod(
        "user",
        initContainers=[container("init"), container("side", restartPolicy="Always")],
        containers=[container("main")],
    )
    world.runtime.exit("uid-1", "init", 0)
    world.run(1)
    assert world.ids("user", "init") == world.ids("user", "side")
    assert not world.ids("user", "side") & world.ids("user")
    assert set(world.listed()["user"]) == {"side", "main"}


@pytest.mark.parametrize("version", [v for v in ALL if int(v[2:]) >= 28])
def test_dp11_after_a_reboot_with_the_plugin_blocked_the_pod_fails(version: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.pod("user", restartPolicy="Always")
    world.do("kubelet-stop")
    world.do("register-block")
    world.do("kubelet-restart", "keep_containers=false")
    plugin.register()
    world.run(5)
    assert world.phase("user") == "Failed"
    assert world.api.pods["default", "user"]["status"]["reason"] == "UnexpectedAdmissionError"
    assert ("user" in world.listed()) is (int(version[2:]) < 34)


@from_1_25
def test_df1_failing_options_refuse_the_registration(version: str) -> None:
    world = World(version)
    plugin = world.serve()
    plugin.options_error = "rpc error: code = Unknown desc = GetDevicePluginOptions failed"
    plugin.register()
    assert world.counts() is None
    (answer,) = plugin.register_answers
    assert answer is not None
    assert answer.startswith("failed to get device plugin options: ")
    assert "GetDevicePluginOptions failed" in answer
    assert (plugin.options_calls, plugin.stream_calls) == (1, 0)


@every_version
def test_df2_health_flips(version: str) -> None:
    world = World(version)
    plugin = world.plugin("Dev-1")
    assert world.counts() == ("1", "1")
    plugin.send(Dev_1="Unhealthy")
    assert world.counts() == ("1", "0")
    plugin.send(Dev_1="Healthy")
    assert world.counts() == ("1", "1")


@every_version
def test_df3_unhealthy_while_in_use(version: str) -> None:
    world = World(version)
    plugin = world.plugin("Dev-1")
    world.pod("user")
    plugin.send(Dev_1="Unhealthy")
    assert world.counts() == ("1", "0")
    world.run(60)
    assert world.phase("user") == "Running"
    world.api.delete("default", "user", 0)
    assert world.counts() == ("1", "0")


@every_version
def test_df4_counts_follow(version: str) -> None:
    world = World(version)
    plugin = world.plugin("Dev-1", "Dev-2", "Dev-3", "Dev-4")
    seen = [world.counts()]
    for change in (
        {"Dev_1": "Unhealthy"},
        {"Dev_1": "Healthy"},
        {"Dev_1": "Unhealthy", "Dev_2": "Unhealthy"},
        {"Dev_1": "Healthy"},
        {"Dev_2": "Healthy"},
    ):
        plugin.send(**change)
        seen.append(world.counts())
    assert seen == [("4", n) for n in ("4", "3", "4", "2", "3", "4")]


@from_1_25
def test_df5_a_stream_that_fails_at_once_is_not_tried_again(version: str) -> None:
    world = World(version)
    plugin = world.serve()
    plugin.fails_stream = True
    plugin.register()
    world.run(0)
    assert plugin.register_answers == [None]
    assert world.counts() == ("0", "0")
    world.run(60)
    assert (plugin.options_calls, plugin.stream_calls) == (1, 1)
    assert world.counts() == ("0", "0")


@every_version
@pytest.mark.parametrize("dies", [False, True], ids=["df6-stream", "df7-plugin"])
def test_a_stream_that_ends_zeroes_allocatable_then_capacity(version: str, dies: bool) -> None:
    world = World(version)
    plugin = world.plugin()
    assert world.counts() == ("2", "2")
    if dies:
        plugin.stop()
    else:
        plugin.end_stream(plugin.streams[0])
    assert world.counts() == ("2", "0")
    world.run(280)
    assert world.counts() == ("2", "0")
    world.run(20)
    assert world.counts() == ("0", "0")
    assert plugin.stream_calls == 1


@pytest.mark.parametrize("is_started", [True, False], ids=["ds1-running", "ds2-held"])
@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_ds_health_is_in_the_pods_status(version: str, is_started: bool) -> None:
    world = World(version)
    plugin = world.plugin("Dev-1")
    uid = world.pod("user")
    if not is_started:
        world.wiring.apply(
            world.kubelet.container_failed(uid, "main", "ErrImagePull", "no image", 0)
        )

    def health() -> list[dict[str, object]]:
        status = world.api.pods["default", "user"]["status"]["containerStatuses"][0]
        return list(status["allocatedResourcesStatus"])

    shown = {"resourceID": "Dev-1", "health": "Healthy"}
    assert health() == [{"name": R, "resources": [shown]}]
    plugin.send(Dev_1="Unhealthy")
    world.run(1)
    assert health() == [{"name": R, "resources": [{**shown, "health": "Unhealthy"}]}]


@pytest.mark.parametrize("version", [v for v in ALL if int(v[2:]) >= 28])
def test_dmt1_reboot_with_app_pods_before_the_plugin(version: str) -> None:
    world = World(version)
    world.plugin()
    world.pod("one", restartPolicy="Always")
    world.pod("two", restartPolicy="Always")
    world.do("node-reboot", "order_seed=7")
    assert world.counts() == ("0", "0")
    assert {world.phase("one"), world.phase("two")} == {"Failed"}
    assert any(event.reason == "Rebooted" for event in world.api.events)


def test_prt1_throttling() -> None:
    from fake_kubelet.podresources import CallRefused

    world = World("1.29")
    refused = []
    for _ in range(200):
        try:
            world.listed()
        except CallRefused as error:
            refused.append((error.code, str(error)))
    assert len(refused) == 190
    assert set(refused) == {("ResourceExhausted", "rejected by rate limit")}


@pytest.mark.parametrize("version", [v for v in ALL if int(v[2:]) >= 34])
def test_prt2_get_list_and_allocatable_agree_also_after_a_restart(version: str) -> None:
    world = World(version)
    plugin = world.plugin()
    world.pod("user")
    before = world.wiring.get_pod_resources("user", "default")
    allocatable = world.wiring.allocatable_resources()
    assert sorted(i for d in allocatable.devices for i in d.device_ids) == ["Dev-1", "Dev-2"]
    world.do("kubelet-restart")
    assert list(world.wiring.allocatable_resources().devices) == []
    plugin.register()
    world.run(1)
    assert world.wiring.get_pod_resources("user", "default") == before
    assert len(world.wiring.allocatable_resources().devices) == 2


@pytest.mark.parametrize(("version", "is_listed"), [("1.33", True), ("1.34", False)])
def test_prt3_finished_pods(version: str, is_listed: bool) -> None:
    world = World(version)
    world.plugin()
    world.pod("job", annotations={"fake-kubelet/exit-after": "1"})
    world.run(2)
    assert ("job" in world.listed("v1")) is is_listed
    assert "job" in world.listed("v1alpha1")


def test_prt4_metrics() -> None:
    world = World("1.34")
    world.plugin()
    world.listed("v1")
    world.listed("v1alpha1")
    world.wiring.allocatable_resources()
    text = world.kubelet.metrics.text()
    for version in ("v1", "v1alpha1"):
        name = "kubelet_pod_resources_endpoint_requests_list"
        assert f'{name}{{server_api_version="{version}"}} 1' in text
    assert f'kubelet_device_plugin_registration_total{{resource_name="{R}"}} 1' in text
