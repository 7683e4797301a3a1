"""The journal: one JSON line per stimulus, message, state change and verdict.

Rules: keys are sorted and times rounded to a microsecond, so equal runs give equal bytes. An entry
is never changed once written. Does not interpret what it holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One journal line: scenario time in seconds, what kind, and its fields."""

    at_s: float
    kind: str
    fields: Mapping[str, Any]

    def line(self) -> str:
        body = {"t": self.at_s, "kind": self.kind, **self.fields}
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Journal:
    """Keeps entries in order, hands them to listeners, and writes them where asked."""

    def __init__(self, now: Callable[[], float], sink: TextIO | None = None) -> None:
        self._now = now
        self._sink = sink
        self.entries: list[Entry] = []
        self._listeners: list[Callable[[Entry], None]] = []

    def listen(self, listener: Callable[[Entry], None]) -> None:
        self._listeners.append(listener)

    def record(self, kind: str, **fields: Any) -> Entry:
        """Append one entry at the present scenario time."""
        entry = Entry(at_s=round(self._now(), 6), kind=kind, fields=fields)
        self.entries.append(entry)
        if self._sink is not None:
            self._sink.write(entry.line() + "\n")
            self._sink.flush()
        for listener in self._listeners:
            listener(entry)
        return entry

    def text(self) -> str:
        return "".join(entry.line() + "\n" for entry in self.entries)
