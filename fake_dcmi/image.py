"""Writing the hardware image: one writer publishes whole states, readers see each block whole.

Owns the file and its life. A new image is made under another name and moved into place, so a reader
never meets a half-made one. It outlives its writer; the next writer goes on in the same file when
the layout and the number of chips fit, so readers that run see its states too. A state is plain
data; where it comes from is not ours.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_dcmi import api, layout, native

Value = int | str | bytes | tuple[int, ...]
UNIT_NPU, UNIT_MCU = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipState:
    """One NPU or MCU. `values` are fields of `layout.CHIP`, which gives units and sizes; what is
    left out is zero. An MCU has neither logic id nor physical id (None)."""

    card_id: int
    device_id: int
    logic_id: int | None
    phy_id: int | None
    is_listed: bool = True
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Scripted behaviour of calls. `function` None means every function, `card` and `device` None
    every one; `code` 0 lets the call go on after the delay. Matching calls are counted in each
    process from 1; the rule holds from the `first` to the `last` (None: no end) of them, each with
    `chance` (0 to 1) drawn from the seed."""

    number: int
    function: str | None = None
    card: int | None = None
    device: int | None = None
    code: int = 0
    delay_us: int = 0
    hang: bool = False
    first: int = 1
    last: int | None = None
    chance: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """All that the driver of one node shows. The chips keep their places from state to state;
    `refusals` maps functions that this product does not support to the code they answer."""

    chips: tuple[ChipState, ...]
    values: Mapping[str, Value] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)
    container_codes: Mapping[str, int] = field(default_factory=dict)
    needs_root: frozenset[str] = frozenset()
    rules: tuple[Rule, ...] = ()
    log_calls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """One event for subscribers; `raised_ms` is milliseconds since 1970."""

    code: int
    logic_id: int
    severity: int
    assertion: int
    raised_ms: int


@functools.cache
def _publish() -> Any:
    library = ctypes.CDLL(str(native.find("fake_dcmi", "libimage_writer.so")))
    library.publish_block.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    library.publish_word.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    library.publish_event.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.bump_word.argtypes = (ctypes.c_void_p,)
    return library


