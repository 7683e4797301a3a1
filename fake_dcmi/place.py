"""Writes a host's files below a directory. Real device files where that is permitted, plain files
elsewhere; it says which."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from fake_dcmi import native
from fake_dcmi.host_files import HostFile

PROGRAMS = "fake_dcmi"


def materialize(files: Iterable[HostFile], root: Path) -> Literal["char", "file"]:
    """Make every file below `root`; what is there already is replaced. Says what devices became."""
    devices: Literal["char", "file"] = "char"
    _directory(root, 0o755)
    for file in files:
        path = root / file.path
        for parent in reversed(path.relative_to(root).parents):
            _directory(root / parent, 0o755)
        if file.kind == "dir":
            _directory(path, file.mode)
            continue
        if path.is_symlink() or path.exists():
            path.unlink()
        if file.kind == "text":
            path.write_text(file.text)
        elif file.kind == "artifact":
            shutil.copyfile(native.find(PROGRAMS, file.artifact), path)
        elif file.kind == "link":
            path.symlink_to(file.text)
            continue
        elif not _make_device(path, file):
            devices = "file"
        os.chmod(path, file.mode)
        if file.uid is not None and os.geteuid() == 0:
            os.chown(path, file.uid, file.uid)
    return devices


def _directory(path: Path, mode: int) -> None:
    if not path.is_dir():
        path.mkdir(parents=True)
        os.chmod(path, mode)


def _make_device(path: Path, file: HostFile) -> bool:
    """A device file that can be opened, or else a plain stand-in."""
    try:
        os.mknod(path, stat.S_IFCHR | file.mode, os.makedev(file.major, file.minor))
        os.close(os.open(path, os.O_RDWR))
        return True
    except OSError:
        path.unlink(missing_ok=True)
        path.write_bytes(b"")
        return False
