"""The compute workload's decisions: the Python twin of `npu-vector-add`.

For runs without processes. Messages and exit codes equal those of the C program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

LEFT, RIGHT = (1, 2, 3, 4), (10, 20, 30, 40)

OK = 0
NO_DEVICE = 10
NOT_GIVEN = 11
NO_LIBRARY = 12
UNHEALTHY = 13
DRIVER_TOO_OLD = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the program finds inside its container. `devices` are the davinci numbers present;
    `health` maps each to (return code, health); `driver` is None without a library."""

    devices: tuple[int, ...]
    driver: str | None
    health: dict[int, tuple[int, int]]
    cann: str = ""
    needs_driver: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What it prints, how it ends, and for how many seconds it runs beyond that."""

    exit_code: int
    output: str
    runs_s: float = 0.0


def run(arguments: Sequence[str], around: Surroundings) -> Outcome:
    """`--device N` asks for one card; otherwise the first that was given is used."""
    asked = _asked(arguments)
    if not around.devices:
        return Outcome(
            exit_code=NO_DEVICE,
            output="npu-vector-add: no device was given to this container: no /dev/davinciN\n",
        )
    number = around.devices[0] if asked is None else asked
    if number not in around.devices:
        return Outcome(
            exit_code=NOT_GIVEN,
            output=f"npu-vector-add: /dev/davinci{number} was not given to this container\n",
        )
    seen = " ".join(f"/dev/davinci{n}" for n in around.devices)
    head = f"devices: {seen}\n"
    if around.driver is None:
        return Outcome(
            exit_code=NO_LIBRARY,
            output=f"{head}npu-vector-add: libdcmi.so cannot be loaded\n",
        )
    if is_older(around.driver, around.needs_driver):
        return Outcome(
            exit_code=DRIVER_TOO_OLD,
            output=f"{head}npu-vector-add: driver {around.driver} is too old for CANN "
            f"{around.cann}, which needs {around.needs_driver} or newer\n",
        )
    ret, health = around.health[number]
    if ret or health:
        said = f"dcmi_get_device_health returned {ret}" if ret else f"health is {health}, not 0"
        return Outcome(
            exit_code=UNHEALTHY,
            output=f"{head}npu-vector-add: card {number} is not healthy: {said}\n",
        )
    total = [left + right for left, right in zip(LEFT, RIGHT, strict=True)]
    return Outcome(
        exit_code=OK,
        output=f"{head}card {number}: {list(LEFT)} + {list(RIGHT)} = {total}\n",
    )


def is_older(version: str, wanted: str) -> bool:
    """Compares dotted versions number by number; anything after the digits is ignored."""
    return bool(wanted) and _numbers(version) < _numbers(wanted)


def _numbers(version: str) -> list[int]:
    numbers = []
    for part in version.split(".")[:3]:
        digits = ""
        for letter in part:
            if not ("0" <= letter <= "9"):
                break
            digits += letter
        numbers.append(int(digits or "0"))
    return numbers + [0] * (3 - len(numbers))


def _asked(arguments: Sequence[str]) -> int | None:
    for option, value in pairwise(arguments):
        if option == "--device" and value.isdecimal():
            return int(value)
    return None
