"""Where testbeds live, and how another process finds a running one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from simulator.errors import HostError

DESCRIPTION = "testbed.json"


def base_directory() -> Path:
    """Where testbeds live unless told otherwise: root's in /var/lib, a user's in the home."""
    if os.geteuid() == 0:
        return Path("/var/lib/npu-testbed")
    return Path.home() / ".npu-testbed"


def directory_of(given: Path | None) -> Path:
    """The directory that `--dir` means."""
    return given.absolute() if given else base_directory() / "up"


def read_description(directory: Path) -> dict[str, Any]:
    """The running testbed's description; HostError when there is none."""
    try:
        found: dict[str, Any] = json.loads((directory / DESCRIPTION).read_text())
    except (OSError, ValueError):
        raise HostError(f"no testbed runs in {directory}. Next: npu-testbed up.") from None
    return found
