"""Readings move together, keep the product's limits, and depend on their inputs alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.hardware.model import Hardware, Process
from simulator.hardware.profile import Profile, load_profile, names
from simulator.hardware.telemetry import Load, Readings, read

profiles = st.sampled_from([load_profile(name) for name in names()])
PROFILE = load_profile("atlas-800t-a2-910b3")


def at(profile: Profile, load: Load, now: float, *, process_mb: int = 0, seed: int = 1) -> Readings:
    return read(profile, load, process_mb=process_mb, now=now, seed=seed, chip=0)


@given(
    profiles,
    st.lists(st.tuples(st.booleans(), st.floats(0, 500)), max_size=8),
    st.floats(0, 1000),
    st.integers(0, 2**40),
    st.integers(0, 200_000),
)
def test_every_number_keeps_the_products_limits(
    profile: Profile,
    changes: list[tuple[bool, float]],
    passed: float,
    seed: int,
    process_mb: int,
) -> None:
    load, now = Load(), 0.0
    for is_busy, after in changes:
        now += after
        load = load.changed(is_busy, now)
    seen = at(profile, load, now + passed, process_mb=process_mb, seed=seed)
    for name in Readings.__slots__:
        value = getattr(seen, name)
        assert value >= 0, name
        if name.endswith("_pct"):
            assert value <= 100, name
    assert 0 < seen.power_dw <= profile.rated_power_w * 10
    assert profile.idle_temp_c <= seen.temp_c <= 100
    assert seen.hbm_used_mb <= profile.hbm_mb
    assert seen.ddr_used_mb <= profile.ddr_mb or profile.hbm_mb
    assert seen == at(profile, load, now + passed, process_mb=process_mb, seed=seed)


def test_work_makes_power_then_heat_and_rest_cools_down() -> None:
    idle = at(PROFILE, Load(), 0)
    busy = Load().changed(True, 0)
    early, late = at(PROFILE, busy, 3), at(PROFILE, busy, 120)
    assert idle.aicore_pct < early.aicore_pct <= late.aicore_pct + 6
    assert idle.power_dw < early.power_dw
    assert idle.temp_c <= early.temp_c < late.temp_c  # heat follows slowly
    assert late.aicore_mhz == PROFILE.aicore_mhz > idle.aicore_mhz
    rest = busy.changed(False, 120)
    assert at(PROFILE, rest, 122).temp_c > at(PROFILE, rest, 300).temp_c
    assert at(PROFILE, rest, 300).power_dw == idle.power_dw


def test_counters_never_run_backwards() -> None:
    load, last = Load(), 0
    for step in range(50):
        load = load.changed(step % 3 == 0, float(step))
        seen = at(PROFILE, load, step + 0.5).bytes
        assert seen >= last
        last = seen
    assert last > 0


def test_processes_make_a_chip_busy_and_fill_its_memory() -> None:
    hardware = Hardware(PROFILE)
    chip = hardware.chip(0)
    before = hardware.readings(chip, 10).hbm_used_mb
    hardware.start_process(chip, Process(pid=1, name="a", memory_mb=500), 10)
    hardware.start_process(chip, Process(pid=2, name="b", memory_mb=300), 11)
    assert hardware.readings(chip, 20).hbm_used_mb == before + 800
    assert hardware.readings(hardware.chip(1), 20).aicore_pct == 0
    hardware.end_process(chip, 1, 21)
    assert hardware.readings(chip, 60).aicore_pct > 80  # the other one still works
    hardware.end_process(chip, 2, 61)
    assert hardware.readings(chip, 90).aicore_pct == 0
    assert hardware.is_moving(90)  # it still cools down
    assert not hardware.is_moving(600)


def test_seeds_differ() -> None:
    busy = Load().changed(True, 0)
    seen = {tuple(at(PROFILE, busy, t, seed=s).power_dw for t in range(20, 40)) for s in range(20)}
    assert len(seen) == 20
