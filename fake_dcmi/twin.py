"""What each function answers, worked out in Python from a published state: the library's twin.

Interprets the same rows (`data/calls.toml`) that the C entry points are made from, so a test can
call both with the same arguments and compare code and every byte. Functions with hand-written C
bodies are not here; their answers are tested on their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fake_dcmi import api, calls, layout, packing
from fake_dcmi.calls import Call
from fake_dcmi.image import UNIT_NPU, ChipState, NodeState

OK = 0
INVALID_PARAMETER = -8001
NOT_SUPPORTED = -8255

# An out parameter's bytes by name; absent when the call failed before writing.
Outputs = dict[str, bytes]


class Twin:
    """The driver of one process that sees the whole host."""

    def __init__(self, state: NodeState) -> None:
        self._state = state

    def knows(self, name: str) -> bool:
        """Whether this function's row tells everything about it."""
        return calls.table()[name].kind in ("get", "select", "text", "refuse")

    def call(self, name: str, arguments: Mapping[str, int]) -> tuple[int, Outputs]:
        """(code, out parameters). `arguments` are the in parameters by name."""
        call = calls.table()[name]
        chip: ChipState | None = None
        if call.of != "node":
            chip = self._find(call, arguments)
            if chip is None:
                return INVALID_PARAMETER, {}
        if code := self._state.refusals.get(name, 0):
            return code, {}
        if call.kind == "refuse":
            return NOT_SUPPORTED, {}
        if chip is not None:
            alive = int(_plain(chip.values.get("alive", 0)))
            if alive and call.alive:
                return alive, {}
            if chip.logic_id is None and not call.mcu:
                return NOT_SUPPORTED, {}
        values = self._state.values if chip is None else _with_ids(chip)
        if call.kind == "text":
            return _text(call, values, arguments)
        if call.kind == "select":
            return _select(call, values, arguments)
        return OK, _outs(call, call.out, values, self._state.values)

    def _find(self, call: Call, arguments: Mapping[str, int]) -> ChipState | None:
        if "dev_id" in arguments:
            return next(
                (c for c in self._state.chips if c.is_listed and c.logic_id == arguments["dev_id"]),
                None,
            )
        device = arguments["device_id"] if call.of == "chip" else 0
        for chip in self._state.chips:
            if chip.is_listed and (chip.card_id, chip.device_id) == (arguments["card_id"], device):
                return chip
        return None


def _with_ids(chip: ChipState) -> dict[str, Any]:
    unit = UNIT_NPU if chip.logic_id is not None else 1
    return dict(chip.values) | {
        "card_id": chip.card_id,
        "device_id": chip.device_id,
        "unit": unit,
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else 0


def _value(text: str, values: Mapping[str, Any], node: Mapping[str, Any]) -> Any:
    source = calls.source(text)
    if source.number is not None:
        return source.number
    block = node if source.is_node else values
    fields = layout.NODE_FIELDS if source.is_node else layout.CHIP_FIELDS
    kind, count = fields[source.field]
    found = block.get(source.field, "" if kind == "char" else 0)
    if kind == "char":
        encoded: bytes = found if isinstance(found, bytes) else str(found).encode()
        return encoded[: count - 1]
    if count == 1:
        return found
    items = list(found) if isinstance(found, (tuple, bytes)) else [found]
    items += [0] * (count - len(items))
    return items[source.index] if source.index is not None else items


def _outs(
    call: Call, out: Mapping[str, str], values: Mapping[str, Any], node: Mapping[str, Any]
) -> Outputs:
    made: dict[str, bytearray] = {}
    for path, text in out.items():
        param, member = calls.member(call, path)
        value = _value(text, values, node)
        if member is None:
            made[param.name] = bytearray(_scalar(param, value))
            continue
        struct = calls.pointed_struct(param)
        assert struct is not None
        place = made.setdefault(param.name, bytearray(struct.size))
        packing.put(place, member, value)
    return {name: bytes(raw) for name, raw in made.items()}


def _scalar(param: api.Param, value: int) -> bytes:
    size = 1 if "char" in param.type else 4
    return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _select(
    call: Call, values: Mapping[str, Any], arguments: Mapping[str, int]
) -> tuple[int, Outputs]:
    text = call.cases.get(arguments[call.select])
    if text is None:
        return call.otherwise, {}
    if call.zero is not None and _value(text, values, {}) == 0:
        return call.zero, {}
    return OK, _outs(call, {call.into: text}, values, {})


def _text(
    call: Call, values: Mapping[str, Any], arguments: Mapping[str, int]
) -> tuple[int, Outputs]:
    assert call.text is not None
    raw = bytes(_value(call.text.source, values, values))
    if call.text.size:
        size = arguments[call.text.size]
        kind = next(p.type for p in call.function.params if p.name == call.text.size)
        if kind.startswith("unsigned"):
            size &= 2**32 - 1
        if size < call.at_least or size <= len(raw):
            return INVALID_PARAMETER, {}
    outputs = {call.text.into: raw + b"\0"}
    if call.text.length:
        outputs[call.text.length] = len(raw).to_bytes(4, "little")
    return OK, outputs
