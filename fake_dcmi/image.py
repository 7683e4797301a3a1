"""Writing the hardware image: one writer publishes whole states, readers see each chip whole.

Owns the file and its life: created under another name and moved into place, so a reader never
meets a half-made image; it outlives its writer, and a new writer takes an old image over. A state
is plain data; where it comes from is not ours.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_dcmi import layout

_FUTEX_WAKE = 1
_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98}
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipState:
    """One chip. Field names are those of `layout.CHIP`, which gives units and sizes."""

    card_id: int
    device_id: int
    logic_id: int
    phy_id: int
    values: dict[str, Any] = field(default_factory=dict)
    error_codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """All that the driver of one node shows; only the chips in it are listed."""

    driver_version: str
    dcmi_version: str
    tool_version: str
    chips: tuple[ChipState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """One event for subscribers; `raised_ms` is milliseconds since 1970."""

    code: int
    logic_id: int
    severity: int
    assertion: int
    raised_ms: int


class ImageWriter:
    """The only writer of one image."""

    def __init__(self, path: Path, state: NodeState, *, boot_id: int) -> None:
        self.path = path
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, layout.TOTAL_SIZE)
            self._map = mmap.mmap(descriptor, layout.TOTAL_SIZE)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._header: Any = layout.Header.from_buffer(self._map, 0)
        self._chips: Any = (layout.Chip * layout.MAX_CHIPS).from_buffer(self._map, layout.CHIPS_AT)
        self._events: Any = (layout.Event * layout.EVENT_SLOTS).from_buffer(
            self._map, layout.EVENTS_AT
        )
        self._published: tuple[ChipState, ...] = ()
        header = self._header
        header.version = layout.VERSION
        header.header_size = ctypes.sizeof(layout.Header)
        header.chip_size = ctypes.sizeof(layout.Chip)
        header.event_size = ctypes.sizeof(layout.Event)
        header.total_size = layout.TOTAL_SIZE
        header.boot_id = boot_id
        self.publish(state)
        header.magic = layout.MAGIC
        os.chmod(fresh, 0o644)
        fresh.replace(path)

    def publish(self, state: NodeState) -> None:
        """Make `state` what every reader sees from its next call on."""
        if len(state.chips) > layout.MAX_CHIPS:
            raise ValueError(f"{len(state.chips)} chips, wanted at most {layout.MAX_CHIPS}")
        for index, chip in enumerate(state.chips):
            if index >= len(self._published) or self._published[index] != chip:
                self._write_chip(self._chips[index], chip)
        self._published = state.chips
        header = self._header
        header.sequence += 1
        header.listed = len(state.chips)
        header.driver_version = state.driver_version.encode()
        header.dcmi_version = state.dcmi_version.encode()
        header.tool_version = state.tool_version.encode()
        header.sequence += 1

    def emit(self, events: Sequence[FaultEvent]) -> None:
        """Hand events to subscribers; publish the state they follow from first."""
        header = self._header
        for event in events:
            number = header.event_count
            slot = self._events[number % layout.EVENT_SLOTS]
            slot.number = 0
            slot.code, slot.logic_id = event.code, event.logic_id
            slot.severity, slot.assertion = event.severity, event.assertion
            slot.node_type = (event.code >> 17) & 0xFF
            slot.raised_ms = event.raised_ms
            slot.number = number + 1
            header.event_count = number + 1
        if events:
            header.event_word = (header.event_word + 1) & 0xFFFFFFFF
            self._wake()

    def close(self) -> None:
        """Let go of the file; its content stays readable."""
        del self._header, self._chips, self._events
        self._map.close()

    @staticmethod
    def _write_chip(block: Any, chip: ChipState) -> None:
        block.sequence += 1
        block.card_id, block.device_id = chip.card_id, chip.device_id
        block.logic_id, block.phy_id = chip.logic_id, chip.phy_id
        for name, value in chip.values.items():
            if isinstance(value, str):
                setattr(block, name, value.encode())
            elif isinstance(value, tuple):
                setattr(block, name, type(getattr(block, name))(*value))
            else:
                setattr(block, name, value)
        codes = chip.error_codes[: layout.MAX_ERROR_CODES]
        block.error_count = len(codes)
        block.error_codes = (ctypes.c_uint32 * layout.MAX_ERROR_CODES)(*codes)
        block.sequence += 1

    def _wake(self) -> None:
        number = _FUTEX_NUMBER.get(platform.machine())
        if number is not None:
            word = ctypes.c_void_p(ctypes.addressof(self._header) + layout.Header.event_word.offset)
            _libc.syscall(ctypes.c_long(number), word, _FUTEX_WAKE, 0x7FFFFFFF, None, None, 0)
