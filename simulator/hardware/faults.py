"""The fault catalogue: which codes exist, how severe each is, and what the plugin makes of it.

Data: `data/fault_codes.json`, each with its source. # deviates: most codes have no public severity;
those get minor when their level keeps the device healthy and major otherwise.
"""

from __future__ import annotations

import difflib
import functools
import json
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
        )
    return kinds


def parse(text: str) -> FaultKind:
    """A code from hex text, with or without 0x, as npu-smi and the vendor's tables print it."""
    digits = text.strip().lower().removeprefix("0x")
    try:
        code = int(digits, 16)
    except ValueError:
        code = -1
    kinds = catalogue()
    if code in kinds:
        return kinds[code]
    near = difflib.get_close_matches(digits.upper(), [f"{known:08X}" for known in kinds], n=1)
    hint = f", the nearest is {near[0]}" if near else ""
    raise LookupError(f"fault code {text!r} is not one of the {len(kinds)} known codes{hint}")


def fault_levels() -> dict[str, list[str]]:
    """The catalogue in the layout of the plugin's faultCode.json: level list -> codes."""
    lists: dict[str, list[str]] = {key: [] for key in LEVEL_KEYS.values()}
    for kind in catalogue().values():
        lists[LEVEL_KEYS[kind.level]].append(f"{kind.code:08X}")
    return lists
