"""What each function answers: the table `data/calls.toml`, read, checked, and turned into C.

`python -m fake_dcmi.calls > fake_dcmi/csrc/calls.c` writes one entry point per function of the
interface; a test fails on drift. The Python twin interprets the same rows. Functions marked `body`
are written by hand on both sides.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from fake_dcmi import api, layout

NOT_SUPPORTED = -8255
INVALID_PARAMETER = -8001
# What a call answers while the library has no image (before dcmi_init): section 2.3 of the rules.
_WITHOUT_IMAGE = {"dcmi_get_device_logic_id": "NOT_READY"}
_UNWRAPPED = ("init", "init_v2")
_CARD, _DEVICE, _DEV = "card_id", "device_id", "dev_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text answer: chip field, out buffer, and the parameters with its size and length."""

    into: str
    source: str
    size: str | None = None
    length: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One function's behaviour; `kind` is one of get, text, select, body, ask, refuse."""

    name: str
    kind: str
    of: str = "chip"
    alive: bool = True
    mcu: bool = False
    out: Mapping[str, str] = field(default_factory=dict)
    text: Text | None = None
    at_least: int = 0
    select: str = ""
    cases: Mapping[int, str] = field(default_factory=dict)
    into: str = ""
    otherwise: int = INVALID_PARAMETER
    zero: int | None = None
    body: str = ""
    sized: Mapping[str, str] = field(default_factory=dict)
    reply: str = ""
    like: str = ""

    @property
    def function(self) -> api.Function:
        return api.functions()[self.name]

    @property
    def is_v2(self) -> bool:
        return self.name.startswith("dcmiv2_")

    def arguments(self) -> tuple[api.Param, ...]:
        """Parameters other than the ids of the chip or card the call is about."""
        ids = {"chip": (_CARD, _DEVICE, _DEV), "card": (_CARD,), "node": ()}[self.of]
        return tuple(p for p in self.function.params if p.name not in ids)


@functools.cache
def table() -> dict[str, Call]:
    """Every function of the interface with its behaviour, in the order of their numbers."""
    text = resources.files(__package__).joinpath("data/calls.toml").read_text()
    rows = tomllib.loads(text)
    unknown = set(rows) - set(api.functions())
    if unknown:
        raise AssertionError(f"calls.toml names functions nobody exports: {sorted(unknown)}")
    return {name: _resolve(name, rows) for name in api.functions()}


def _resolve(name: str, rows: Mapping[str, Any]) -> Call:
    row = rows.get(name)
    if row is None:
        return Call(name=name, kind="refuse", of=_natural_scope(name))
    if "like" in row:
        other = _resolve(row["like"], rows)
        mine, theirs = api.functions()[name], other.function
        ids = (_CARD, _DEVICE, _DEV)
        names = dict(
            zip(
                [p.name for p in theirs.params if p.name not in ids],
                [p.name for p in mine.params if p.name not in ids],
                strict=False,
            )
        )
        return _renamed(replace(other, name=name, like=row["like"]), names)
    kind = next(
        (key for key in ("text", "select", "body", "ask") if key in row),
        "get",
    )
    text = row.get("text")
    return Call(
        name=name,
        kind=kind,
        of=row.get("of", "chip"),
        alive=row.get("alive", True),
        mcu=row.get("mcu", False),
        out=row.get("out", {}),
        text=Text(
            into=text["into"],
            source=text["from"],
            size=text.get("size"),
            length=text.get("length"),
        )
        if text
        else None,
        at_least=row.get("at_least", 0),
        select=row.get("select", ""),
        cases={int(value): source for value, source in row.get("cases", {}).items()},
        into=row.get("into", ""),
        otherwise=row.get("otherwise", INVALID_PARAMETER),
        zero=row.get("zero"),
        body=row.get("body", ""),
        sized=row.get("bytes", {}),
        reply=row.get("reply", ""),
    )


def _natural_scope(name: str) -> str:
    names = {p.name for p in api.functions()[name].params}
    if _DEV in names or {_CARD, _DEVICE} <= names:
        return "chip"
    return "card" if _CARD in names else "node"


