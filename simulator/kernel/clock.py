"""Time: one interface, a virtual clock that jumps and a wall clock that waits.

Owns: order of events. Rules: order is (time, priority, sequence), so ties are deterministic; time
never goes backwards. Does not know what the events mean.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

Action = Callable[[], None]

# Scenario time 0 on the calendar, so that simulated objects carry the same dates in every run:
# 2025-01-01T00:00:00Z in seconds since 1970.
SIM_EPOCH_S = 1_735_689_600.0


class Timer(Protocol):
    """A pending action."""

    def cancel(self) -> None:
        """Forget the action; cancelling twice, or after it ran, does nothing."""


class Clock(Protocol):
    """What state machines' surroundings may ask of time. All times are seconds."""

    def now(self) -> float:
        """Scenario time: seconds since the run began."""

    def epoch(self) -> float:
        """Calendar time: seconds since 1970."""

    def call_later(self, delay_s: float, action: Action) -> Timer:
        """Run `action` after `delay_s`; never inside this call."""


@dataclass(slots=True, order=True)
class _Entry:
    at_s: float
    priority: int
    sequence: int
    action: Action | None = field(compare=False)

    def cancel(self) -> None:
        self.action = None


class WallClock:
    """Real time on a running event loop; scenario time 0 is when it was made."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._started = loop.time()

    def now(self) -> float:
        return self._loop.time() - self._started

    def epoch(self) -> float:
        return time.time()

    def call_later(self, delay_s: float, action: Action) -> Timer:
        return self._loop.call_later(delay_s, action)


class VirtualClock:
    """Jumps from event to event; the same calls give the same order, always."""

    def __init__(self, *, epoch_s: float = SIM_EPOCH_S) -> None:
        self._now_s = 0.0
        self._epoch_s = epoch_s
        self._queue: list[_Entry] = []
        self._sequence = itertools.count()

    def now(self) -> float:
        return self._now_s

    def epoch(self) -> float:
        return self._epoch_s + self._now_s

    def call_later(self, delay_s: float, action: Action, *, priority: int = 0) -> Timer:
        if not delay_s >= 0:  # also refuses NaN
            raise ValueError(f"time cannot go backwards: delay_s={delay_s!r}, wanted 0 or more")
        entry = _Entry(self._now_s + delay_s, priority, next(self._sequence), action)
        heapq.heappush(self._queue, entry)
        return entry

    def next_at(self) -> float | None:
        """Time of the next pending event, or None when nothing is pending."""
        while self._queue and self._queue[0].action is None:
            heapq.heappop(self._queue)
        return self._queue[0].at_s if self._queue else None

    def step(self) -> bool:
        """Run the next event; False when there is none."""
        if self.next_at() is None:
            return False
        entry = heapq.heappop(self._queue)
        self._now_s = entry.at_s
        action, entry.action = entry.action, None
        if action is not None:
            action()
        return True

    def advance_to(self, at_s: float) -> None:
        """Run every event up to and including `at_s`, then stand at `at_s`."""
        if at_s < self._now_s:
            raise ValueError(f"time cannot go backwards: at_s={at_s!r}, now={self._now_s!r}")
        while (upcoming := self.next_at()) is not None and upcoming <= at_s:
            self.step()
        self._now_s = at_s

    def run_until(self, claim: Callable[[], bool], *, within_s: float) -> bool:
        """Advance until `claim` holds or `within_s` passed; says whether it held."""
        deadline = self._now_s + within_s
        while not claim():
            upcoming = self.next_at()
            if upcoming is None or upcoming > deadline:
                self.advance_to(deadline)
                return claim()
            self.step()
        return True
