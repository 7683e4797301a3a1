"""Host files: as planned, accepted by the clients' checks, repeatable."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from fake_dcmi import host_files, place
from fake_dcmi.host_files import LibraryState
from fake_dcmi.image import ImageWriter
from simulator.faces import image_state
from simulator.hardware.faults import fault_levels
from simulator.hardware.model import Hardware, load_profile
from simulator.plugin import library


def made(root: Path, state: LibraryState = "ok") -> Path:
    files = host_files.plan(
        phy_ids=range(8), driver_version="25.2.0", fault_levels=fault_levels(), library=state
    )
    place.materialize(files, root)
    return root


def lookup(root: Path) -> library.Lookup:
    def fact(path: str) -> library.FileFact | None:
        try:
            found = os.lstat(root / path)
        except OSError:
            return None
        return library.FileFact(mode=found.st_mode, uid=found.st_uid)

    return fact


def choose(root: Path) -> str:
    owners = frozenset({0, os.geteuid()})
    return library.choose(lookup(root), owners=owners, directories=library.DRIVER_DIRECTORIES)


def test_clients_accept_the_library_and_find_the_image_by_its_place(tmp_path: Path) -> None:
    root = made(tmp_path / "node")
    assert choose(root) == host_files.LIBRARY
    hardware = Hardware(load_profile("atlas-800t-a2-910b3"))
    ImageWriter(root / host_files.IMAGE, image_state(hardware), boot_id=1).close()
    done = subprocess.run(
        [str(root / host_files.NPU_SMI), "info", "-l"],
        env={"LD_LIBRARY_PATH": str((root / host_files.LIBRARY).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Total Count                    : 8" in done.stdout


@pytest.mark.parametrize(("state", "kind"), [("missing", "missing"), ("group-writable", "refused")])
def test_broken_libraries_are_refused(state: LibraryState, kind: str, tmp_path: Path) -> None:
    with pytest.raises(library.LibraryRefused) as refusal:
        choose(made(tmp_path / "node", state))
    assert refusal.value.kind == kind


def test_placing_twice_changes_nothing(tmp_path: Path) -> None:
    def picture(root: Path) -> dict[str, int]:
        return {
            str(path.relative_to(root)): path.lstat().st_mode for path in sorted(root.rglob("*"))
        }

    first = picture(made(tmp_path / "node"))
    assert picture(made(tmp_path / "node")) == first
    assert sum(name.startswith("dev/davinci") for name in first) == 9
    if os.geteuid() == 0:
        assert stat.S_ISCHR(first["dev/davinci0"]) or stat.S_ISREG(first["dev/davinci0"])
