"""Host files: as planned, accepted by the clients' checks, repeatable."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from fake_dcmi import host_files, place
from fake_dcmi.image import ImageWriter
from simulator.faces import image_state, pci_cards
from simulator.hardware.faults import fault_levels
from simulator.hardware.model import Hardware, load_profile
from simulator.plugin import library


def made(root: Path, *breaks: str) -> Path:
    files = host_files.plan(
        phy_ids=range(8),
        driver_version="25.2.0",
        fault_levels=fault_levels(),
        pci=pci_cards(Hardware(load_profile("atlas-800t-a2-910b3"))),
        breaks=frozenset(breaks),
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


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ("library-missing", "missing"),
        ("library-group-writable", "refused"),
        ("directory-group-writable", "refused"),
    ],
)
def test_broken_libraries_are_refused(broken: str, kind: str, tmp_path: Path) -> None:
    with pytest.raises(library.LibraryRefused) as refusal:
        choose(made(tmp_path / "node", broken))
    assert refusal.value.kind == kind


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_library_of_another_owner_is_refused(tmp_path: Path) -> None:
    with pytest.raises(library.LibraryRefused):
        choose(made(tmp_path / "node", "library-owner"))


def facts(root: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        content = b""
        if path.is_symlink():
            content = os.readlink(path).encode()
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        found[str(path.relative_to(root))] = (mode, content)
    return found


@pytest.mark.parametrize("broken", [b for b in host_files.BREAKS if b != "library-owner"])
def test_every_break_changes_what_it_says_and_nothing_else(broken: str, tmp_path: Path) -> None:
    whole, other = facts(made(tmp_path / "whole")), facts(made(tmp_path / "broken", broken))
    changed = {path for path in whole.keys() | other.keys() if whole.get(path) != other.get(path)}
    assert changed
    words = {
        "library": "libdcmi", "directory": "lib64/driver", "hccn-tool": "hccn_tool",
        "npu-smi": "npu-smi", "version-info": "version.info", "install": "ascend_install",
        "fault-codes": "faultCode", "manager": "davinci_manager", "devices": "dev/davinci",
        "pci": "sys/bus", "numa": "numa_node",
    }  # fmt: skip
    word = next(word for head, word in words.items() if broken.startswith(head))
    assert all(word in path for path in changed), changed


def test_kernel_files_tell_where_a_card_sits(tmp_path: Path) -> None:
    root = made(tmp_path / "node")
    card = root / "sys/bus/pci/devices/0000:c5:00.0"
    assert (card / "vendor").read_text() == "0x19e5\n"
    assert (card / "class").read_text() == "0x120000\n"
    assert (card / "numa_node").read_text() == "1\n"
    assert (root / "sys/devices/system/node/node1/cpulist").read_text().startswith("96-119")


def test_hccn_tool_is_reached_without_any_symbolic_link(tmp_path: Path) -> None:
    root = made(tmp_path / "node")
    path = root / host_files.HCCN_TOOL
    assert path.resolve() == path
    assert os.access(path, os.X_OK)
    linked = made(tmp_path / "linked", "hccn-tool-symlink") / host_files.HCCN_TOOL
    assert linked.is_symlink()
    assert os.access(linked, os.X_OK)


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
