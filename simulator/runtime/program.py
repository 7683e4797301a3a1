"""npu-testbed-runtime: the reference Ascend runtime as a program, usable as BinaryName.

On `create` it edits the bundle's config.json and then becomes the low-level runtime; for any other
verb it becomes it at once. Imports are kept few, for this runs at every container's start. A
failure is one line on standard error and in the run log, status 1, and nothing else, as the
vendor's program does it (Ascend/mind-cluster:component/ascend-docker-runtime/runtime/main.go).

NPU_TESTBED_ROOT is the node's root directory, `/` by default.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time

from simulator.runtime import edit

MAX_ARGUMENTS = 65534
_ALLOWED = re.compile(r"[A-Za-z0-9\-_./~=: ]+", re.ASCII)
_VERBS = ("create", "start", "checkpoint", "resume")
RUN_LOG = "var/log/ascend-docker-runtime/runtime-run.log"


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    text = " ".join(["npu-testbed-runtime", *arguments])
    if len(text) > MAX_ARGUMENTS or _ALLOWED.fullmatch(text) is None:
        print("command error", file=sys.stderr)
        return 1
    root = os.environ.get("NPU_TESTBED_ROOT", "/")
    try:
        if _verb(arguments) == "create":
            _edit_bundle(os.path.join(_bundle(arguments), "config.json"), root)
        low_level = _low_level()
    except edit.EditError as error:
        line = f"{time.strftime('%Y/%m/%d %H:%M:%S')} {error}"
        print(line, file=sys.stderr)
        _log(root, line)
        return 1
    return os.execv(low_level, [low_level, *arguments])  # noqa: S606 - that is its purpose


def _verb(arguments: list[str]) -> str:
    """The last word that is a verb wins, whatever its position."""
    verbs = [word for word in arguments if word in _VERBS]
    return verbs[-1] if verbs else ""


def _bundle(arguments: list[str]) -> str:
    """The word after --bundle or -b; the joined form is not understood."""
    bundle = ""
    for index, word in enumerate(arguments):
        if word in ("--bundle", "-b"):
            if index + 1 == len(arguments):
                raise edit.EditError("bundle option needs an argument")
            bundle = arguments[index + 1]
    return bundle or os.getcwd()


def _edit_bundle(path: str, root: str) -> None:
    try:
        with open(path, "r+b") as file:
            _check(path, file.fileno())
            spec = json.loads(file.read())
            if not isinstance(spec, dict):
                raise edit.EditError("config.json is not an object")
            edited = json.dumps(edit.edit(spec, host(root)), separators=(",", ":"))
            file.seek(0)
            file.truncate()
            file.write(edited.encode())
    except OSError as error:
        text = f"failed to modify spec file {path}: {(error.strerror or '').lower()}"
        raise edit.EditError(text) from None
    except ValueError as error:
        raise edit.EditError(f"failed to modify spec file {path}: {error}") from None
    except edit.EditError as error:
        raise edit.EditError(f"failed to modify spec file {path}: {error}") from None


def _check(path: str, descriptor: int) -> None:
    found = os.fstat(descriptor)
    if found.st_mode & 0o022:
        raise edit.EditError(f"write permission not right {path} {stat.filemode(found.st_mode)}")
    if found.st_uid not in (0, os.geteuid()):
        raise edit.EditError(f"owner not right {path} {found.st_uid}")


def host(root: str) -> edit.Host:
    """The real host below `root`."""

    def place(path: str) -> str:
        return os.path.join(root, path.lstrip("/"))

    def device(path: str) -> edit.HostNode | None:
        try:
            found = os.stat(place(path))
        except OSError:
            return None
        kinds = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}
        return edit.HostNode(
            kind=kinds.get(stat.S_IFMT(found.st_mode), "file"),
            major=os.major(found.st_rdev),
            minor=os.minor(found.st_rdev),
            mode=stat.S_IMODE(found.st_mode),
            uid=found.st_uid,
            gid=found.st_gid,
        )

    return edit.Host(
        device=device,
        exists=lambda path: os.path.exists(place(path)),
        source=place,
        has_manager=_has_manager(root),
        stand_ins_allowed=root != "/",
        extra_mounts=("/run/npu-testbed",),
    )


def _has_manager(root: str) -> bool:
    """Whether libdcmi.so is there, safe, and opens the driver."""
    import ctypes

    path = os.path.join(root, "usr/local/Ascend/driver/lib64/driver/libdcmi.so")
    try:
        if os.lstat(path).st_mode & 0o022:
            return False
        return bool(ctypes.CDLL(path).dcmi_init() == 0)
    except (OSError, AttributeError):
        return False


def _low_level() -> str:
    for name in ("docker-runc", "runc"):
        for directory in os.environ.get("PATH", "").split(":"):
            path = os.path.join(directory, name)
            if directory and os.access(path, os.X_OK) and os.path.isfile(path):
                return os.path.realpath(path)
    raise edit.EditError('failed to find the path of runc: exec: "runc": not found in $PATH')


def _log(root: str, line: str) -> None:
    path = os.path.join(root, RUN_LOG)
    try:
        os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        with os.fdopen(descriptor, "w") as file:
            file.write(line + "\n")
    except OSError as error:
        print(f"hwlog init failed, error is {error}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
