"""Scripted behaviour of driver calls: which rule fits a call, and what it makes of it. Pure.

The C library evaluates the same rules in every process; this is its twin for virtual time. Calls
are counted per process, since each process of vendor software has a library of its own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`function`, `card` and `device` None fit all; `code` 0 lets the call go on after the delay.
    Holds for the `first` to the `last` (None: no end) matching call, each with `chance`."""

    number: int
    function: str | None = None
    card: int | None = None
    device: int | None = None
    code: int = 0
    delay_s: float = 0.0
    hang: bool = False
    first: int = 1
    last: int | None = None
    chance: float = 1.0
    seed: int = 0

    def fits(self, function: str, card: int | None, device: int | None) -> bool:
        return (
            self.function in (None, function)
            and self.card in (None, card)
            and self.device in (None, device)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a call does: waits, hangs, and answers `code` unless that is 0."""

    code: int = 0
    delay_s: float = 0.0
    hang: bool = False


class CallScript:
    """One process's view of the rules."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def judge(
        self, rules: tuple[Rule, ...], function: str, card: int | None, device: int | None
    ) -> Verdict | None:
        """The first rule that fits and holds decides; None when none does."""
        for rule in rules:
            if not rule.fits(function, card, device):
                continue
            count = self._counts[rule.number] = self._counts.get(rule.number, 0) + 1
            if count < rule.first or (rule.last is not None and count > rule.last):
                continue
            if not _happens(rule, count):
                continue
            return Verdict(code=rule.code, delay_s=rule.delay_s, hang=rule.hang)
        return None


def _happens(rule: Rule, count: int) -> bool:
    if rule.chance >= 1:
        return True
    limit = max(1, int(rule.chance * 2**32))
    seed = rule.seed & (2**64 - 1)
    return _mix(seed ^ _mix(count)) >> 32 < limit


def _mix(x: int) -> int:
    """splitmix64, as the C library has it."""
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)
