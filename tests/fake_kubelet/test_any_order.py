"""Random plugins, pods, restarts and losses, on random versions: what must hold whatever happens.

`FAKE_KUBELET_STEPS` sets how many steps are taken in all; 10 000 unless it says more.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from fake_kubelet import checkpoint
from fake_kubelet.personality import versions
from tests.fake_kubelet.world import Plugin, R, World

STEPS_A_RUN = 50
STEPS = int(os.environ.get("FAKE_KUBELET_STEPS", "10000"))
IDS = [f"d{n}" for n in range(6)]
# Versions in which two pods may get one device when a checkpoint is lost; here none is.
SWITCHES = {"reuse_nil_map_panic": "off", "disconnect_nil_panic": "off"}


class AnyOrder(RuleBasedStateMachine):
    world: World
    names: list[str]

    @initialize(version=st.sampled_from(versions()), seed=st.integers(0, 1000))
    def begin(self, version: str, seed: int) -> None:
        self.world = World(version, seed=seed, switches=SWITCHES)
        self.plugins: list[Plugin] = []
        self.names = []
        self.made = 0

    @rule(endpoint=st.sampled_from(["a.sock", "b.sock"]), preferred=st.booleans())
    def plugin_starts(self, endpoint: str, preferred: bool) -> None:
        plugin = self.world.serve(*IDS, endpoint=endpoint)
        plugin.options = type(plugin.options)(preferred_allocation=preferred)
        plugin.register()
        self.plugins.append(plugin)
        self.world.run(0)

    @precondition(lambda self: self.plugins)
    @rule(data=st.data())
    def plugin_stops(self, data: st.DataObject) -> None:
        plugin = data.draw(st.sampled_from(self.plugins))
        self.plugins.remove(plugin)
        plugin.stop()
        self.world.run(0)

    @precondition(lambda self: self.plugins)
    @rule(data=st.data())
    def plugin_registers_again(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.plugins)).register()
        self.world.run(0)

    @precondition(lambda self: self.plugins)
    @rule(data=st.data(), healthy=st.sets(st.sampled_from(IDS)))
    def devices_change(self, data: st.DataObject, healthy: set[str]) -> None:
        plugin = data.draw(st.sampled_from(self.plugins))
        plugin.devices = {one: "Healthy" if one in healthy else "Unhealthy" for one in IDS}
        plugin.send()
        self.world.run(0)

    @rule(
        count=st.integers(0, 4),
        init=st.integers(0, 2),
        policy=st.sampled_from(["Never", "OnFailure", "Always"]),
        lasts=st.sampled_from([None, "1", "30"]),
    )
    def pod_comes(self, count: int, init: int, policy: str, lasts: str | None) -> None:
        self.made += 1
        name = f"p{self.made}"
        limits = {"resources": {"limits": {R: str(count)}}}
        inits = [{"name": "init", "resources": {"limits": {R: str(init)}}}] if init else []
        self.names.append(name)
        self.world.pod(
            name,
            containers=[{"name": "main", **limits}],
            initContainers=inits,
            restartPolicy=policy,
            annotations={} if lasts is None else {"fake-kubelet/exit-after": lasts},
        )

    @precondition(lambda self: self.names)
    @rule(data=st.data(), is_forced=st.booleans())
    def pod_goes(self, data: st.DataObject, is_forced: bool) -> None:
        name = data.draw(st.sampled_from(self.names))
        self.names.remove(name)
        if ("default", name) not in self.world.api.pods:
            return
        if is_forced:
            self.world.api.force_delete("default", name)
        else:
            self.world.api.delete("default", name, 1)
        self.world.run(0)

    @rule(keep=st.booleans(), delay=st.sampled_from(["0", "5"]))
    def kubelet_restarts(self, keep: bool, delay: str) -> None:
        self.world.do("kubelet-restart", f"keep_containers={str(keep).lower()}", f"delay={delay}")
        self.world.run(float(delay))

    @rule()
    def machine_reboots(self) -> None:
        self.world.do("node-reboot")

    @rule(method=st.sampled_from(["Allocate", "GetPreferredAllocation", "Register"]))
    def calls_fail_once(self, method: str) -> None:
        self.world.do("rpc", f"method={method}", "action=fail", "last=1")

    @rule(method=st.sampled_from(["Allocate", "GetPreferredAllocation"]))
    def a_call_is_held(self, method: str) -> None:
        self.world.do("rpc", f"method={method}", "action=hold", "last=1")

    @rule()
    def calls_are_released(self) -> None:
        self.world.do("rpc-release")

    @rule(seconds=st.sampled_from([0.0, 1.0, 15.0, 45.0, 320.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.run(seconds)

    @invariant()
    def no_device_is_in_two_live_containers(self) -> None:
        if hasattr(self, "world"):
            assert self.world.kubelet.held_twice() == {}

    @invariant()
    def allocatable_never_exceeds_capacity(self) -> None:
        if not hasattr(self, "world"):
            return
        status = self.world.api.node["status"]
        for name, count in status["allocatable"].items():
            if "/" in name:
                assert 0 <= int(count) <= int(status["capacity"][name])

    @invariant()
    def the_checkpoint_is_what_is_in_memory(self) -> None:
        """Every written entry is held, or its pod is over; what is held was written."""
        if not hasattr(self, "world") or self.world.checkpoint is None:
            return
        kubelet = self.world.kubelet
        content = checkpoint.decode(self.world.checkpoint, ("v1", "v2"))
        written = {
            (entry.pod_uid, entry.container, entry.resource): set(entry.all_ids)
            for entry in content.entries
        }
        if not kubelet.is_up:
            return
        for uid in kubelet.devices.holders():
            for container, resources in kubelet.devices.holdings(uid).items():
                for resource, holding in resources.items():
                    assert written[uid, container, resource] == set(holding.ids)

    @invariant()
    def nothing_grows_without_bound(self) -> None:
        if not hasattr(self, "world"):
            return
        kubelet = self.world.kubelet
        assert len(kubelet.pods) <= self.made + 1
        assert len(self.world.calls) <= 1 + len(kubelet.pods)
        assert set(kubelet.devices.known_devices()) <= {R}

    def teardown(self) -> None:
        """Let go of everything: every registration and every pod gets its answer."""
        if not hasattr(self, "world"):
            return
        self.world.do("rpc-release")
        self.world.run(120)
        assert self.world.kubelet.queued == 0
        for plugin in self.world.served:
            assert len(plugin.register_answers) >= plugin.options_calls - plugin.stream_calls


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=max(1, STEPS // STEPS_A_RUN),
    stateful_step_count=STEPS_A_RUN,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
