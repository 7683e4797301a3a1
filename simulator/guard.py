"""Real NPUs: on a machine that has some, a testbed does nothing unless it is told to.

Looks at what the kernel says, never at a driver library: that could be ours.
"""

from __future__ import annotations

import os
from pathlib import Path

from simulator.errors import HostError

PERMISSION = "NPU_TESTBED_ON_REAL_NPUS"
VENDOR = "0x19e5"
ACCELERATOR_CLASS = "0x1200"
DRIVER_WORDS = ("davinci", "devdrv-cdev")


def find_real_npus(root: Path = Path("/")) -> list[str]:
    """What speaks for real NPUs below `root`, in words; empty on any other machine."""
    found = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        is_ours = _text(device / "vendor") == VENDOR
        if is_ours and _text(device / "class").startswith(ACCELERATOR_CLASS):
            found.append(f"PCI device {device.name} is a Huawei accelerator")
    majors = _text(root / "proc/devices")
    found += [f"/proc/devices names {word}" for word in DRIVER_WORDS if word in majors]
    return found


def refuse_real_npus(root: Path = Path("/")) -> None:
    """HostError on a machine with real NPUs, unless the environment allows it."""
    found = find_real_npus(root)
    if found and not os.environ.get(PERMISSION):
        raise HostError(
            f"this machine has real NPUs ({found[0]}); a testbed here could be taken for them. "
            f"Next: use another machine, or set {PERMISSION}=1 if you are sure."
        )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
