"""One server's cards: identity, faults, presence and readings. A pure state machine.

Owns the truth that every face (driver library, tools, files) shows. Rules: ids never change, not
even when a card drops; the list of active codes changes before the event is returned; health is
the worst active severity. Does not know who looks.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources

from simulator.hardware.faults import FaultKind, Severity

MAX_CARDS = 64
MAX_ACTIVE_CODES = 128

RECOVERED, OCCURRED, NOTICED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one product's cards are; sizes in MB, power in W, temperature in degrees C."""

    name: str
    product: str
    chip_type: str
    chip_name: str
    chip_version: str
    board_id: int
    pcb_id: int
    bom_id: int
    mainboard_id: int
    aicore_count: int
    hbm_mb: int
    rated_power_w: float
    driver_version: str
    dcmi_version: str
    pci_vendor: int
    pci_device: int
    idle_power_w: float
    idle_temp_c: int
    idle_hbm_mb: int
    first_bus: int


def load_profile(name: str) -> Profile:
    """A shipped product by name."""
    text = resources.files(__package__).joinpath("data/profiles.toml").read_text()
    table = tomllib.loads(text)
    if name not in table:
        raise LookupError(f"profile {name!r} is unknown, allowed: {', '.join(sorted(table))}")
    return Profile(name=name, **table[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """What the driver tells subscribers; `assertion` 0 recovered, 1 occurred, 2 notice."""

    code: int
    logic_id: int
    severity: int
    assertion: int


@dataclass(slots=True, kw_only=True)
class Card:
    """One card with one NPU device (device id 0)."""

    card_id: int
    logic_id: int
    phy_id: int
    slot_id: int
    bus: int
    power_w: float
    temp_c: int
    hbm_used_mb: int
    aicore_pct: int = 0
    is_dropped: bool = False
    faults: dict[int, Severity] = field(default_factory=dict)

    @property
    def health(self) -> int:
        """0 OK, 1 Warning, 2 Alarm, 3 Critical."""
        return max((int(severity) for severity in self.faults.values()), default=0)


class Hardware:
    """All cards of one node."""

    def __init__(
        self, profile: Profile, *, cards: int = 8, driver_version: str | None = None
    ) -> None:
        if not 0 <= cards <= MAX_CARDS:
            raise ValueError(f"cards={cards!r}, wanted 0 to {MAX_CARDS}")
        self.profile = profile
        self.driver_version = driver_version or profile.driver_version
        self.listed = cards
        self._cards = {
            index: Card(
                card_id=index,
                logic_id=index,
                phy_id=index,
                slot_id=index,
                bus=(profile.first_bus + index) & 0xFF,
                power_w=profile.idle_power_w,
                temp_c=profile.idle_temp_c,
                hbm_used_mb=profile.idle_hbm_mb,
            )
            for index in range(cards)
        }

    def __iter__(self) -> Iterator[Card]:
        return iter(self._cards.values())

    def __len__(self) -> int:
        return len(self._cards)

    def card(self, card_id: int) -> Card:
        try:
            return self._cards[card_id]
        except KeyError:
            known = ", ".join(map(str, self._cards)) or "none"
            raise LookupError(f"card {card_id} does not exist, this node has: {known}") from None

    def listed_cards(self) -> tuple[int, ...]:
        """The ids the driver lists, in order."""
        return tuple(self._cards)[: self.listed]

    def list_only(self, count: int) -> None:
        """Let the driver list only the first `count` cards; 0 means it finds none."""
        if not 0 <= count <= len(self._cards):
            raise ValueError(f"listed cards={count!r}, wanted 0 to {len(self._cards)}")
        self.listed = count

    def inject(self, card_id: int, kind: FaultKind) -> list[FaultEvent]:
        """Raise a fault; a code that is active already changes nothing."""
        card = self.card(card_id)
        if kind.code in card.faults or len(card.faults) >= MAX_ACTIVE_CODES:
            return []
        card.faults[kind.code] = kind.severity
        return [self._event(card, kind.code, kind.severity, OCCURRED)]

    def recover(self, card_id: int, code: int) -> list[FaultEvent]:
        """Clear a fault; clearing what is not active changes nothing."""
        card = self.card(card_id)
        severity = card.faults.pop(code, None)
        return [] if severity is None else [self._event(card, code, severity, RECOVERED)]

    def drop(self, card_id: int) -> None:
        """The card stops answering; its ids stay. The driver raises no event for this."""
        self.card(card_id).is_dropped = True

    def restore(self, card_id: int) -> None:
        """A dropped card answers again."""
        self.card(card_id).is_dropped = False

    @staticmethod
    def _event(card: Card, code: int, severity: Severity, assertion: int) -> FaultEvent:
        return FaultEvent(
            code=code, logic_id=card.logic_id, severity=int(severity), assertion=assertion
        )
