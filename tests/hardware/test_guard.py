"""A machine with real NPUs is told apart from one without, by what the kernel says."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import HostError
from simulator.guard import PERMISSION, find_real_npus, refuse_real_npus


def pci(root: Path, address: str, vendor: str, kind: str) -> None:
    place = root / "sys/bus/pci/devices" / address
    place.mkdir(parents=True)
    (place / "vendor").write_text(f"{vendor}\n")
    (place / "class").write_text(f"{kind}\n")


def test_ordinary_machines_are_let_through(tmp_path: Path) -> None:
    assert find_real_npus(tmp_path) == []
    pci(tmp_path, "0000:00:01.0", "0x8086", "0x120000")  # somebody else's accelerator
    pci(tmp_path, "0000:00:02.0", "0x19e5", "0x020000")  # a Huawei network card
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/devices").write_text("Character devices:\n  1 mem\n")
    assert find_real_npus(tmp_path) == []
    refuse_real_npus(tmp_path)


def test_real_npus_stop_it_unless_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PERMISSION, raising=False)
    pci(tmp_path, "0000:c1:00.0", "0x19e5", "0x120000")
    with pytest.raises(HostError, match=r"real NPUs \(PCI device 0000:c1:00.0") as refusal:
        refuse_real_npus(tmp_path)
    assert PERMISSION in str(refusal.value)
    monkeypatch.setenv(PERMISSION, "1")
    refuse_real_npus(tmp_path)


def test_a_loaded_driver_is_enough(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/devices").write_text("Character devices:\n236 devdrv-cdev\n")
    assert find_real_npus(tmp_path) == ["/proc/devices names devdrv-cdev"]
