"""Readings that agree with each other: use, power, heat, memory, clocks and counters of one chip.

A pure function of the chip's load, the seed and the time, so nothing ticks: quiet time costs
nothing and equal runs read equal numbers. # deviates: the curves are simulated, not measured; they
keep the relations (more use, more power; heat follows slowly) and the product's limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.hardware.profile import Profile

USE_TAU_S = 1.5
HEAT_TAU_S = 20.0
FULL_HEAT_C = 72
IDLE_MHZ_SHARE = 0.45
BUSY_TARGET_PCT = 92
# Traffic of a fully busy chip: RoCE and HCCS in MB/s, packets of 4096 bytes.
RDMA_MBS = 11000
HCCS_MBS = 18000
PACKET_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What happened to a chip up to now: since when it is busy or idle, and from which use and heat
    it came. `busy_s` is how long it was busy before `since_s`."""

    is_busy: bool = False
    since_s: float = -1e9
    from_pct: float = 0.0
    from_heat_c: float = 0.0
    busy_s: float = 0.0

    def changed(self, is_busy: bool, now: float) -> Load:
        """The load from `now` on."""
        if is_busy == self.is_busy:
            return self
        return Load(
            is_busy=is_busy,
            since_s=now,
            from_pct=self.use_pct(now),
            from_heat_c=self.heat_c(now),
            busy_s=self.busy_for(now),
        )

    def use_pct(self, now: float) -> float:
        target = BUSY_TARGET_PCT if self.is_busy else 0
        return target + (self.from_pct - target) * _decay(now - self.since_s, USE_TAU_S)

    def heat_c(self, now: float) -> float:
        """Degrees above the idle temperature."""
        target = FULL_HEAT_C - 40 if self.is_busy else 0
        return target + (self.from_heat_c - target) * _decay(now - self.since_s, HEAT_TAU_S)

    def busy_for(self, now: float) -> float:
        return self.busy_s + (max(0.0, now - self.since_s) if self.is_busy else 0.0)


def _decay(passed_s: float, tau_s: float) -> float:
    return math.exp(-max(0.0, passed_s) / tau_s)


def _noise(seed: int, *parts: int) -> float:
    """-1 to 1, the same for the same arguments."""
    x = seed & (2**64 - 1)
    for part in parts:
        x = ((x ^ part) * 0x9E3779B97F4A7C15 + 0xBF58476D1CE4E5B9) & (2**64 - 1)
        x ^= x >> 29
    return (x & 0xFFFFF) / 0x7FFFF - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """One chip's numbers at one moment; percent, 0.1 W, degrees C, 0.01 V, MHz, MB, MB/s."""

    aicore_pct: int
    vector_pct: int
    cube_pct: int
    npu_pct: int
    aicpu_pct: int
    ctrlcpu_pct: int
    hbm_pct: int
    hbm_bandwidth_pct: int
    ddr_pct: int
    power_dw: int
    temp_c: int
    hbm_temp_c: int
    voltage_cv: int
    aicore_mhz: int
    hbm_used_mb: int
    ddr_used_mb: int
    rdma_mbs: int
    hccs_mbs: int
    packets: int
    bytes: int


def read(
    profile: Profile, load: Load, *, process_mb: int, now: float, seed: int, chip: int
) -> Readings:
    """The numbers of chip number `chip` at `now`."""
    noise = _noise(seed, chip, int(now)) if load.is_busy else 0.0
    use = min(100.0, max(0.0, load.use_pct(now) + 3 * noise))
    power_w = (
        profile.idle_power_w + (profile.rated_power_w * 0.95 - profile.idle_power_w) * use / 100
    )
    power_w += 2 * noise
    temp = profile.idle_temp_c + load.heat_c(now) + (0.5 if load.is_busy else 0) * noise
    heat = load.heat_c(now)
    is_working = use >= 1
    mhz = profile.aicore_mhz if is_working else int(profile.aicore_mhz * IDLE_MHZ_SHARE)
    memory = profile.hbm_mb or profile.ddr_mb
    base_mb = profile.idle_hbm_mb if profile.hbm_mb else memory // 20
    used = min(memory, base_mb + process_mb)
    hbm_used = used if profile.hbm_mb else 0
    ddr_used = 0 if profile.hbm_mb else used
    busy_s = load.busy_for(now)
    octets = int(busy_s * RDMA_MBS * 0.3) * 1_000_000 if profile.link_mbps else 0
    return Readings(
        aicore_pct=round(use),
        vector_pct=round(use * 0.45),
        cube_pct=round(use * 0.85),
        npu_pct=round(use),
        aicpu_pct=round(use * 0.1),
        ctrlcpu_pct=round(2 + use * 0.05),
        hbm_pct=hbm_used * 100 // profile.hbm_mb if profile.hbm_mb else 0,
        hbm_bandwidth_pct=round(use * 0.6) if profile.hbm_mb else 0,
        ddr_pct=ddr_used * 100 // profile.ddr_mb if ddr_used else 0,
        power_dw=round(power_w * 10),
        temp_c=round(temp),
        hbm_temp_c=round(profile.idle_temp_c + heat * 0.9) if profile.hbm_mb else 0,
        voltage_cv=85 if is_working else 75,
        aicore_mhz=mhz,
        hbm_used_mb=hbm_used,
        ddr_used_mb=ddr_used,
        rdma_mbs=round(RDMA_MBS * use / 100 * 0.3) if profile.link_mbps else 0,
        hccs_mbs=round(HCCS_MBS * use / 100) if profile.has_hccs else 0,
        packets=octets // PACKET_BYTES,
        bytes=octets,
    )
