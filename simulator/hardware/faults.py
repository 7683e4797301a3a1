"""The fault catalogue: which codes exist, how severe each is, and what the plugin makes of it.

Data: `data/fault_codes.json`, each with its source. # deviates: most codes have no public severity;
those get minor when their level keeps the device healthy and major otherwise.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from dataclasses import dataclass
from enum import IntEnum
from importlib import resources


class Severity(IntEnum):
    """Driver severities; a chip's health is the worst active one (notices do not count)."""

    NOTICE = 0
    MINOR = 1
    MAJOR = 2
    CRITICAL = 3


HEALTH_WORDS = ("OK", "Warning", "Alarm", "Critical")

# Levels as the plugin's faultCode.json names its lists, from harmless to severe.
LEVEL_KEYS = {
    "NotHandleFault": "NotHandleFaultCodes",
    "SubHealthFault": "SubHealthFaultCodes",
    "RestartRequest": "RestartRequestCodes",
    "RestartBusiness": "RestartBusinessCodes",
    "FreeRestartNPU": "FreeRestartNPUCodes",
    "RestartNPU": "RestartNPUCodes",
    "PreSeparateNPU": "PreSeparateNPUCodes",
    "SeparateNPU": "SeparateNPUCodes",
}
_HARMLESS = ("NotHandleFault", "SubHealthFault")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One catalogued fault code."""

    code: int
    level: str
    severity: Severity
    description: str
    node_type: str = ""
    sensor_type: str = ""
    plane: str = "chip"


@functools.cache
def catalogue() -> dict[int, FaultKind]:
    """Every code a device can raise, by number. Nine-digit codes are the plugin's own inventions
    and never come out of a driver, so they are not here."""
    text = resources.files(__package__).joinpath("data/fault_codes.json").read_text()
    kinds: dict[int, FaultKind] = {}
    for row in json.loads(text)["codes"]:
        if len(row["code"]) != len("0x80E24E00"):
            continue
        code = int(row["code"], 16)
        fallback = Severity.MINOR if row["level"] in _HARMLESS else Severity.MAJOR
        kinds[code] = FaultKind(
            code=code,
            level=row["level"],
            severity=Severity(row.get("severity", fallback)),
            description=row.get("description", ""),
            node_type=row.get("node_type") or "",
            sensor_type=row.get("sensor_type") or "",
            plane=row.get("plane", "chip"),
        )
    return kinds


@functools.cache
def plugin_codes() -> dict[int, str]:
    """The nine-digit codes that a device plugin makes up from other observations: code -> what it
    stands for. They do not fit a driver's event."""
    text = resources.files(__package__).joinpath("data/fault_codes.json").read_text()
    return {
        int(row["code"], 16): row.get("description", "no description")
        for row in json.loads(text)["codes"]
        if len(row["code"]) != len("0x80E24E00")
    }


@functools.cache
def names() -> dict[str, FaultKind]:
    """Every code by name: node type, sensor type and event state, as in `hbm-memory-001`. Codes
    that would share a name carry their own number behind it."""
    plain: dict[str, list[FaultKind]] = {}
    for kind in catalogue().values():
        plain.setdefault(_plain_name(kind), []).append(kind)
    return {
        name if len(kinds) == 1 else f"{name}-{kind.code:08x}": kind
        for name, kinds in plain.items()
        for kind in kinds
    }


def _plain_name(kind: FaultKind) -> str:
    words = [kind.node_type or f"node {kind.code >> 17 & 0x7FF:x}"]
    words.append(kind.sensor_type or f"sensor {kind.code >> 9 & 0xFF:x}")
    text = "-".join([*words, f"{kind.code & 0x1FF:03x}"]).lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


