"""One server's cards: identity, faults, presence, reset, slices and readings. A pure state machine.

Owns the truth that every face (driver library, tools, files) shows. Rules: ids never change, not
even when a card drops; the list of active codes changes before the event is returned; health is
the worst active severity. Inputs carry `now` in seconds; time passes only through `advance`. Does
not know who looks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.hardware import telemetry
from simulator.hardware.faults import FaultKind, Severity, SwitchFault, catalogue
from simulator.hardware.profile import MAX_CARDS, MAX_CHIPS, Profile, load_profile
from simulator.hardware.script import Rule
from simulator.hardware.telemetry import Load, Readings
from simulator.hardware.vnpu import Slices

__all__ = ["Chip", "FaultEvent", "Hardware", "Profile", "load_profile"]

MAX_ACTIVE_CODES = 128
MAX_PROCESSES = 32

RECOVERED, OCCURRED, NOTICED = 0, 1, 2

# Answers of calls that need the chip, and of the reset calls.
OK = 0
NOT_READY = -8012
BUSY = -8013
RESET_FAILED = -8015
NOT_SUPPORTED = -8255
INVALID = -8001

OUT_OF_BAND, IN_BAND = 0, 1
BOOTED = 16
BOOT_STAGES = 4
RESET_FINISHED = 0x8C2FA009
# Levels whose faults a reset clears; the others are for repair.
_CLEARED_BY_RESET = (
    "RestartRequest", "RestartBusiness", "FreeRestartNPU", "RestartNPU", "SubHealthFault",
    "NotHandleFault",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """What the driver tells subscribers; `assertion` 0 recovered, 1 occurred, 2 one-off."""

    code: int
    logic_id: int
    severity: int
    assertion: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """An active fault and when it was raised, in seconds."""

    severity: Severity
    raised_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that uses a chip; memory in MB."""

    pid: int
    name: str
    memory_mb: int


