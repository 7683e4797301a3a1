"""The files a host with the driver package has, as a list; nothing is written here.

Paths are relative to the node's root, which stands for `/`. Owner and modes are those that the
vendor's clients demand: owned by whoever runs the testbed, writable by nobody else. `BREAKS` names
what can be wrong with them, one thing at a time.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

DRIVER = "usr/local/Ascend/driver"
LIBRARY = f"{DRIVER}/lib64/driver/libdcmi.so"
SECOND_LIBRARY = "usr/local/dcmi/libdcmi.so"
SWITCH_LIBRARY = f"{DRIVER}/lib64/driver/liblingqu-dcmi.so"
NPU_SMI = "usr/local/bin/npu-smi"
SECOND_NPU_SMI = "usr/local/sbin/npu-smi"
HCCN_TOOL = f"{DRIVER}/tools/hccn_tool"
FAULT_CODES = "usr/local/faultCode.json"
IMAGE = "run/npu-testbed/hardware.img"
VERSION_INFO = f"{DRIVER}/version.info"
INSTALL_INFO = "etc/ascend_install.info"
PCI_DEVICES = "sys/bus/pci/devices"
NUMA_NODES = "sys/devices/system/node"

SHARED_DEVICES = ("davinci_manager", "devmm_svm", "hisi_hdc", "dvpp_cmdlist")
FOREIGN_UID = 65534

# What `breaks` may say, and what it does.
BREAKS: Mapping[str, str] = {
    "library-missing": "libdcmi.so is not there",
    "library-group-writable": "libdcmi.so may be written by its group",
    "library-symlink": "libdcmi.so is a symbolic link",
    "library-owner": "libdcmi.so belongs to nobody (root only)",
    "directory-group-writable": "the library's directory may be written by its group",
    "hccn-tool-missing": "hccn_tool is not there",
    "hccn-tool-symlink": "hccn_tool is a symbolic link",
    "hccn-tool-fails": "hccn_tool ends with an error",
    "npu-smi-missing": "npu-smi is not there",
    "version-info-missing": "the driver's version.info is not there",
    "install-info-missing": "ascend_install.info is not there",
    "install-incomplete": "ascend_install.info says the installation did not finish",
    "fault-codes-missing": "the plugin's faultCode.json is not there",
    "manager-missing": "/dev/davinci_manager is not there",
    "devices-missing": "no /dev/davinciN is there",
    "devices-plain": "every /dev/davinciN is a plain file",
    "pci-missing": "the cards are not in /sys/bus/pci/devices",
    "numa-missing": "PCI devices tell no NUMA node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFile:
    """One file: a directory, a text, a compiled program by name, a device file, or a link.

    # deviates: device files are /dev/null's numbers (1:3), since there is no kernel driver; they
    can be opened, and every container may use them."""

    path: str
    kind: Literal["dir", "text", "artifact", "device", "link"]
    mode: int
    text: str = ""
    artifact: str = ""
    major: int = 1
    minor: int = 3
    uid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PciCard:
    """A chip on the PCI bus: address as the kernel writes it, ids, NUMA node, CPUs near it."""

    address: str
    vendor: int
    device: int
    numa_node: int
    cpus: str


def plan(
    *,
    phy_ids: Sequence[int],
    driver_version: str,
    fault_levels: Mapping[str, Sequence[str]],
    pci: Sequence[PciCard] = (),
    has_switch_library: bool = False,
    breaks: frozenset[str] = frozenset(),
) -> tuple[HostFile, ...]:
    """Every file of a host with these chips, parents before children."""
    unknown = breaks - set(BREAKS)
    if unknown:
        raise ValueError(
            f"breaks: {', '.join(sorted(unknown))} unknown, wanted {', '.join(BREAKS)}"
        )
    files = [
        *_directories(breaks),
        *_texts(driver_version, fault_levels, phy_ids, breaks),
        *_programs(has_switch_library, breaks),
        *_devices(phy_ids, breaks),
    ]
    if "pci-missing" not in breaks:
        for card in pci:
            files += _pci(card, breaks)
    for node in sorted({card.numa_node for card in pci}):
        cpus = ",".join(card.cpus for card in pci if card.numa_node == node)
        files += [_dir(f"{NUMA_NODES}/node{node}"), _text(f"{NUMA_NODES}/node{node}/cpulist", cpus)]
    return tuple(files)


def _directories(breaks: frozenset[str]) -> list[HostFile]:
    names = [
        DRIVER, f"{DRIVER}/lib64", f"{DRIVER}/lib64/driver", f"{DRIVER}/lib64/common",
        f"{DRIVER}/tools", "usr/local/dcmi", "usr/local/bin", "usr/local/sbin",
        "run/npu-testbed", "dev", "etc", "proc",
    ]  # fmt: skip
    made = [_dir(name) for name in names]
    if "directory-group-writable" in breaks:
        at = names.index(f"{DRIVER}/lib64/driver")
        made[at] = dataclasses.replace(made[at], mode=0o775)
    return made


def _texts(
    driver_version: str,
    fault_levels: Mapping[str, Sequence[str]],
    phy_ids: Sequence[int],
    breaks: frozenset[str],
) -> list[HostFile]:
    status = "failed" if "install-incomplete" in breaks else "complete"
    files = [
        _text("etc/hccn.conf", "".join(f"address_{n}=10.20.0.{11 + n % 200}\n" for n in phy_ids)),
        # The majors a loaded driver would have; see the note at HostFile about our device files.
        _text("proc/devices", "Character devices:\n  1 mem\n236 devdrv-cdev\n\nBlock devices:\n"),
    ]
    if "version-info-missing" not in breaks:
        files.append(_text(VERSION_INFO, f"Version={driver_version}\nascendhal_version=7.35.23\n"))
    if "install-info-missing" not in breaks:
        files.append(
            _text(
                INSTALL_INFO,
                f"Driver_Install_Type=full\nDriver_Install_Status={status}\n"
                f"Driver_Install_Path_Param=/{DRIVER.removesuffix('/driver')}\n",
            )
        )
    if "fault-codes-missing" not in breaks:
        levels = {key: list(codes) for key, codes in fault_levels.items()}
        files.append(_text(FAULT_CODES, json.dumps(levels)))
    return files


def _programs(has_switch_library: bool, breaks: frozenset[str]) -> list[HostFile]:
    files = []
    if "npu-smi-missing" not in breaks:
        files += [
            HostFile(path=path, kind="artifact", mode=0o755, artifact="npu-smi")
            for path in (NPU_SMI, SECOND_NPU_SMI)
        ]
    if "hccn-tool-fails" in breaks:
        text = "#!/bin/sh\necho 'Cmd execute failed!' >&2\nexit 1\n"
        files.append(HostFile(path=HCCN_TOOL, kind="text", mode=0o755, text=text))
    elif "hccn-tool-missing" not in breaks:
        files += _artifact(HCCN_TOOL, "hccn_tool", 0o755, is_link="hccn-tool-symlink" in breaks)
    if "library-missing" not in breaks:
        mode = 0o664 if "library-group-writable" in breaks else 0o644
        uid = FOREIGN_UID if "library-owner" in breaks else None
        for path in (LIBRARY, SECOND_LIBRARY):
            files += _artifact(
                path, "libdcmi.so", mode, is_link="library-symlink" in breaks, uid=uid
            )
    if has_switch_library:
        files += _artifact(SWITCH_LIBRARY, "liblingqu-dcmi.so", 0o644, is_link=False)
    return files


def _artifact(
    path: str, name: str, mode: int, *, is_link: bool, uid: int | None = None
) -> list[HostFile]:
    target = f"{path}.real" if is_link else path
    files = [HostFile(path=target, kind="artifact", mode=mode, artifact=name, uid=uid)]
    if is_link:
        files.append(HostFile(path=path, kind="link", mode=0o777, text=target.rsplit("/", 1)[1]))
    return files


def _devices(phy_ids: Sequence[int], breaks: frozenset[str]) -> list[HostFile]:
    gone = {"davinci_manager"} if "manager-missing" in breaks else set()
    names = [name for name in SHARED_DEVICES if name not in gone]
    files = [HostFile(path=f"dev/{name}", kind="device", mode=0o660) for name in names]
    if "devices-missing" in breaks:
        return files
    for phy_id in phy_ids:
        path = f"dev/davinci{phy_id}"
        if "devices-plain" in breaks:
            files.append(HostFile(path=path, kind="text", mode=0o660))
        else:
            files.append(HostFile(path=path, kind="device", mode=0o660))
    return files


def _pci(card: PciCard, breaks: frozenset[str]) -> list[HostFile]:
    place = f"{PCI_DEVICES}/{card.address}"
    texts = {
        "vendor": f"0x{card.vendor:04x}",
        "device": f"0x{card.device:04x}",
        "subsystem_vendor": f"0x{card.vendor:04x}",
        "subsystem_device": "0x0200",
        "class": "0x120000",
        "local_cpulist": card.cpus,
    }
    if "numa-missing" not in breaks:
        texts["numa_node"] = str(card.numa_node)
    return [_dir(place), *(_text(f"{place}/{name}", f"{text}\n") for name, text in texts.items())]


def _dir(path: str) -> HostFile:
    return HostFile(path=path, kind="dir", mode=0o755)


def _text(path: str, text: str) -> HostFile:
    return HostFile(path=path, kind="text", mode=0o644, text=text)