def parse(text: str) -> FaultKind:
    """A fault by hex code, with or without 0x, as npu-smi and the vendor's tables print it, or by
    name."""
    digits = text.strip().lower().removeprefix("0x")
    try:
        code = int(digits, 16)
    except ValueError:
        code = -1
    kinds = catalogue()
    if code in kinds:
        return kinds[code]
    if code in plugin_codes():
        raise LookupError(
            f"fault code {text!r} is made by the device plugin itself ({plugin_codes()[code]}); "
            "no driver raises it, so cause it instead"
        )
    if digits in names():
        return names()[digits]
    if "-" in digits.strip("-"):
        near = difflib.get_close_matches(digits, names(), n=1)
        hint = f", the nearest is {near[0]}" if near else ""
        raise LookupError(f"fault {text!r} is not one of the {len(kinds)} known ones{hint}")
    near = difflib.get_close_matches(digits.upper(), [f"{known:08X}" for known in kinds], n=1)
    hint = f", the nearest is {near[0]}" if near else ""
    raise LookupError(f"fault code {text!r} is not one of the {len(kinds)} known codes{hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchFault:
    """One fault of a super-pod's switch: alarm id, fault id (None: link down), the kind of device
    at the other end of the port (cpu, npu, L2 or na)."""

    code: str
    level: str
    alarm_id: int
    fault_id: int | None
    peer: str


@functools.cache
def switch_faults() -> dict[str, SwitchFault]:
    """Every catalogued switch fault by its code, `[alarm id,fault id,peer,port]`."""
    text = resources.files(__package__).joinpath("data/fault_codes.json").read_text()
    found = {}
    for row in json.loads(text)["switch_codes"]:
        alarm, fault, peer, _ = row["code"].strip("[]").split(",")
        found[row["code"]] = SwitchFault(
            code=row["code"],
            level=row["level"],
            alarm_id=int(alarm, 16),
            fault_id=None if fault == "na" else int(fault),
            peer=peer,
        )
    return found


def parse_switch(text: str) -> SwitchFault:
    """A switch fault by its code, with or without brackets and blanks."""
    code = f"[{text.replace(' ', '').strip('[]')}]"
    if code in switch_faults():
        return switch_faults()[code]
    near = difflib.get_close_matches(code, switch_faults(), n=1)
    hint = f", the nearest is {near[0]}" if near else ""
    raise LookupError(
        f"switch fault {text!r} is not one of the {len(switch_faults())} known codes{hint}"
    )


def fault_levels() -> dict[str, list[str]]:
    """The catalogue in the layout of the plugin's faultCode.json: level list -> codes."""
    lists: dict[str, list[str]] = {key: [] for key in LEVEL_KEYS.values()}
    for kind in catalogue().values():
        lists[LEVEL_KEYS[kind.level]].append(f"{kind.code:08X}")
    return lists


def c_table() -> str:
    """`fault_texts.h`: what the driver's library says about each code, sorted by code. The texts
    are one array and offsets into it, so that loading the library has no pointers to correct."""
    offsets: dict[str, int] = {}
    lines: list[str] = []
    end = 0
    kinds = sorted(catalogue().values(), key=lambda kind: kind.code)
    for kind in kinds:
        for text in (kind.node_type, kind.sensor_type, kind.description):
            if text not in offsets:
                offsets[text] = end
                end += len(text.encode()) + 1
                lines.append(f'    {json.dumps(text)} "\\0"')
    rows = [
        f"    {{0x{kind.code:08X}u, {offsets[kind.node_type]}, {offsets[kind.sensor_type]},"
        f" {offsets[kind.description]}}},"
        for kind in kinds
    ]
    return "\n".join(
        [
            "/* Generated by `python -m simulator.hardware.faults`; do not edit. */",
            "#ifndef NPU_TESTBED_FAULT_TEXTS_H",
            "#define NPU_TESTBED_FAULT_TEXTS_H",
            "",
            "static const char fault_words[] =",
            *lines,
            "    ;",
            "",
            "/* node, sensor, text: offsets into fault_words */",
            "static const struct fault_text {",
            "    unsigned int code;",
            "    unsigned int node;",
            "    unsigned int sensor;",
            "    unsigned int text;",
            "} fault_texts[] = {",
            *rows,
            "};",
            "",
            "#endif",
            "",
        ]
    )


if __name__ == "__main__":
    print(c_table(), end="")
