"""Topology Manager: hints, policies, and what a plugin is asked to give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kubelet.messages import Answer, Ask, CallFailed, PluginOptions, Preferred
from fake_kubelet.topology import POLICIES, Hint, decide, resource_hints
from tests.fake_kubelet.world import Plugin, R, World

NODES = (0, 1)
OTHER = "example.com/nic"


def split(world: World, ids: str, resource: str = R, endpoint: str = "x.sock") -> Plugin:
    """A plugin whose devices sit on the node that their name begins with."""
    plugin = world.serve(*ids.split(), resource=resource, endpoint=endpoint)
    plugin.numa = {one: (int(one[0]),) for one in ids.split()}
    plugin.register()
    world.run(1)
    return plugin


def container(name: str, **counts: int) -> dict[str, object]:
    names = {"r": R, "nic": OTHER}
    return {
        "name": name,
        "resources": {"limits": {names[k]: str(count) for k, count in counts.items()}},
    }


def test_hints_name_every_set_of_nodes_that_can_hold_the_request() -> None:
    at = {"a": (0,), "b": (0,), "c": (1,)}
    both = frozenset({0, 1})

    def hints(request: int, available: set[str]) -> set[tuple[frozenset[int] | None, bool]]:
        found = resource_hints(
            nodes=NODES, device_nodes=at, available=available, reusable=(), request=request
        )
        return {(hint.nodes, hint.is_preferred) for hint in found}

    assert hints(1, {"a", "b", "c"}) == {
        (frozenset({0}), True),
        (frozenset({1}), True),
        (both, False),
    }
    assert hints(2, {"a", "b", "c"}) == {(frozenset({0}), True), (both, False)}
    # What is busy still decides what would be preferred.
    assert hints(2, {"a", "c"}) == {(both, False)}
    assert hints(3, {"a", "b", "c"}) == {(both, True)}
    assert hints(4, {"a", "b", "c"}) == set()


@given(
    st.dictionaries(
        st.integers(0, 20).map(str),
        st.frozensets(st.integers(0, 3), min_size=1, max_size=2),
        min_size=1,
        max_size=8,
    ),
    st.data(),
)
def test_every_hint_can_be_kept(at: dict[str, frozenset[int]], data: st.DataObject) -> None:
    available = data.draw(st.sets(st.sampled_from(sorted(at))))
    request = data.draw(st.integers(1, len(at)))
    hints = resource_hints(
        nodes=range(4), device_nodes=at, available=available, reusable=(), request=request
    )
    for hint in hints:
        assert hint.nodes is not None
        assert sum(1 for one in available if hint.nodes & at[one]) >= request
    assert bool(hints) == (len(available) >= request)
    preferred = {len(hint.nodes or ()) for hint in hints if hint.is_preferred}
    assert len(preferred) <= 1
    assert not preferred or min(len(hint.nodes or ()) for hint in hints) == min(preferred)


masks = st.frozensets(st.integers(0, 1), min_size=1)
one_hint = st.builds(Hint, masks, st.booleans())
columns = st.dictionaries(
    st.sampled_from("abc"), st.none() | st.lists(one_hint, max_size=3), max_size=3
)


@given(columns)
def test_policies_grow_stricter(hints: dict[str, list[Hint] | None]) -> None:
    admitted = {policy: decide(policy, hints, NODES)[1] for policy in POLICIES}
    assert admitted["none"]
    assert admitted["best-effort"]
    assert admitted["restricted"] or not admitted["single-numa-node"]
    nodes, is_admitted = decide("single-numa-node", hints, NODES)
    assert not is_admitted or nodes is None or len(nodes) == 1


@pytest.mark.parametrize(
    ("policy", "count", "is_admitted", "nodes"),
    [
        ("none", 3, True, None),
        ("best-effort", 2, True, 1),
        ("best-effort", 3, True, 2),
        ("restricted", 2, True, 1),
        ("restricted", 3, True, 2),
        ("single-numa-node", 2, True, 1),
        ("single-numa-node", 3, False, None),
    ],
)
def test_a_policy_decides_over_a_pod(
    policy: str, count: int, is_admitted: bool, nodes: int | None
) -> None:
    world = World(topology_policy=policy)
    split(world, "0a 0b 1a 1b")
    world.pod("p", count)
    assert world.phase("p") == ("Running" if is_admitted else "Failed")
    if not is_admitted:
        status = world.api.pods["default", "p"]["status"]
        assert status["reason"] == "TopologyAffinityError"
        assert status["message"].endswith("Resources cannot be allocated with Topology locality")
    if nodes is not None:
        assert len({one[0] for one in world.ids("p")}) == nodes


@pytest.mark.parametrize(
    ("policy", "is_admitted"),
    [("best-effort", True), ("restricted", False), ("single-numa-node", False)],
)
def test_a_request_that_busy_devices_could_have_met_on_one_node(
    policy: str, is_admitted: bool
) -> None:
    world = World(topology_policy=policy)
    plugin = split(world, "0a 0b 1a 1b")
    plugin.send(**dict.fromkeys(("0b", "1a", "1b"), "Unhealthy"))
    world.pod("first", 1)
    plugin.send(**{"1a": "Healthy"})
    world.pod("second", 1)
    plugin.send(**{"0b": "Healthy", "1b": "Healthy"})
    assert world.ids("first") | world.ids("second") == {"0a", "1a"}
    world.pod("third", 2)
    assert (world.phase("third") == "Running") is is_admitted


@given(st.integers(0, 200), st.integers(1, 2), st.integers(1, 2))
def test_two_resources_of_a_container_share_a_node(seed: int, cards: int, nics: int) -> None:
    world = World(seed=seed, topology_policy="single-numa-node")
    split(world, "0a 0b 1a 1b")
    split(world, "0x 0y 1x 1y", OTHER, "y.sock")
    world.pod("p", containers=[container("main", r=cards, nic=nics)])
    assert world.phase("p") == "Running"
    used = {one[0] for one in world.ids("p")} | {one[0] for one in world.ids("p", resource=OTHER)}
    assert len(used) == 1


def test_a_kubelet_restart_keeps_an_aligned_container() -> None:
    world = World(topology_policy="single-numa-node")
    plugin = split(world, "0a 0b 1a 1b")
    world.pod("p", 2)
    held = world.ids("p")
    world.do("kubelet-restart")
    plugin.register()
    world.run(1)
    assert world.phase("p") == "Running"
    assert world.ids("p") == held


# --- GetPreferredAllocation


def prefers(world: World, answer: tuple[str, ...] | CallFailed, ids: str) -> Plugin:
    """A plugin with an answer of its own to what it would prefer."""
    plugin = world.serve(*ids.split())
    plugin.options = PluginOptions(preferred_allocation=True)
    usual = plugin.answer

    def ask(asked: Ask) -> Answer:
        if isinstance(asked, Preferred):
            plugin.asked.append(asked)
            return answer
        return usual(asked)

    plugin.answer = ask  # type: ignore[method-assign]
    plugin.register()
    world.run(1)
    return plugin


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (("b", "c"), {"b", "c"}),
        (("b", "nonsense"), {"b"}),
        ((), set()),
        (("a", "b", "c", "d"), set()),
    ],
)
def test_what_a_plugin_prefers_is_taken_where_it_is_free(
    answer: tuple[str, ...], wanted: set[str]
) -> None:
    world = World()
    plugin = prefers(world, answer, "a b c d")
    world.pod("p", 2)
    assert world.phase("p") == "Running"
    assert len(world.ids("p")) == 2
    assert wanted <= world.ids("p")
    (asked,) = (one for one in plugin.asked if isinstance(one, Preferred))
    assert set(asked.available) == {"a", "b", "c", "d"}
    assert (asked.must_include, asked.size) == ((), 2)


def test_devices_of_init_containers_must_be_included() -> None:
    world = World()
    plugin = prefers(world, ("d",), "a b c d")
    world.pod("p", initContainers=[container("init", r=1)], containers=[container("main", r=2)])
    world.run(60)
    first, second = (one for one in plugin.asked if isinstance(one, Preferred))
    assert first.must_include == ()
    assert second.must_include == ("d",)
    assert world.ids("p", "init") <= world.ids("p")


def test_a_plugin_that_cannot_say_refuses_the_pod() -> None:
    world = World()
    prefers(world, CallFailed("rpc error: code = Unknown desc = no idea"), "a b")
    world.pod("p", 1)
    assert world.phase("p") == "Failed"
    assert (
        "device plugin GetPreferredAllocation rpc failed with err: "
        "rpc error: code = Unknown desc = no idea" in world.message("p")
    )


def test_a_plugin_is_asked_only_when_it_wants_to_be() -> None:
    world = World()
    plugin = world.plugin("a", "b")
    world.pod("p", 1)
    assert not any(isinstance(one, Preferred) for one in plugin.asked)
