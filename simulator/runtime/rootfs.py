"""What is inside the local images, made from this machine's own files; nothing is downloaded.

One root file system serves every image: a shell (busybox when installed, else the host's), the
workload, and the shared libraries they and the driver's tools need.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from fake_dcmi import native

_DIRECTORIES = (
    "bin", "dev", "etc", "lib", "proc", "root", "run/npu-testbed", "sys", "tmp", "usr/local/bin",
    "usr/local/dcmi", "usr/local/Ascend/driver/lib64", "var",
)  # fmt: skip
_HOST_TOOLS = ("sh", "ls", "cat", "sleep", "env", "id")
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")
WORKLOAD = "/bin/npu-vector-add"


def build(directory: Path) -> None:
    """Make the file system at `directory`, which must not exist; complete or not at all."""
    fresh = directory.with_name(f".{directory.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    for name in _DIRECTORIES:
        (fresh / name).mkdir(parents=True)
    (fresh / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (fresh / "etc/group").write_text("root:x:0:\n")
    workload = native.find("simulator.runtime", "npu-vector-add")
    shutil.copy(workload, fresh / WORKLOAD.lstrip("/"))
    programs = [workload, native.find("fake_dcmi", "npu-smi")]
    busybox = Path("/bin/busybox")
    if busybox.is_file():
        _install_busybox(busybox, fresh)
    else:
        for tool in _HOST_TOOLS:
            found = shutil.which(tool, path="/bin:/usr/bin")
            if found:
                shutil.copy(found, fresh / "bin" / tool)
                programs.append(Path(found))
    if not _is_static(busybox) and busybox.is_file():
        programs.append(busybox)
    for library in _libraries(programs):
        target = fresh / str(library).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(library, target)
    fresh.replace(directory)


def _install_busybox(busybox: Path, root: Path) -> None:
    shutil.copy(busybox, root / "bin/busybox")
    listed = subprocess.run([str(busybox), "--list"], capture_output=True, text=True, check=True)
    for applet in listed.stdout.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")


def _is_static(program: Path) -> bool:
    return program.is_file() and not _libraries([program])


def _libraries(programs: Iterable[Path]) -> list[Path]:
    """Shared libraries and the loader, as ldd names them; none for a static program."""
    ldd = shutil.which("ldd") or "ldd"
    found: dict[Path, None] = {}
    for program in programs:
        listed = subprocess.run([ldd, str(program)], capture_output=True, text=True, check=False)
        for path in _LIBRARY.findall(listed.stdout):
            found[Path(path)] = None
    return list(found)
