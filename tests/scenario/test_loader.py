"""Scenario files: accepted as written, or refused with place, value and choices."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kubelet.actions import RestartKubelet
from simulator.errors import ScenarioError
from simulator.scenario.loader import load, loads
from simulator.scenario.schema import (
    STEPS,
    ExpectNode,
    InjectFault,
    RunGates,
    Wait,
)

GOOD = """\
name: demo
node:
  cards: 4
  faults: [{card: 3, code: 80E24E00}]
steps:
  - wait: 5
  - fault: {card: 1, code: "0x80E24E00"}
  - kubelet-restart:
  - expect-node: {allocatable: 3, within: 10}
  - gates: {fails: host, cause: card-unhealthy}
  - gates:
"""


def test_a_file_becomes_values() -> None:
    scenario = loads(GOOD, "demo.yaml")
    assert scenario.node.cards == 4
    assert scenario.node.faults[0].code == "80E24E00"
    assert scenario.steps == (
        Wait(seconds=5.0),
        InjectFault(card=1, code="0x80E24E00"),
        RestartKubelet(),
        ExpectNode(allocatable=3, within=10.0),
        RunGates(fails="host", cause="card-unhealthy"),
        RunGates(),
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["f.yaml:1:1", "empty"]),
        ("- a", ["f.yaml:1:1", "mapping"]),
        ("about: x", ["f.yaml:1:1", "needs `name`"]),
        ("name: x\nnoed: {}", ["f.yaml:2:1", "'noed'", "Did you mean 'node'?"]),
        ("name: x\nnode: {cards: many}", ["f.yaml:2:15", "'many'", "whole number"]),
        ("name: x\nnode: {cards: -1}", ["f.yaml:2:15", "0 or more"]),
        ("name: x\nnode: {library: gone}", ["'gone'", "missing, group-writable"]),
        ("name: x\nplugin: {deployed: maybe}", ["f.yaml:2:20", "true or false"]),
        ("name: x\nsteps: [{drip: {card: 1}}]", ["f.yaml:2:10", "Did you mean 'drop'?"]),
        ("name: x\nsteps: [{wait: 1, drop: 2}]", ["exactly one verb, got 2"]),
        ("name: x\nsteps: [{fault: 3}]", ["`fault` needs a mapping of card, code"]),
        ("name: x\nsteps: [{wait: .inf}]", ["f.yaml:2:16"]),
        ("name: x\nname: y", ["f.yaml:2:1", "twice"]),
        ("name: [", ["f.yaml:", "not valid YAML"]),
        ("name: x\nsteps: 3", ["`steps` must be a list"]),
    ],
)
def test_bad_text_is_refused_with_place_and_choices(text: str, parts: list[str]) -> None:
    with pytest.raises(ScenarioError) as error:
        loads(text, "f.yaml")
    for part in parts:
        assert part in str(error.value)


def test_missing_binary_and_huge_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"name: \xff")
    with pytest.raises(ScenarioError, match="not UTF-8"):
        load(tmp_path / "bytes.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ScenarioError, match="at most"):
        load(tmp_path / "huge.yaml")


@given(
    st.one_of(
        st.text(max_size=60),
        st.recursive(
            st.sampled_from(["name", "steps", "node", "wait", "1", "x", *STEPS]),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
                st.tuples(inner, inner).map(lambda pair: f"{{{pair[0]}: {pair[1]}}}"),
            ),
            max_leaves=8,
        ),
    )
)
def test_no_text_makes_it_crash(text: str) -> None:
    assert outcome(text).startswith(("Scenario", "f.yaml"))


def outcome(text: str) -> str:
    try:
        return type(loads(text, "f.yaml")).__name__
    except ScenarioError as error:
        return str(error)