class ImageWriter:
    """The only writer of one image."""

    def __init__(self, path: Path, state: NodeState, *, boot_id: int) -> None:
        if len(state.chips) > layout.MAX_CHIPS:
            raise ValueError(f"{len(state.chips)} chips, wanted at most {layout.MAX_CHIPS}")
        self.path = path
        self.calls_path = path.with_name(path.name + ".calls")
        self._size = layout.image_size(len(state.chips))
        self._node = layout.Node()
        self._chips = [layout.Chip() for _ in state.chips]
        self._shown: list[ChipState | None] = [None] * len(state.chips)
        self._values: Mapping[str, Value] = {}
        self._rules: tuple[Rule, ...] | None = None
        self._gates: list[int] = []
        self._listing: object = None
        self._map = self._take_over() or self._create(path)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        header = self._header()
        header.boot_id = boot_id
        if header.magic != layout.MAGIC:
            header.version = layout.VERSION
            header.header_size = ctypes.sizeof(layout.Header)
            header.node_size = ctypes.sizeof(layout.NodeBlock)
            header.script_size = ctypes.sizeof(layout.ScriptBlock)
            header.chip_size = ctypes.sizeof(layout.ChipBlock)
            header.event_size = ctypes.sizeof(layout.Event)
            header.chip_count = len(state.chips)
            header.total_size = self._size
        _create_calls(self.calls_path)
        self.publish(state)
        if header.magic != layout.MAGIC:
            header.magic = layout.MAGIC
            fresh = self._fresh_path()
            os.chmod(fresh, 0o644)
            fresh.replace(path)

    def publish(self, state: NodeState) -> None:
        """Make `state` what every reader sees from its next call on."""
        if len(state.chips) != len(self._chips):
            raise ValueError(f"{len(state.chips)} chips, this image has {len(self._chips)}")
        for index, chip in enumerate(state.chips):
            if self._shown[index] != chip:
                self._write_chip(index, chip)
        self._write_node(state)
        if state.rules != self._rules:
            self._write_rules(state.rules)
        self._write_gates(state)
        _publish().publish_word(
            self._address + layout.Header.calls_logged.offset, int(state.log_calls)
        )

    def emit(self, events: Sequence[FaultEvent]) -> None:
        """Hand events to subscribers; publish the state they follow from first."""
        for event in events:
            made = layout.Event(
                raised_ms=event.raised_ms,
                code=event.code,
                logic_id=event.logic_id,
                severity=event.severity,
                assertion=event.assertion,
                node_type=(event.code >> 17) & 0xFF,
            )
            _publish().publish_event(self._address, ctypes.addressof(made))
        if events:
            _publish().bump_word(self._address + layout.Header.event_word.offset)

    def release_hanging(self) -> None:
        """Let every call that hangs by a rule go on; those to come hang again."""
        _publish().bump_word(self._address + layout.Header.release_word.offset)

    def close(self) -> None:
        """Let go of the file; its content stays readable."""
        if not self._map.closed:
            self._map.close()

    def _header(self) -> Any:
        return layout.Header.from_address(self._address)

    def _fresh_path(self) -> Path:
        return self.path.with_name(f".{self.path.name}.{os.getpid()}")

    def _create(self, path: Path) -> mmap.mmap:
        fresh = self._fresh_path()
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            # Allocated now: a full disk must fail here, not in the middle of a write.
            os.posix_fallocate(descriptor, 0, self._size)
            return mmap.mmap(descriptor, self._size)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def _take_over(self) -> mmap.mmap | None:
        """The image of an earlier writer, when it is whole and of this shape."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            if os.fstat(descriptor).st_size != self._size:
                return None
            found = mmap.mmap(descriptor, self._size)
        finally:
            os.close(descriptor)
        header = layout.Header.from_buffer_copy(found[: ctypes.sizeof(layout.Header)])
        fits = (
            header.magic == layout.MAGIC
            and header.version == layout.VERSION
            and header.header_size == ctypes.sizeof(layout.Header)
            and header.node_size == ctypes.sizeof(layout.NodeBlock)
            and header.chip_size == ctypes.sizeof(layout.ChipBlock)
            and header.chip_count == len(self._chips)
        )
        if fits:
            return found
        found.close()
        return None

    def _write_chip(self, index: int, chip: ChipState) -> None:
        before = self._shown[index]
        content = self._chips[index]
        old: Mapping[str, Value] = before.values if before else {}
        for name in old.keys() - chip.values.keys():
            kind = getattr(content, name)
            setattr(content, name, 0 if isinstance(kind, int) else type(kind)())
        for name, value in chip.values.items():
            if name not in old or old[name] != value:
                _set(content, name, value)
        content.card_id, content.device_id = chip.card_id, chip.device_id
        content.logic_id = layout.MAX_IDS if chip.logic_id is None else chip.logic_id
        content.phy_id = layout.MAX_IDS if chip.phy_id is None else chip.phy_id
        content.unit = UNIT_MCU if chip.logic_id is None else UNIT_NPU
        at = self._address + layout.CHIPS_AT + index * ctypes.sizeof(layout.ChipBlock)
        self._put(at, content)
        self._shown[index] = chip

    def _write_node(self, state: NodeState) -> None:
        listing = tuple(
            (c.card_id, c.device_id, c.logic_id, c.phy_id) if c.is_listed else None
            for c in state.chips
        )
        if listing == self._listing and state.values == self._values:
            return
        node = self._node
        node.listed = sum(chip.is_listed for chip in state.chips)
        for table in ("by_pair", "by_logic", "by_phy"):
            ctypes.memset(
                ctypes.addressof(getattr(node, table)), 0xFF, getattr(node, table)._length_ * 2
            )
        for index, chip in enumerate(state.chips):
            if chip.is_listed:
                node.by_pair[chip.card_id * layout.MAX_DEVICES + chip.device_id] = index
                if chip.logic_id is not None and chip.phy_id is not None:
                    node.by_logic[chip.logic_id] = index
                    node.by_phy[chip.phy_id] = index
        for name, value in state.values.items():
            _set(node, name, value)
        self._put(self._address + layout.NODE_AT, node)
        self._listing, self._values = listing, dict(state.values)

    def _write_rules(self, rules: tuple[Rule, ...]) -> None:
        if len(rules) > layout.MAX_RULES:
            raise ValueError(f"{len(rules)} rules, wanted at most {layout.MAX_RULES}")
        script = layout.Script(count=len(rules))
        numbers = function_numbers()
        for slot, rule in zip(script.rules, rules, strict=False):
            slot.number = rule.number
            slot.function = -1 if rule.function is None else numbers[rule.function]
            slot.card_id = -1 if rule.card is None else rule.card
            slot.device_id = -1 if rule.device is None else rule.device
            slot.code, slot.delay_us, slot.hang = rule.code, rule.delay_us, int(rule.hang)
            slot.first, slot.last = rule.first, rule.last or 0
            slot.chance = chance_word(rule.chance)
            slot.seed = rule.seed & (2**64 - 1)
        self._put(self._address + layout.SCRIPT_AT, script)
        self._rules = rules

    def _write_gates(self, state: NodeState) -> None:
        gates = gate_words(state)
        if gates == self._gates:
            return
        numbers = function_numbers()
        header = self._header()
        for name, code in state.container_codes.items():
            header.container_codes[numbers[name]] = -code
        for name in state.needs_root:
            header.needs_root[numbers[name]] = 1
        at = self._address + layout.Header.gates.offset
        for number, word in enumerate(gates):
            if not self._gates or self._gates[number] != word:
                _publish().publish_word(at + 4 * number, word)
        self._gates = gates

    @staticmethod
    def _put(address: int, content: ctypes.Structure) -> None:
        _publish().publish_block(address, ctypes.addressof(content), ctypes.sizeof(content))


@functools.cache
def function_numbers() -> dict[str, int]:
    """The number of each function in gates, rules, requests and the call log."""
    return {name: number for number, name in enumerate(api.functions())}


def gate_words(state: NodeState) -> list[int]:
    """The gate of each function: its refusal, and whether a rule is about it."""
    scripted = {rule.function for rule in state.rules}
    return [
        -state.refusals.get(name, 0)
        | (layout.GATE_SCRIPTED if None in scripted or name in scripted else 0)
        for name in api.functions()
    ]


def chance_word(chance: float) -> int:
    """A probability as the image has it: of 2**32, and 0 for always."""
    return 0 if chance >= 1 else max(1, int(chance * 2**32))


def _set(content: Any, name: str, value: Value) -> None:
    fields = layout.CHIP_FIELDS if isinstance(content, layout.Chip) else layout.NODE_FIELDS
    kind, count = fields[name]
    if isinstance(value, str):
        value = value.encode()
    if count > 1 and kind != "char":
        items: Iterable[int] = value if isinstance(value, (tuple, bytes)) else (value,)
        items = list(items)[:count]
        setattr(content, name, type(getattr(content, name))(*items))
    elif isinstance(value, bytes):
        setattr(content, name, value[:count])
    else:
        setattr(content, name, value)


def _create_calls(path: Path) -> None:
    """The call log's file; sparse, and written by the readers."""
    if path.is_file() and path.stat().st_size == layout.CALLS_SIZE:
        return
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    header = layout.CallHeader(
        magic=layout.CALL_MAGIC, slots=layout.CALL_SLOTS, call_size=ctypes.sizeof(layout.Call)
    )
    with open(fresh, "wb") as file:
        file.write(bytes(header))
        file.truncate(layout.CALLS_SIZE)
    os.chmod(fresh, 0o666)  # noqa: S103 - processes of any user note their calls in it
    fresh.replace(path)
