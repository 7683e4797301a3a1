"""Calls that go over the socket to the simulator: their arguments out of bytes, answers into bytes.

The generated C puts the arguments one behind the other: numbers as 8 bytes, structs as they are;
the answer has the plain out parameters first, then the structs. A broken message raises ValueError.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fake_dcmi import api, calls, layout
from fake_dcmi.image import function_numbers

REQUEST_SIZE = ctypes.sizeof(layout.Request)
_INT_SIZES = {"unsigned int": 4, "int": 4, "unsigned char": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One call: which function, about which chip, with which arguments (numbers, and structs as
    bytes). `is_privileged` false: it came from a plain container."""

    function: str
    card_id: int
    device_id: int
    is_privileged: bool
    arguments: Mapping[str, Any]


def parse_head(raw: bytes) -> tuple[str, layout.Request, int]:
    """(function name, the head, bytes that follow)."""
    head = layout.Request.from_buffer_copy(raw)
    names = {number: name for name, number in function_numbers().items()}
    name = names.get(head.function)
    if name is None or calls.table()[name].kind != "ask":
        raise ValueError(f"function number {head.function} is not one that is asked for")
    if head.size > layout.MAX_MESSAGE:
        raise ValueError(f"{head.size} bytes of arguments, wanted at most {layout.MAX_MESSAGE}")
    return name, head, int(head.size)


def parse(name: str, head: Any, body: bytes) -> Ask:
    """The call behind a request."""
    call = calls.table()[name]
    arguments: dict[str, Any] = {}
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        part = body[at : at + size]
        if len(part) != size:
            raise ValueError(f"{name}: {len(body)} bytes of arguments, wanted {at + size}")
        at += size
        return part

    for param in call.arguments():
        if param.direction == "out" and param.name not in call.sized:
            continue
        target = calls.pointed_struct(param)
        if param.name in call.sized:
            arguments[param.name] = body[at : len(body) - 8]
            at = len(body) - 8
        elif target is not None and param.is_pointer and "count" in arguments:
            count = arguments["count"]
            arguments[param.name] = [take(target.size) for _ in range(count)]
        elif target is not None:
            arguments[param.name] = take(target.size)
        else:
            arguments[param.name] = struct.unpack("<q", take(8))[0]
    if at != len(body):
        raise ValueError(f"{name}: {len(body)} bytes of arguments, wanted {at}")
    return Ask(
        function=name,
        card_id=head.card_id,
        device_id=head.device_id,
        is_privileged=bool(head.is_privileged),
        arguments=arguments,
    )


def answer(name: str, code: int, values: Mapping[str, Any]) -> bytes:
    """The reply: code, and the out parameters when it is 0."""
    body = b""
    if code == 0:
        outs = [p for p in calls.table()[name].arguments() if p.direction == "out"]
        scalars = [p for p in outs if calls.pointed_struct(p) is None]
        structs = [p for p in outs if calls.pointed_struct(p) is not None]
        for param in scalars:
            size = _INT_SIZES.get(param.type.removesuffix("*").strip(), 4)
            number = int(values.get(param.name, 0)) & (2 ** (8 * size) - 1)
            body += number.to_bytes(size, "little")
        for param in structs:
            value = values.get(param.name, b"")
            parts = value if isinstance(value, list) else [value]
            target = calls.pointed_struct(param)
            assert target is not None
            body += b"".join(bytes(part).ljust(target.size, b"\0") for part in parts)
    return bytes(layout.Reply(code=code, size=len(body))) + body


def in_structs(name: str) -> dict[str, api.Struct]:
    """The structs a call takes, by parameter name."""
    found = {p.name: calls.pointed_struct(p) for p in calls.table()[name].arguments()}
    return {
        p.name: found[p.name]  # type: ignore[misc]
        for p in calls.table()[name].arguments()
        if found[p.name] is not None and p.direction != "out"
    }
