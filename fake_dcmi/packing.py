"""Structs of the interface as bytes: written from and read into plain values by member name."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from fake_dcmi import api

_FORMATS = {
    "char": "b", "signed char": "b", "unsigned char": "B", "_Bool": "?", "unsigned short": "H",
    "int": "i", "unsigned int": "I", "float": "f", "long": "q", "unsigned long": "Q",
    "unsigned long long": "Q", "double": "d",
}  # fmt: skip


def pack(tag: str, values: Mapping[str, Any]) -> bytes:
    """The bytes of `struct tag`; members that are left out are zero. A member may be a number, a
    list of numbers, a text, bytes, or a mapping for a struct inside."""
    layout = api.structs()[tag]
    out = bytearray(layout.size)
    members = {field.name: field for field in layout.fields}
    for name, value in values.items():
        put(out, members[name], value)
    return bytes(out)


def put(out: bytearray, field: api.Field, value: Any) -> None:
    """Write one member in its place."""
    if isinstance(value, Mapping):
        inner = field.type.removeprefix("struct ").removeprefix("union ")
        value = pack(inner, value)
    if isinstance(value, str):
        value = value.encode()[: field.size - 1]
    if isinstance(value, (bytes, bytearray)):
        out[field.offset : field.offset + len(value[: field.size])] = value[: field.size]
        return
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    code = _FORMATS.get(field.type, "i")
    size = struct.calcsize(code)
    for number, item in enumerate(items[: field.size // size]):
        struct.pack_into("<" + code, out, field.offset + number * size, wrapped(item, code))


def wrapped(value: Any, code: str) -> Any:
    """A number as the C type holds it."""
    if code in "fd":
        return float(value)
    if code == "?":
        return bool(value)
    bits = struct.calcsize(code) * 8
    value = int(value) & (2**bits - 1)
    if code in "bhiq" and value >= 2 ** (bits - 1):
        value -= 2**bits
    return value


def unpack(tag: str, raw: bytes) -> dict[str, Any]:
    """The members of `struct tag`: numbers, lists, and bytes for characters and inner structs."""
    out: dict[str, Any] = {}
    for field in api.structs()[tag].fields:
        part = raw[field.offset : field.offset + field.size]
        code = _FORMATS.get(field.type)
        if code is None and not field.type.startswith(("struct", "union")):
            code = "i"
        if code is None or (field.type in ("char", "unsigned char") and field.array):
            out[field.name] = part
            continue
        numbers = list(struct.unpack(f"<{field.size // struct.calcsize(code)}{code}", part))
        out[field.name] = numbers if field.array else numbers[0]
    return out


def text(raw: bytes) -> str:
    """A zero-ended text out of a character array."""
    return raw.split(b"\0", 1)[0].decode(errors="replace")
