"""Every shipped scenario passes in virtual time, and equal runs give equal bytes."""

from pathlib import Path

import pytest

import scenarios
from simulator.scenario.loader import load, loads
from simulator.scenario.runner import Report, Runner
from simulator.sim import SimTestbed

SHIPPED = sorted(Path(scenarios.__path__[0]).rglob("*.yaml"))


def run(text: str) -> tuple[Report, SimTestbed]:
    scenario = loads(text, "test.yaml")
    testbed = SimTestbed(scenario)
    return Runner(scenario, testbed).run(), testbed


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenario_passes(path: Path) -> None:
    scenario = load(path)
    report = Runner(scenario, SimTestbed(scenario)).run()
    assert report.results, "a scenario without expectations proves nothing"
    assert [result for result in report.results if not result.passed] == []


def test_every_gate_fails_in_some_shipped_scenario() -> None:
    broken = [path for path in SHIPPED if path.parent.name == "broken"]
    assert len(broken) == 20


@pytest.mark.parametrize("name", ["single-card", "plugin-missed-kubelet-restart"])
def test_ten_runs_with_one_seed_give_the_same_bytes(name: str) -> None:
    (path,) = (path for path in SHIPPED if path.stem == name)
    journals = set()
    for _ in range(10):
        scenario = load(path)
        testbed = SimTestbed(scenario, seed=7)
        Runner(scenario, testbed).run()
        journals.add(testbed.journal.text())
    assert len(journals) == 1


def test_another_seed_chooses_other_cards() -> None:
    scenario = load(next(path for path in SHIPPED if path.stem == "single-card"))
    journals = set()
    for seed in range(6):
        testbed = SimTestbed(scenario, seed=seed)
        Runner(scenario, testbed).run()
        journals.add(testbed.journal.text())
    assert len(journals) > 1


def test_card_drops_and_returns_within_a_poll() -> None:
    report, _ = run("""
name: x
steps:
  - expect-node: {allocatable: 8, within: 10}
  - drop: 3
  - expect-node: {capacity: 8, allocatable: 7, within: 7}
  - return: 3
  - expect-node: {allocatable: 8, within: 7}
""")
    assert report.passed


def test_stopped_plugin_loses_its_capacity_after_the_grace_period() -> None:
    report, _ = run("""
name: x
steps:
  - expect-node: {allocatable: 8, within: 10}
  - plugin-stop:
  - expect-node: {capacity: 8, allocatable: 0, within: 5}
  - wait: 290
  - expect-node: {capacity: 8, allocatable: 0, within: 0}
  - expect-node: {capacity: 0, allocatable: 0, within: 20}
  - plugin-start:
  - expect-node: {capacity: 8, allocatable: 8, within: 20}
""")
    assert report.passed, report.results


def test_kubelet_restart_is_noticed_and_running_pods_stay() -> None:
    report, testbed = run("""
name: x
steps:
  - expect-node: {allocatable: 8, within: 10}
  - kubelet-restart:
  - expect-node: {capacity: 0, allocatable: 0, within: 3}
  - expect-node: {capacity: 8, allocatable: 8, within: 10}
""")
    assert report.passed, report.results
    kinds = [entry.kind for entry in testbed.journal.entries]
    assert kinds.count("plugin.register") == 2
    assert kinds.count("container.started") == 1


def test_failed_expectation_fails_the_run_and_says_what_was_seen() -> None:
    report, _ = run("name: x\nsteps: [{expect-node: {allocatable: 9, within: 20}}]")
    assert not report.passed
    assert report.results[0].got == "allocatable 8"


def test_all_cards_can_be_used_one_by_one_and_come_back() -> None:
    steps = "".join(f"  - pod-create: {{name: p{n}, cards: '2'}}\n" for n in range(6))
    waits = "".join(
        f"  - expect-pod: {{name: p{n}, phase: Succeeded, within: 60}}\n" for n in range(6)
    )
    report, testbed = run(f"name: x\nsteps:\n{steps}{waits}")
    assert report.passed, report.results
    for n in range(6):
        log = testbed.probe().pod_log(f"p{n}")
        assert len(set(log.splitlines()[0].split()[1:])) == 2


def test_deleted_pod_disappears() -> None:
    report, _ = run("""
name: x
steps:
  - pod-create: {name: p, runtime_class: "", cards: null, image: busybox, command: [sh, -c, exit 3]}
  - expect-pod: {name: p, phase: Failed, within: 20}
  - pod-delete: p
  - expect-pod: {name: p, phase: absent, within: 20}
""")
    assert report.passed, report.results


def test_unlisted_image_is_an_image_pull_error() -> None:
    report, _ = run("""
name: x
steps:
  - pod-create: {name: p, image: "example.com/nothing:1"}
  - expect-pod: {name: p, message: "not found", within: 20}
""")
    assert report.passed, report.results
