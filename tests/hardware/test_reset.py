"""Reset: rings, stages, refusals, and what comes after the boot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.hardware.faults import catalogue
from simulator.hardware.model import (
    BUSY,
    IN_BAND,
    NOTICED,
    OUT_OF_BAND,
    RECOVERED,
    RESET_FAILED,
    RESET_FINISHED,
    Hardware,
    Process,
)
from simulator.hardware.profile import load_profile, names

RESETTABLE = catalogue()[0x80E24E00]
FOR_REPAIR = next(k for k in catalogue().values() if k.level == "SeparateNPU")
RINGS = {
    "atlas-800t-a2-910b3": 8,
    "atlas-200t-a2-box16": 16,
    "atlas-800-9000-910a": 4,
    "atlas-900-a3-superpod": 16,
    "atlas-300i-a2": 1,
    "atlas-300i-duo-310p3": 2,
    "atlas-950-server": 1,
}


def node(profile: str = "atlas-800t-a2-910b3") -> Hardware:
    return Hardware(load_profile(profile))


@pytest.mark.parametrize(("profile", "size"), RINGS.items())
def test_a_reset_takes_the_whole_ring_and_nobody_else(profile: str, size: int) -> None:
    hardware = node(profile)
    chip = list(hardware)[-1]
    assert hardware.reset(chip, IN_BAND, 0) == 0
    down = [one.logic_id for one in hardware if one.alive]
    first = chip.logic_id // size * size
    assert down == list(range(first, len(hardware)))[:size]
    assert [one.boots for one in hardware if one.alive] == [1] * len(down)


def test_boot_goes_through_its_stages_and_ends_at_sixteen() -> None:
    hardware = node()
    chip = hardware.chip(0)
    hardware.reset(chip, IN_BAND, 100)
    boot = hardware.profile.boot_s
    seen = [hardware.boot_status(chip, 100 + boot * part / 8) for part in range(8)]
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3]
    assert hardware.next_change(100) == 100 + boot / 4
    assert hardware.advance(100 + boot - 0.01) == []
    assert len(hardware.advance(100 + boot)) == 8  # each chip tells that it started
    assert hardware.boot_status(chip, 100 + boot) == 16
    assert hardware.next_change(100 + boot) is None


def test_boot_clears_what_a_reset_can_clear_and_tells_in_order() -> None:
    hardware = node()
    hardware.inject(0, RESETTABLE)
    hardware.inject(0, FOR_REPAIR)
    hardware.reset(hardware.chip(0), IN_BAND, 0)
    events = [e for e in hardware.advance(60) if e.logic_id == 0]
    assert [(e.code, e.assertion) for e in events] == [
        (RESETTABLE.code, RECOVERED),
        (RESET_FINISHED, NOTICED),
    ]
    assert list(hardware.chip(0).faults) == [FOR_REPAIR.code]


def test_rules_make_it_fail_so_often_then_work() -> None:
    hardware = node()
    chip = hardware.chip(3)
    chip.reset_rules.fails = 2
    codes = [hardware.reset(chip, IN_BAND, at) for at in range(3)]
    assert codes == [RESET_FAILED, RESET_FAILED, 0]


def test_a_chip_that_never_boots_stays_in_an_early_stage() -> None:
    hardware = node("atlas-300i-a2")
    chip = hardware.chip(0)
    chip.reset_rules.never_boots = True
    hardware.reset(chip, IN_BAND, 0)
    assert hardware.advance(1e6) == []
    assert hardware.boot_status(chip, 1e6) == 2
    assert hardware.next_change(1e6) is None
    assert chip.alive == -8012


def test_faults_come_back_when_told() -> None:
    hardware = node()
    hardware.inject(1, RESETTABLE)
    chip = hardware.chip(1)
    chip.reset_rules.faults_return_after_s = 5
    chip.reset_rules.boot_s = 1
    hardware.reset(chip, IN_BAND, 0)
    hardware.advance(1)
    assert chip.health == 0
    assert hardware.next_change(1) == 6
    (event,) = hardware.advance(6)
    assert (event.code, event.assertion) == (RESETTABLE.code, 1)


def test_busy_chip_and_chip_with_slices_refuse() -> None:
    hardware = node()
    chip = hardware.chip(0)
    hardware.start_process(chip, Process(pid=1, name="x", memory_mb=1), 0)
    assert hardware.reset(chip, IN_BAND, 0) == BUSY
    assert hardware.pre_reset(chip) == BUSY
    hardware.end_process(chip, 1, 0)
    chip.slices.create("vir05_1c_16g")
    assert hardware.reset(chip, IN_BAND, 0) == -8002


def test_out_of_band_goes_detach_reset_rescan() -> None:
    hardware = node()
    chip = hardware.chip(0)
    assert hardware.reset(chip, OUT_OF_BAND, 0) == RESET_FAILED  # no way there
    chip.settings["outband"] = 1
    assert hardware.reset(chip, OUT_OF_BAND, 0) == RESET_FAILED  # not detached
    assert hardware.pre_reset(chip) == 0
    assert chip.alive == -8012
    assert hardware.reset(chip, OUT_OF_BAND, 0) == 0
    hardware.advance(60)
    assert chip.alive == -8012  # booted, but not found on the bus yet
    assert hardware.rescan(chip) == 0
    assert chip.alive == 0


def test_restart_of_the_driver_keeps_slices_and_forgets_settings() -> None:
    hardware = node()
    chip = hardware.chip(2)
    chip.slices.create("vir10_3c_32g")
    chip.settings["ip"] = (1, 2, 3, 4)
    hardware.restart_driver(0)
    assert [one.template.name for one in chip.slices] == ["vir10_3c_32g"]
    assert chip.settings == {}
    hardware.node_settings["vnpu_recover"] = 0
    hardware.restart_driver(1)
    assert len(chip.slices) == 0


@given(
    st.sampled_from(names()),
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 40)), max_size=8),
)
def test_however_resets_come_every_chip_is_up_in_the_end(
    profile: str, resets: list[tuple[int, int]]
) -> None:
    hardware = node(profile)
    chips, now = list(hardware), 0.0
    for number, passed in resets:
        now += passed
        hardware.advance(now)
        hardware.reset(chips[number % len(chips)], IN_BAND, now)
    while (due := hardware.next_change(now)) is not None:
        assert due > now
        now = due
        hardware.advance(now)
    assert all(chip.alive == 0 and hardware.boot_status(chip, now) == 16 for chip in chips)
