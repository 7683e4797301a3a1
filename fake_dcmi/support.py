"""Which product family supports which function. Data: `data/support.json`, with its source."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from fake_dcmi import calls

# Refused in a container or without root, whatever the product.
NOT_SIMULATED = -8255


@functools.cache
def _functions() -> dict[str, dict[str, Any]]:
    text = resources.files(__package__).joinpath("data/support.json").read_text()
    rows: dict[str, dict[str, Any]] = json.loads(text)["functions"]
    return rows


@functools.cache
def families() -> tuple[str, ...]:
    """The product families that are told apart."""
    text = resources.files(__package__).joinpath("data/support.json").read_text()
    return tuple(json.loads(text)["families"])


@functools.cache
def refusals(family: str) -> Mapping[str, int]:
    """Functions that a family refuses, with the code."""
    return {
        name: row["refuses"][family]
        for name, row in _functions().items()
        if family in row["refuses"]
    }


@functools.cache
def container_codes() -> Mapping[str, int]:
    """Functions that a plain container may not call, with the code."""
    return {name: row["container"] for name, row in _functions().items() if "container" in row}


@functools.cache
def needs_root() -> frozenset[str]:
    """Functions that only root may call."""
    return frozenset(name for name, row in _functions().items() if row.get("root"))


def markdown_table() -> str:
    """Function by product: `yes`, or the code it refuses with. Part of the documentation."""
    lines = [
        "| function | " + " | ".join(families()) + " | answered by |",
        "|---" * (len(families()) + 2) + "|",
    ]
    kinds = {
        "get": "image", "select": "image", "text": "image", "body": "image", "ask": "simulator",
        "refuse": "refuses: not simulated",
    }  # fmt: skip
    for name, call in calls.table().items():
        cells = []
        for family in families():
            code = refusals(family).get(name, 0)
            if not code and call.kind == "refuse":
                code = NOT_SIMULATED
            cells.append(str(code) if code else "yes")
        lines.append(f"| `{name}` | " + " | ".join(cells) + f" | {kinds[call.kind]} |")
    return "\n".join(lines) + "\n"
