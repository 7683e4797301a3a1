"""Which libdcmi.so a plugin may load: search order and safety rules, on file facts alone.

The rules are those of the vendor's plugin
(Ascend/mind-cluster:component/ascend-common/common-utils/utils/path.go), with the node's root in
the place of `/`: the file and each directory above it belong to root (or to the user who runs the
testbed) and nobody else may write to them. Touches no file itself.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

MAX_SEARCH_LENGTH = 1024
MAX_DEPTH = 20

# Where the driver package puts the library, relative to the node's root.
DRIVER_DIRECTORIES = (
    "usr/local/Ascend/driver/lib64",
    "usr/local/Ascend/driver/lib64/driver",
    "usr/local/Ascend/driver/lib64/common",
)
LIBRARY = "libdcmi.so"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFact:
    """Owner and mode of one path; `mode` as stat gives it."""

    mode: int
    uid: int


Lookup = Callable[[str], FileFact | None]


class LibraryRefused(Exception):
    """No library may be loaded. `kind` is `missing` or `refused`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def choose(lookup: Lookup, *, owners: frozenset[int], directories: tuple[str, ...]) -> str:
    """First library that exists and is safe; paths are relative to the node's root."""
    if len(":".join(directories)) > MAX_SEARCH_LENGTH:
        raise LibraryRefused(
            "missing", f"search path is longer than {MAX_SEARCH_LENGTH} characters"
        )
    refusals = []
    for directory in directories:
        path = f"{directory}/{LIBRARY}"
        if lookup(path) is None:
            continue
        refusal = _unsafe(path, lookup, owners)
        if refusal is None:
            return path
        refusals.append(refusal)
    if refusals:
        raise LibraryRefused("refused", refusals[0])
    looked = ", ".join(f"/{directory}" for directory in directories)
    raise LibraryRefused("missing", f"{LIBRARY} not found in {looked}")


def _unsafe(path: str, lookup: Lookup, owners: frozenset[int]) -> str | None:
    places = [PurePosixPath(path), *PurePosixPath(path).parents]
    if len(places) > MAX_DEPTH:
        return f"/{path}: deeper than {MAX_DEPTH} levels"
    for place in places:
        name = "" if str(place) == "." else str(place)
        fact = lookup(name)
        if fact is None:
            return f"/{name}: cannot be examined"
        if fact.uid not in owners:
            return f"check uid or mode failed: /{name} belongs to uid {fact.uid}"
        if stat.S_IMODE(fact.mode) & 0o022:
            mode = stat.S_IMODE(fact.mode)
            return (
                f"check uid or mode failed: /{name} has mode {mode:04o}, group or others may write"
            )
    return None
