"""Every verb about cards: what it does, the same in virtual time and live, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import scenarios
from simulator.errors import ScenarioError
from simulator.hardware.faults import names, parse
from simulator.scenario import verbs
from simulator.scenario.loader import load, loads
from simulator.scenario.profiles import find_profile
from simulator.scenario.runner import Runner
from simulator.scenario.schema import STEPS
from simulator.sim import SimTestbed

DRIVER = sorted((Path(scenarios.__path__[0]) / "driver").glob("*.yaml"))


def bed(text: str = "name: x") -> SimTestbed:
    return SimTestbed(loads(text, "x"))


def do(testbed: SimTestbed, verb: str, *words: str) -> None:
    assert verbs.act(testbed, verbs.parse(verb, list(words))) is not False


@pytest.mark.parametrize("path", DRIVER, ids=lambda path: path.stem)
def test_driver_scenarios_pass_in_virtual_time(path: Path) -> None:
    scenario = load(path)
    report = Runner(scenario, SimTestbed(scenario)).run()
    assert report.passed, report.results


def test_verbs_change_what_they_say() -> None:
    testbed = bed("name: x\nnode: {profile: atlas-900-a3-superpod}")
    hardware = testbed.hardware
    chip = hardware.chip(2, 1)
    do(testbed, "fault", "card=2", "chip=1", "code=hbm-memory-001")
    assert list(chip.faults) == [0x80E01801]
    do(testbed, "fault", "card=2", "chip=1", "code=8C2FA009", "once=true")
    assert list(chip.faults) == [0x80E01801]
    do(testbed, "recover", "card=2", "chip=1", "code=0x80E01801")
    assert chip.health == 0
    do(testbed, "drop", "card=2", "answers=-8008")
    assert hardware.chip(2, 0).alive == chip.alive == -8008
    do(testbed, "return", "card=2")
    do(testbed, "pin", "card=2", "chip=1", "field=temp_c", "value=99")
    do(testbed, "pin", "card=2", "chip=1", "field=utilization_pct.2", "value=77")
    assert chip.pins == {"temp_c": 99, "utilization_pct.2": 77}
    do(testbed, "unpin", "card=2", "chip=1", "field=temp_c")
    assert chip.pins == {"utilization_pct.2": 77}
    do(testbed, "hold", "card=2", "container=a", "answers=-8020")
    assert (chip.holder, hardware.busy_code) == ("a", -8020)
    do(testbed, "release", "card=2")
    assert chip.holder == ""
    do(testbed, "link", "card=2", "chip=1", "state=down", "network_health=3")
    assert chip.settings["link_up"] is False
    assert chip.settings["network_health"] == 3
    do(testbed, "process-start", "card=2", "chip=1", "pid=7")
    assert chip.load.is_busy
    do(testbed, "process-end", "card=2", "chip=1", "pid=7")
    assert not chip.load.is_busy
    do(testbed, "switch-fault", "code=[0x00f1fef5,155912,cpu,na]")
    assert len(hardware.switch_faults) == 1
    do(testbed, "switch-recover", "code=0x00f1fef5,155912,cpu,na")
    assert not hardware.switch_faults


def test_slice_verbs() -> None:
    testbed = bed()
    chip = testbed.hardware.chip(1)
    do(testbed, "vnpu-create", "card=1", "template=vir05_1c_16g")
    do(testbed, "vnpu-use", "card=1", "vdev=116", "container=c", "leaks=true")
    do(testbed, "vnpu-leave", "card=1", "container=c")
    with pytest.raises(ScenarioError, match="-8013"):
        do(testbed, "vnpu-destroy", "card=1", "vdev=116")
    do(testbed, "vnpu-use", "card=1", "vdev=116", "container=c")
    do(testbed, "driver-restart")
    assert [one.vdev_id for one in chip.slices] == [116]
    do(testbed, "vnpu-destroy", "card=1", "vdev=116")
    assert len(chip.slices) == 0


def test_scripted_calls_reach_the_plugin_and_end() -> None:
    testbed = bed()
    testbed.wait(5)
    do(testbed, "call-script", "function=dcmi_get_card_list", "answers=-8012", "last=3")
    dcmi = testbed.host.dcmi()
    dcmi.init()
    assert [dcmi.card_list()[0] for _ in range(5)] == [-8012, -8012, -8012, 0, 0]
    do(testbed, "call-clear")
    assert testbed.hardware.rules == ()
    do(testbed, "call-log", "on=true")
    assert testbed.hardware.logs_calls


def test_readings_follow_the_pod_that_computes() -> None:
    testbed = bed(
        "name: x\n"
        "steps:\n"
        "  - pod-create: {name: p, command: [sleep, '60']}\n"
        "  - expect-pod: {name: p, phase: Running, within: 30}\n"
    )
    scenario = testbed._scenario
    assert Runner(scenario, testbed).run().passed
    now = testbed.clock.now()
    busy = [chip for chip in testbed.hardware if chip.load.is_busy]
    assert len(busy) == 1
    assert [process.name for process in busy[0].processes.values()] == ["main"]
    assert testbed.hardware.readings(busy[0], now + 30).aicore_pct > 80  # while it goes on
    testbed.wait(120)
    assert not any(chip.load.is_busy for chip in testbed.hardware)


@pytest.mark.parametrize(
    ("verb", "words", "said"),
    [
        ("fault", ["card=99", "code=80E24E00"], "card 99 does not exist"),
        ("fault", ["card=0", "chip=1", "code=80E24E00"], "does not exist"),
        ("fault", ["card=0", "code=hbm-memory-01"], "nearest is hbm-memory-001"),
        ("drop", ["card=0", "answers=-1"], "driver code '-1' is unknown"),
        ("pin", ["card=0", "field=colour", "value=1"], "field 'colour' is unknown"),
        ("pin", ["card=0", "field=serial", "value=1"], "field 'serial' is unknown"),
        ("pin", ["card=0", "field=utilization_pct", "value=1"], "is unknown"),
        ("pin", ["card=0", "field=utilization_pct.16", "value=1"], "has 16 elements"),
        ("vnpu-create", ["card=0", "template=vir99"], "-8001"),
        ("vnpu-use", ["card=0", "vdev=5", "container=c"], "vNPU 5 does not exist"),
        ("call-script", ["function=dcmi_fly"], "none of the 327 functions"),
        ("call-script", ["chance=0"], "more than 0"),
        ("switch-fault", ["code=1,2,3,4"], "not one of the 30"),
        ("switch-fault", ["code=0x00f1fef5,155912,cpu,na"], "has no switch"),
        ("link", ["card=0", "state=sideways"], "allowed: up, down"),
    ],
)
def test_wrong_words_are_refused_in_one_line(verb: str, words: list[str], said: str) -> None:
    testbed = bed()
    with pytest.raises((ScenarioError, LookupError, ValueError)) as refusal:
        do(testbed, verb, *words)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_every_fault_can_be_named() -> None:
    assert len(names()) == 797
    assert all(parse(name) == kind for name, kind in names().items())
    assert names()["hbm-memory-001"].code == 0x80E01801


def test_profile_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("base: atlas-800t-a2-910b3\ncards: 3\nboard_id: 0x33\nchip_name: 910B2\n")
    profile = find_profile(str(path))
    assert (profile.name, profile.cards, profile.board_id) == ("mine", 3, 0x33)
    testbed = bed(f"name: x\nnode: {{profile: {path}}}")
    assert len(testbed.hardware) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base: atlas-800t-a2-910b\n", "1:7: base 'atlas-800t-a2-910b' is unknown"),
        ("cards: 3\n", "needs `base`"),
        ("base: atlas-800t-a2-910b3\ncards: 65\n", "2:8: cards is 65, wanted 1 to 64"),
        ("base: atlas-800t-a2-910b3\ncards: many\n", "2:8: `cards` is 'many', wanted a whole"),
        ("base: atlas-800t-a2-910b3\n\nfamly: 910B\n", "3:1: unknown field"),
        ("base: atlas-800t-a2-910b3\nfamily: 910C\n", "2:9: family is '910C', wanted one of"),
    ],
)
def test_wrong_profile_files_name_line_and_column(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as refusal:
        find_profile(str(path))
    assert said in str(refusal.value)


def test_every_verb_about_cards_is_known_to_inject() -> None:
    left = set(STEPS) - set(verbs.INJECTABLE)
    assert left == {
        "wait", "pod-create", "pod-delete", "expect-node", "expect-pod", "expect-card", "gates",
    }  # fmt: skip
