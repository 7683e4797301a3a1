"""Where the compiled programs are, in an ordinary and in an editable installation."""

from __future__ import annotations

import importlib
from pathlib import Path


class NotBuilt(Exception):
    """A compiled program is missing; the text says how to make it."""


def find(package: str, name: str) -> Path:
    """The compiled file `name` of `package`."""
    for place in importlib.import_module(package).__path__:
        path = Path(place) / "_native" / name
        if path.is_file():
            return path
    raise NotBuilt(
        f"{name} of {package} is not compiled. Next: pip install . (it needs a C compiler)"
    )
