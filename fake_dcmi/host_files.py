"""The files a host with the driver package has, as a list; nothing is written here.

Paths are relative to the node's root, which stands for `/`. Owner and modes are those that the
vendor's clients demand: owned by whoever runs the testbed, writable by nobody else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

DRIVER = "usr/local/Ascend/driver"
LIBRARY = f"{DRIVER}/lib64/driver/libdcmi.so"
SECOND_LIBRARY = "usr/local/dcmi/libdcmi.so"
NPU_SMI = "usr/local/bin/npu-smi"
HCCN_TOOL = f"{DRIVER}/tools/hccn_tool"
FAULT_CODES = "usr/local/faultCode.json"
IMAGE = "run/npu-testbed/hardware.img"

SHARED_DEVICES = ("davinci_manager", "devmm_svm", "hisi_hdc", "dvpp_cmdlist")

LibraryState = Literal["ok", "missing", "group-writable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFile:
    """One file: a directory, a text, a compiled program by name, or a device file.

    # deviates: device files are /dev/null's numbers (1:3), since there is no kernel driver; they
    can be opened, and every container may use them."""

    path: str
    kind: Literal["dir", "text", "artifact", "device"]
    mode: int
    text: str = ""
    artifact: str = ""
    major: int = 1
    minor: int = 3


def plan(
    *,
    phy_ids: Sequence[int],
    driver_version: str,
    fault_levels: Mapping[str, Sequence[str]],
    library: LibraryState = "ok",
) -> tuple[HostFile, ...]:
    """Every file of a 910B host, parents before children."""
    files = [
        _dir(DRIVER),
        _dir(f"{DRIVER}/lib64"),
        _dir(f"{DRIVER}/lib64/driver"),
        _dir(f"{DRIVER}/lib64/common"),
        _dir(f"{DRIVER}/tools"),
        _dir("usr/local/dcmi"),
        _dir("usr/local/bin"),
        _dir("run/npu-testbed"),
        _dir("dev"),
        _dir("etc"),
        _text(f"{DRIVER}/version.info", f"Version={driver_version}\nascendhal_version=7.35.23\n"),
        _text(
            "etc/ascend_install.info",
            "Driver_Install_Type=full\nDriver_Install_Status=complete\n"
            f"Driver_Install_Path_Param=/{DRIVER.removesuffix('/driver')}\n",
        ),
        _text(FAULT_CODES, json.dumps({key: list(codes) for key, codes in fault_levels.items()})),
        HostFile(path=NPU_SMI, kind="artifact", mode=0o755, artifact="npu-smi"),
        HostFile(path=HCCN_TOOL, kind="artifact", mode=0o755, artifact="hccn_tool"),
    ]
    if library != "missing":
        mode = 0o664 if library == "group-writable" else 0o644
        files += [
            HostFile(path=path, kind="artifact", mode=mode, artifact="libdcmi.so")
            for path in (LIBRARY, SECOND_LIBRARY)
        ]
    names = [*SHARED_DEVICES, *(f"davinci{phy_id}" for phy_id in phy_ids)]
    files += [HostFile(path=f"dev/{name}", kind="device", mode=0o660) for name in names]
    return tuple(files)


def _dir(path: str) -> HostFile:
    return HostFile(path=path, kind="dir", mode=0o755)


def _text(path: str, text: str) -> HostFile:
    return HostFile(path=path, kind="text", mode=0o644, text=text)
