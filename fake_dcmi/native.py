"""Where the compiled programs are, in an ordinary and in an editable installation."""

from __future__ import annotations

from pathlib import Path

import fake_dcmi


class NotBuilt(Exception):
    """A compiled program is missing; the text says how to make it."""


def find(package: str, name: str) -> Path:
    """The compiled file `name` of `package`."""
    # An editable installation keeps the sources and what was compiled under two roots.
    for own in fake_dcmi.__path__:
        path = Path(own).parent.joinpath(*package.split("."), "_native", name)
        if path.is_file():
            return path
    raise NotBuilt(
        f"{name} of {package} is not compiled. Next: pip install . (it needs a C compiler)"
    )
