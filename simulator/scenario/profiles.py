"""A node's product: a shipped one by name, or a file of the user's that changes a shipped one.

The file is YAML: `base: <shipped product>` and any fields of `simulator.hardware.profile.Profile`.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from pathlib import Path
from typing import Any

from simulator.errors import ScenarioError
from simulator.hardware.profile import Profile, derive, load_profile, names
from simulator.scenario.loader import loads_record, read_text

SUFFIXES = (".yaml", ".yml")


def find_profile(text: str) -> Profile:
    """The product that `profile:` of a scenario means."""
    if not text.endswith(SUFFIXES):
        try:
            return load_profile(text)
        except LookupError as error:
            near = difflib.get_close_matches(text, names(), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ScenarioError(f"{error}, or a file that ends in .yaml.{hint}") from None
    return load_file(Path(text))


def load_file(path: Path) -> Profile:
    """Read and check a profile file."""
    record, places = loads_record(read_text(path), str(path), _file_type(), "the profile")
    given = {
        field.name: getattr(record, field.name)
        for field in dataclasses.fields(record)
        if field.name != "base" and getattr(record, field.name) is not None
    }
    if record.base not in names():
        near = difflib.get_close_matches(record.base, names(), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ScenarioError(
            f"{places['base']}: base {record.base!r} is unknown, "
            f"allowed: {', '.join(names())}.{hint}"
        )
    try:
        return derive(record.base, path.stem, given)
    except ValueError as error:
        field = str(error).split(" ", 1)[0]
        raise ScenarioError(f"{places.get(field, path)}: {error}.") from None


def _file_type() -> type[Any]:
    """`base`, and every field of a profile, each of which may be left out."""
    hints = typing.get_type_hints(Profile)
    fields: list[Any] = [("base", str)]
    fields += [
        (field.name, hints[field.name] | None, dataclasses.field(default=None))
        for field in dataclasses.fields(Profile)
        if field.name != "name"
    ]
    return dataclasses.make_dataclass("ProfileFile", fields, frozen=True, kw_only=True)