@dataclass(slots=True, kw_only=True)
class ResetRules:
    """How a chip behaves when it is reset: refuses so many times, never comes up, or the faults
    come back so many seconds after the boot. `boot_s` None: the product's own."""

    fails: int = 0
    never_boots: bool = False
    faults_return_after_s: float | None = None
    boot_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Chip:
    """One NPU. `dropped_code` is what calls that need it answer while it is away."""

    index: int
    card_id: int
    device_id: int
    logic_id: int
    phy_id: int
    slot_id: int
    bus: int
    slices: Slices
    is_dropped: bool = False
    dropped_code: int = NOT_READY
    faults: dict[int, Active] = field(default_factory=dict)
    load: Load = field(default_factory=Load)
    processes: dict[int, Process] = field(default_factory=dict)
    pins: dict[str, int] = field(default_factory=dict)
    holder: str = ""
    reset_rules: ResetRules = field(default_factory=ResetRules)
    boot_started_s: float | None = None
    boot_s: float = 0.0  # how long the boot that runs takes
    boots: int = 0
    is_detached: bool = False
    returning: dict[int, tuple[float, FaultKind]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def health(self) -> int:
        """0 OK, 1 Warning, 2 Alarm, 3 Critical."""
        return max((int(active.severity) for active in self.faults.values()), default=0)

    @property
    def alive(self) -> int:
        """0, or what calls that need the chip answer now."""
        if self.is_dropped:
            return self.dropped_code
        return NOT_READY if self.boot_started_s is not None or self.is_detached else OK


class Hardware:
    """All cards of one node. `cards` overrides the product's number of them."""

    def __init__(
        self,
        profile: Profile,
        *,
        cards: int | None = None,
        driver_version: str | None = None,
        seed: int = 0,
        phy_ids: tuple[int, ...] = (),
    ) -> None:
        count = profile.cards if cards is None else cards
        if not 0 <= count <= MAX_CARDS:
            raise ValueError(f"cards={count!r}, wanted 0 to {MAX_CARDS}")
        chips = count * profile.chips_per_card
        if chips > MAX_CHIPS:
            raise ValueError(f"{chips} chips, wanted at most {MAX_CHIPS}")
        if phy_ids and (len(phy_ids) != chips or len(set(phy_ids)) != chips):
            raise ValueError(f"phy_ids={phy_ids!r}, wanted {chips} different numbers")
        self.profile = profile
        self.driver_version = driver_version or profile.driver_version
        self.seed = seed
        self.cards = count
        self.listed = count
        self.busy_code = 0  # 0: the driver's usual one
        self.node_settings: dict[str, int] = {}
        self.switch_faults: dict[str, tuple[SwitchFault, float]] = {}
        self.rules: tuple[Rule, ...] = ()
        self._rules_made = 0
        self.releases = 0  # how often calls that hang were let go on
        self.logs_calls = False
        self._chips: dict[tuple[int, int], Chip] = {}
        for index in range(chips):
            card_id, device_id = divmod(index, profile.chips_per_card)
            phy_id = phy_ids[index] if phy_ids else index
            self._chips[card_id, device_id] = Chip(
                index=index,
                card_id=card_id,
                device_id=device_id,
                logic_id=index,
                phy_id=phy_id,
                slot_id=card_id,
                bus=(profile.first_bus + index) & 0xFF,
                slices=Slices(profile, phy_id),
            )

    def __iter__(self) -> Iterator[Chip]:
        return iter(self._chips.values())

    def __len__(self) -> int:
        """Number of chips."""
        return len(self._chips)

    def chip(self, card_id: int, device_id: int = 0) -> Chip:
        try:
            return self._chips[card_id, device_id]
        except KeyError:
            known = ", ".join(map(str, range(self.cards))) or "none"
            per_card = self.profile.chips_per_card
            chips = "" if per_card == 1 else f", each with chips 0 to {per_card - 1}"
            what = f"card {card_id}" if per_card == 1 else f"chip {device_id} of card {card_id}"
            raise LookupError(f"{what} does not exist, this node has: {known}{chips}") from None

    def by_phy(self, phy_id: int) -> Chip | None:
        return next((chip for chip in self if chip.phy_id == phy_id), None)

    # --- what the driver lists

    def listed_cards(self) -> tuple[int, ...]:
        """The ids the driver lists, in order."""
        return tuple(range(self.listed))

    def list_only(self, count: int) -> None:
        """Let the driver list only the first `count` cards; 0 means it finds none."""
        if not 0 <= count <= self.cards:
            raise ValueError(f"listed cards={count!r}, wanted 0 to {self.cards}")
        self.listed = count

    # --- faults

    def inject(
        self, card_id: int, kind: FaultKind, *, chip: int = 0, now: float = 0.0
    ) -> list[FaultEvent]:
        """Raise a fault; a code that is active already changes nothing."""
        return self._raise(self.chip(card_id, chip), kind, now)

    def notice(self, card_id: int, kind: FaultKind, *, chip: int = 0) -> list[FaultEvent]:
        """A one-off event; the list of active codes does not change."""
        return [_event(self.chip(card_id, chip), kind.code, kind.severity, NOTICED)]

    def recover(self, card_id: int, code: int, *, chip: int = 0) -> list[FaultEvent]:
        """Clear a fault; clearing what is not active changes nothing."""
        return _clear(self.chip(card_id, chip), code)

    def drop(self, card_id: int, *, code: int = NOT_READY) -> None:
        """The card stops answering; its ids stay. The driver raises no event for this."""
        for chip in self._on_card(card_id):
            chip.is_dropped, chip.dropped_code = True, code

    def restore(self, card_id: int) -> None:
        """A dropped card answers again."""
        for chip in self._on_card(card_id):
            chip.is_dropped = False

    def raise_switch_fault(self, fault: SwitchFault, now: float) -> None:
        """Raise a fault of the super-pod's switch; only such a server has one."""
        if not self.profile.super_pod_size:
            raise ValueError(f"{self.profile.product} has no switch")
        self.switch_faults.setdefault(fault.code, (fault, now))

    def clear_switch_fault(self, code: str) -> None:
        self.switch_faults.pop(code, None)

    # --- who uses a chip

    def start_process(self, chip: Chip, process: Process, now: float) -> None:
        if len(chip.processes) < MAX_PROCESSES:
            chip.processes[process.pid] = process
            chip.load = chip.load.changed(True, now)

    def end_process(self, chip: Chip, pid: int, now: float) -> None:
        if chip.processes.pop(pid, None) is not None and not chip.processes:
            chip.load = chip.load.changed(False, now)

    def is_moving(self, now: float) -> bool:
        """Whether any reading still changes: chips at work, cooling down, or booting."""
        return any(
            chip.load.is_busy or chip.load.heat_c(now) > 0.5 or chip.boot_started_s is not None
            for chip in self
        )

    def readings(self, chip: Chip, now: float) -> Readings:
        return telemetry.read(
            self.profile,
            chip.load,
            process_mb=sum(process.memory_mb for process in chip.processes.values()),
            now=now,
            seed=self.seed,
            chip=chip.index,
        )

    def add_rule(self, rule: Rule) -> None:
        """Script driver calls; the rule gets its number and its seed here."""
        self._rules_made += 1  # never the number of an earlier rule, whose calls were counted
        number = self._rules_made
        seed = (self.seed * 1_000_003 + number) & (2**64 - 1)
        self.rules = (*self.rules, dataclasses.replace(rule, number=number, seed=seed))

    # --- reset

    def ring(self, chip: Chip) -> list[Chip]:
        """The chips that are reset with this one."""
        size = self.profile.reset_ring
        first = chip.logic_id // size * size
        return [one for one in self if first <= one.logic_id < first + size]

    def reset(self, chip: Chip, channel: int, now: float) -> int:
        """Ask for a reset; the answer's code. The boot then takes its time."""
        rules = chip.reset_rules
        if channel not in (IN_BAND, OUT_OF_BAND):
            return INVALID
        if channel == OUT_OF_BAND and not (chip.is_detached and self.has_outband(chip)):
            return RESET_FAILED
        if chip.processes:
            return BUSY
        if len(chip.slices):
            return -8002
        if rules.fails > 0:
            rules.fails -= 1
            return RESET_FAILED
        boot_s = self.profile.boot_s if rules.boot_s is None else rules.boot_s
        for one in self.ring(chip):
            one.boot_started_s, one.boot_s = now, boot_s
            one.boots += 1
            one.processes.clear()
            one.load = one.load.changed(False, now)
        return OK

    def has_outband(self, chip: Chip) -> bool:
        return bool(chip.settings.get("outband", 0))

    def pre_reset(self, chip: Chip) -> int:
        """Take the chip away from its upper drivers, for a reset out of band."""
        if chip.processes:
            return BUSY
        chip.is_detached = True
        return OK

    def rescan(self, chip: Chip) -> int:
        """Find the chip again; it answers once it has booted."""
        for one in self.ring(chip):
            one.is_detached = False
        return OK

    def boot_status(self, chip: Chip, now: float) -> int:
        """16 when it is up; 0 to 3 are the stages of a boot."""
        if chip.boot_started_s is None:
            return BOOTED
        passed = (now - chip.boot_started_s) / max(chip.boot_s, 1e-9)
        last = BOOT_STAGES - 2 if chip.reset_rules.never_boots else BOOT_STAGES - 1
        return min(last, max(0, int(passed * BOOT_STAGES)))

    def next_change(self, now: float) -> float | None:
        """When a boot enters its next stage or a fault comes back, in seconds; None while all is
        quiet."""
        times = [
            chip.boot_started_s + chip.boot_s * (self.boot_status(chip, now) + 1) / BOOT_STAGES
            for chip in self
            if chip.boot_started_s is not None and not self._is_stuck(chip, now)
        ]
        times += [at for chip in self for at, _ in chip.returning.values()]
        return min(times, default=None)

    def advance(self, now: float) -> list[FaultEvent]:
        """Let everything happen that is due: boots end, faults come back."""
        events: list[FaultEvent] = []
        for chip in self:
            started = chip.boot_started_s
            is_up = started is not None and now >= started + chip.boot_s
            if is_up and not chip.reset_rules.never_boots:
                events += self._booted(chip, now)
            for code, (at, kind) in list(chip.returning.items()):
                if now >= at:
                    del chip.returning[code]
                    events += self._raise(chip, kind, now)
        return events

    def restart_driver(self, now: float) -> None:
        """The host boots, or its driver is loaded anew: every chip boots, settings are gone, slices
        stay when the driver keeps them (its default)."""
        kept = self.snapshot() if self.node_settings.get("vnpu_recover", 1) else {}
        self.node_settings = {
            name: value for name, value in self.node_settings.items() if name.endswith("_recover")
        }
        for chip in self:
            chip.settings.clear()
            chip.slices.clear()
            chip.processes.clear()
            chip.is_detached = False
            chip.load = chip.load.changed(False, now)
            chip.boot_started_s, chip.boot_s = now, self.profile.boot_s
            chip.boots += 1
        self.restore_snapshot(kept)

    # --- what outlives a restart of the node

    def snapshot(self) -> Mapping[str, Any]:
        """Slices, as plain data."""
        return {"vnpu": {str(chip.phy_id): chip.slices.snapshot() for chip in self}}

    def restore_snapshot(self, kept: Mapping[str, Any]) -> None:
        for phy_id, slices in kept.get("vnpu", {}).items():
            chip = self.by_phy(int(phy_id))
            if chip is not None:
                chip.slices.restore([(int(vdev), str(template)) for vdev, template in slices])

    # --- inside

    def _on_card(self, card_id: int) -> list[Chip]:
        self.chip(card_id)
        return [chip for chip in self if chip.card_id == card_id]

    def _is_stuck(self, chip: Chip, now: float) -> bool:
        return chip.reset_rules.never_boots and self.boot_status(chip, now) == BOOT_STAGES - 2

    def _booted(self, chip: Chip, now: float) -> list[FaultEvent]:
        chip.boot_started_s = None
        events: list[FaultEvent] = []
        for code in list(chip.faults):
            kind = catalogue().get(code)
            if kind is None or kind.level not in _CLEARED_BY_RESET:
                continue
            events += _clear(chip, code)
            back = chip.reset_rules.faults_return_after_s
            if back is not None:
                chip.returning[code] = (now + back, kind)
        return [*events, _event(chip, RESET_FINISHED, Severity.NOTICE, NOTICED)]

    @staticmethod
    def _raise(chip: Chip, kind: FaultKind, now: float) -> list[FaultEvent]:
        if kind.code in chip.faults or len(chip.faults) >= MAX_ACTIVE_CODES:
            return []
        chip.faults[kind.code] = Active(severity=kind.severity, raised_s=now)
        return [_event(chip, kind.code, kind.severity, OCCURRED)]


def _clear(chip: Chip, code: int) -> list[FaultEvent]:
    active = chip.faults.pop(code, None)
    return [] if active is None else [_event(chip, code, active.severity, RECOVERED)]


def _event(chip: Chip, code: int, severity: Severity, assertion: int) -> FaultEvent:
    return FaultEvent(
        code=code, logic_id=chip.logic_id, severity=int(severity), assertion=assertion
    )
