"""Label and field selectors. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from simulator.cluster.errors import bad_request

Object = dict[str, Any]
Claim = Callable[[Object], bool]

_SET = re.compile(r"\s*([^\s!=(),]+)\s+(in|notin)\s+\(([^)]*)\)\s*")


def label_selector(text: str) -> Claim:
    """`a=b,c!=d,e,!f,g in (x,y),h notin (z)`."""
    claims = [_label_claim(part) for part in _split(text)]
    return lambda obj: all(claim(obj["metadata"].get("labels") or {}) for claim in claims)


def field_selector(text: str) -> Claim:
    """`spec.nodeName=n1,status.phase!=Failed`; an absent field counts as empty."""
    claims: list[Claim] = []
    for part in _split(text):
        path, negated, value = _equation(part)
        if value is None:
            raise bad_request(f'invalid field selector "{text}": {part} has no value')
        claims.append(partial(_field_claim, path, value, negated))
    return lambda obj: all(claim(obj) for claim in claims)


def _field_claim(path: str, value: str, negated: bool, obj: Object) -> bool:
    return (_field(obj, path) == value) != negated


def _split(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += letter
    return [part.strip() for part in [*parts, current] if part.strip()]


def _equation(part: str) -> tuple[str, bool, str | None]:
    for sign in ("!=", "==", "="):
        name, found, value = part.partition(sign)
        if found:
            return name.strip(), sign == "!=", value.strip()
    return part, False, None


def _label_claim(part: str) -> Callable[[Object], bool]:
    match = _SET.fullmatch(part)
    if match:
        name, word, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        return lambda labels: (labels.get(name) in values) == (word == "in")
    name, negated, value = _equation(part)
    if value is not None:
        return lambda labels: (labels.get(name) == value) != negated
    if name.startswith("!"):
        return lambda labels: name[1:].strip() not in labels
    return lambda labels: name in labels


def _field(obj: Object, path: str) -> str:
    current: Any = obj
    for key in path.split("."):
        current = current.get(key) if isinstance(current, dict) else None
    if isinstance(current, bool):
        return str(current).lower()
    return "" if current is None else str(current)
