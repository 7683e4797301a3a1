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


def page() -> str:
    """The documentation page with the table of all functions."""
    return _HEAD + markdown_table()


_HEAD = """\
# Functions of libdcmi.so by product

Made by `python -m fake_dcmi.support > docs/dcmi-functions.md`; a test fails when it is not current.

`yes`: the call behaves. A number: the code it refuses with on that product, after the checks of its
arguments and ids. *image*: answered from the hardware image, without I/O. *simulator*: carried over
the socket next to the image; without a simulator it answers -8005. Functions that the published
driver supports on a product but that this testbed does not simulate (keys, certificates, firmware
upgrade, PRBS, traceroute and the like) refuse with -8255 too: nothing silently succeeds.

"""


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


if __name__ == "__main__":
    print(page(), end="")
