"""Reading the call log: which process called which driver function, when, with what result.

The library writes it, in every process that uses it, while the image says so. It holds the last
65 536 calls; what a reader was too slow for is counted as lost.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_dcmi import layout
from fake_dcmi.image import function_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """One call. `at_s` is seconds since 1970, from the kernel's coarse clock (a few ms); card and
    chip are None for calls that name none."""

    number: int
    at_s: float
    pid: int
    program: str
    function: int
    card_id: int | None
    device_id: int | None
    code: int

    @property
    def name(self) -> str:
        return _names().get(self.function, f"function {self.function}")


def _names() -> dict[int, str]:
    return {number: name for name, number in function_numbers().items()}


class CallLog:
    """The log beside an image; `read` gives what came since it was read last."""

    def __init__(self, image: Path) -> None:
        path = image.with_name(image.name + ".calls")
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), layout.CALLS_SIZE, access=mmap.ACCESS_READ)
        self._next = self._count()
        self.lost = 0

    def read(self) -> list[LoggedCall]:
        """Every call since the last time, in order."""
        count = self._count()
        first = max(self._next, count - layout.CALL_SLOTS)
        self.lost += first - self._next
        self._next = count
        found = (self._at(number) for number in range(first, count))
        return [call for call in found if call is not None]

    def read_all(self) -> list[LoggedCall]:
        """Every call that the log still holds."""
        self._next = max(0, self._count() - layout.CALL_SLOTS)
        return self.read()

    def close(self) -> None:
        self._map.close()

    def _count(self) -> int:
        at = layout.CallHeader.count.offset
        return int.from_bytes(self._map[at : at + 8], "little")

    def _at(self, number: int) -> LoggedCall | None:
        size = ctypes.sizeof(layout.Call)
        at = ctypes.sizeof(layout.CallHeader) + number % layout.CALL_SLOTS * size
        raw: Any = layout.Call.from_buffer_copy(self._map[at : at + size])
        if raw.number != number + 1:
            return None  # being written, or overwritten meanwhile
        return LoggedCall(
            number=number,
            at_s=raw.at_ns / 1e9,
            pid=raw.pid,
            program=raw.program.decode(errors="replace"),
            function=raw.function,
            card_id=raw.card_id if raw.card_id >= 0 else None,
            device_id=raw.device_id if raw.device_id >= 0 else None,
            code=raw.code,
        )