def _renamed(call: Call, names: Mapping[str, str]) -> Call:
    def new(path: str) -> str:
        head, dot, rest = path.partition(".")
        return names.get(head, head) + dot + rest

    return replace(
        call,
        out={new(path): source for path, source in call.out.items()},
        into=new(call.into) if call.into else "",
        select=new(call.select) if call.select else "",
        text=Text(
            into=new(call.text.into),
            source=call.text.source,
            size=new(call.text.size) if call.text.size else None,
            length=new(call.text.length) if call.text.length else None,
        )
        if call.text
        else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a value comes from: a number, or a field of a block, whole or one element."""

    number: int | None = None
    is_node: bool = False
    field: str = ""
    index: int | None = None
    whole: bool = False


def source(text: str) -> Source:
    """`field`, `field[3]`, `field[*]`, `node.field`, or a number."""
    if re.fullmatch(r"-?\d+", text):
        return Source(number=int(text))
    match = re.fullmatch(r"(node\.)?(\w+)(?:\[(\d+|\*)\])?", text)
    fields = layout.NODE_FIELDS if match and match[1] else layout.CHIP_FIELDS
    if match is None or match[2] not in fields:
        raise AssertionError(f"calls.toml: no such field: {text!r}")
    return Source(
        is_node=bool(match[1]),
        field=match[2],
        index=int(match[3]) if match[3] and match[3] != "*" else None,
        whole=match[3] == "*",
    )


def member(call: Call, path: str) -> tuple[api.Param, api.Field | None]:
    """The parameter, and the struct member when the path names one."""
    head, _, rest = path.partition(".")
    param = next(p for p in call.function.params if p.name == head)
    if not rest:
        return param, None
    struct = pointed_struct(param)
    if struct is None:
        raise AssertionError(f"calls.toml: {call.name}: {head} is no struct")
    return param, next(f for f in struct.fields if f.name == rest)


def pointed_struct(param: api.Param) -> api.Struct | None:
    """The struct that a parameter points at or is."""
    c_type = api.c_type(param.type).removesuffix(" *").removeprefix("const ")
    tag = c_type.removeprefix("struct ").removeprefix("union ")
    return api.structs().get(tag) if c_type.startswith(("struct ", "union ")) else None


# ---- C


def c_source() -> str:
    """`calls.c`: an entry point for every function."""
    head = [
        "/* Generated by `python -m fake_dcmi.calls`; do not edit. */",
        '#include "answers.h"',
        "",
    ]
    return "\n".join([*head, *(line for call in table().values() for line in _c_function(call))])


def _c_function(call: Call) -> Iterator[str]:
    function = call.function
    params = ", ".join(_declared(p) for p in function.params) or "void"
    if call.body in _UNWRAPPED:
        return
    yield f"EXPORT int {call.name}({params})"
    yield "{"
    yield "    struct call call;"
    yield ""
    yield from _unused(call)
    yield f"    if ({_conditions(call)})"
    body = list(_c_body(call))
    if len(body) == 1:
        yield f"        {body[0]}"
    else:
        yield "    {"
        yield from (f"        {line}" for line in body)
        yield "    }"
    yield "    return leave(&call);"
    yield "}"
    yield ""


def _declared(param: api.Param) -> str:
    ctype = api.c_type(param.type)
    return f"{ctype}{'' if ctype.endswith('*') else ' '}{param.name}"


def _unused(call: Call) -> Iterator[str]:
    """Parameters that no part of the function below reads."""
    text = "\n".join([_conditions(call), *_c_body(call)])
    for param in call.function.params:
        if not re.search(rf"\b{param.name}\b", text):
            yield f"    (void){param.name};"


def _ids(call: Call) -> tuple[str, str]:
    names = [p.name for p in call.function.params]
    if call.of == "node":
        return "NO_ID", "NO_ID"
    if _DEV in names:
        return f"(int){_DEV}", "0"
    return _CARD, _DEVICE if call.of == "chip" else "0"


def _conditions(call: Call) -> str:
    card, device = _ids(call)
    missing = _WITHOUT_IMAGE.get(call.name) or (
        "INNER_ERROR" if call.of == "node" else "INVALID_PARAMETER"
    )
    parts = [f"enter(&call, FN_{call.name}, {card}, {device}, {missing})"]
    pointers = [p.name for p in call.arguments() if p.is_pointer]
    if pointers and call.kind != "refuse":
        parts.append(f"needs(&call, {' && '.join(f'{name} != NULL' for name in pointers)})")
    if call.of != "node":
        chip = (
            f"chip_of_logic(&call, (unsigned int){_DEV})"
            if card == f"(int){_DEV}"
            else f"chip_of_pair(&call, {card}, {device})"
        )
        parts.append(f"needs_chip(&call, {chip})")
    parts.append("!is_refused(&call)")
    return " &&\n        ".join(parts)


def _c_body(call: Call) -> Iterator[str]:
    match call.kind:
        case "refuse":
            yield "call.code = NOT_SUPPORTED;"
        case "body":
            args = "".join(f", {p.name}" for p in call.arguments())
            yield f"answer_{call.body}(&call{args});"
        case "ask":
            yield from _c_ask(call)
        case "text":
            yield from _c_text(call)
        case _:
            yield from _c_reading(call)


def _c_reading(call: Call) -> Iterator[str]:
    node = call.of == "node"
    kind = "node" if node else "chip"
    block = "node_of(call.base)" if node else "call.chip"
    yield f"const struct image_{kind} *{kind};"
    yield "unsigned int looks = 0;"
    yield "uint32_t seen;"
    if call.kind == "select":
        yield "int which = -1;"
        yield f"switch ({call.select}) {{"
        for number, value in enumerate(call.cases):
            yield f"case {value}:"
            yield f"    which = {number};"
            yield "    break;"
        yield "}"
    yield "do {"
    yield f"    {kind} = look_at_{kind}({block}, &seen);"
    if not node:
        alive, mcu = ("true" if flag else "false" for flag in (call.alive, call.mcu))
        yield f"    call.code = chip_code(chip, {alive}, {mcu});"
        yield "    if (call.code != OK)"
        yield "        continue;"
    if call.kind == "select":
        yield from (f"    {line}" for line in _c_select(call))
    else:
        zeroed = {path.partition(".")[0] for path in call.out if "." in path}
        yield from (f"    memset({name}, 0, sizeof *{name});" for name in sorted(zeroed))
        for path, text in call.out.items():
            yield f"    {_assignment(call, path, text)}"
    yield f"}} while (is_stale(&{block}->sequence, seen, &looks, &call.code));"


def _c_select(call: Call) -> Iterator[str]:
    struct = "." in call.into
    head = call.into.partition(".")[0]
    yield "switch (which) {"
    for number, text in enumerate(call.cases.values()):
        yield f"case {number}:"
        if struct:
            yield f"    memset({head}, 0, sizeof *{head});"
        if call.zero is not None:
            yield f"    if (GET(chip->{text}) == 0) {{"
            yield f"        call.code = {call.zero};"
            yield "        break;"
            yield "    }"
        yield f"    {_assignment(call, call.into, text)}"
        yield "    break;"
    yield "default:"
    yield f"    call.code = {call.otherwise};"
    yield "}"


def _assignment(call: Call, path: str, text: str) -> str:
    param, target = member(call, path)
    place = f"{param.name}->{target.name}" if target else f"*{param.name}"
    origin = source(text)
    if origin.number is not None:
        return f"{place} = {origin.number};"
    block = "node" if origin.is_node else "chip"
    kind = (layout.NODE_FIELDS if origin.is_node else layout.CHIP_FIELDS)[origin.field][0]
    value = f"{block}->{origin.field}"
    if kind == "char":
        return f"copy_text({place}, sizeof {place}, {value}, sizeof {value});"
    if origin.whole:
        return f"COPY_ARRAY({place}, {value});"
    if origin.index is not None:
        value += f"[{origin.index}]"
    ctype = api.c_type(target.type if target else param.type.removesuffix("*").strip())
    return f"{place} = ({ctype})GET({value});"


def _c_text(call: Call) -> Iterator[str]:
    assert call.text is not None
    origin = source(call.text.source)
    kind = "node" if call.of == "node" else "chip"
    block = "node_of(call.base)" if kind == "node" else "call.chip"
    fields = layout.NODE_FIELDS if kind == "node" else layout.CHIP_FIELDS
    yield f"char text[{fields[origin.field][1]}];"
    yield f"const struct image_{kind} *{kind};"
    yield "unsigned int looks = 0;"
    yield "uint32_t seen;"
    yield "do {"
    yield f"    {kind} = look_at_{kind}({block}, &seen);"
    if kind == "chip":
        alive, mcu = ("true" if flag else "false" for flag in (call.alive, call.mcu))
        yield f"    call.code = chip_code(chip, {alive}, {mcu});"
    yield f"    copy_bytes(text, {kind}->{origin.field}, sizeof text);"
    yield f"}} while (is_stale(&{block}->sequence, seen, &looks, &call.code));"
    size = f"(long){call.text.size}" if call.text.size else "LONG_MAX"
    into = call.text.into
    if "unsigned" in next(p.type for p in call.function.params if p.name == into):
        into = f"(char *){into}"
    if call.at_least:
        yield f"if (call.code == OK && (long){call.text.size} < {call.at_least})"
        yield "    call.code = INVALID_PARAMETER;"
    yield "if (call.code == OK)"
    yield f"    call.code = place_text(text, sizeof text, {into}, {size});"
    if call.text.length:
        yield "if (call.code == OK)"
        yield f"    *{call.text.length} = (int)strnlen(text, sizeof text);"


def _c_ask(call: Call) -> Iterator[str]:
    sizes = []
    lines = []
    outs = []
    many = next((p.name for p in call.arguments() if p.name == "count" and not p.is_pointer), "")
    for param in call.arguments():
        if param.name in call.sized:
            size = call.sized[param.name]
            yield f"if ({size} > MAX_MESSAGE / 2) {{"
            yield "    call.code = INVALID_PARAMETER;"
            yield "    return leave(&call);"
            yield "}"
            lines.append(f"asked_at = put_bytes(asked, asked_at, {param.name}, {size});")
            sizes.append(f"{size}")
        elif param.direction == "out":
            outs.append(param)
        elif param.is_pointer:
            count = f" * (size_t){many}" if many else ""
            lines.append(
                f"asked_at = put_bytes(asked, asked_at, {param.name}, sizeof *{param.name}{count});"
            )
            sizes.append(f"sizeof *{param.name}{count}")
        elif pointed_struct(param):
            lines.append(
                f"asked_at = put_bytes(asked, asked_at, &{param.name}, sizeof {param.name});"
            )
            sizes.append(f"sizeof {param.name}")
        else:
            lines.append(f"asked_at = put_number(asked, asked_at, {param.name});")
            sizes.append("8")
    if many:
        yield f"if ({many} <= 0 || {many} > MAX_ASKED) {{"
        yield "    call.code = INVALID_PARAMETER;"
        yield "    return leave(&call);"
        yield "}"
    if call.reply:
        yield f"if ({call.reply} <= 0 || {call.reply} > MAX_ASKED) {{"
        yield "    call.code = INVALID_PARAMETER;"
        yield "    return leave(&call);"
        yield "}"
    if lines:
        yield f"unsigned char asked[{' + '.join(sizes)}];"
        yield "size_t asked_at = 0;"
        yield from lines
    sent = "asked, asked_at" if lines else "NULL, 0"
    if not outs:
        yield f"call.code = ask_simulator(&call, {sent}, NULL, 0);"
        return
    scalars = [p for p in outs if pointed_struct(p) is None]
    structs = [p for p in outs if pointed_struct(p) is not None]
    ordered = scalars + structs
    out_sizes = [
        f"sizeof *{p.name}" + (f" * (size_t){call.reply}" if call.reply and p in structs else "")
        for p in ordered
    ]
    yield f"unsigned char answer[{' + '.join(out_sizes)}];"
    yield "size_t answer_at = 0;"
    yield "memset(answer, 0, sizeof answer);"
    yield f"call.code = ask_simulator(&call, {sent}, answer, sizeof answer);"
    yield "if (call.code == OK) {"
    for param, size in zip(ordered, out_sizes, strict=True):
        yield f"    answer_at = take_bytes(answer, answer_at, {param.name}, {size});"
    yield "}"


if __name__ == "__main__":
    print(c_source(), end="")
