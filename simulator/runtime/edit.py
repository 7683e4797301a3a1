"""What the Ascend runtime does to an OCI config before runc sees it. Pure.

Follows contracts measured on the vendor's program
(Ascend/mind-cluster:component/ascend-docker-runtime/runtime/process): ids keep their order and only
adjacent duplicates vanish; device nodes are appended in a fixed order; every container gets
ASCEND_DOCKER_RUNTIME=True. # deviates: driver files come as bind mounts in the config, not through
a prestart hook; vNPU creation is left out.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]

VISIBLE = "ASCEND_VISIBLE_DEVICES"
OPTIONS = "ASCEND_RUNTIME_OPTIONS"
MARK = "ASCEND_DOCKER_RUNTIME"
MAX_RIGHT_BORDER = 128

_NAME = re.compile(r"(Ascend(910|310B|310P|310)|npu)-(\d+)", re.ASCII)
_DIGITS = re.compile(r"[+-]?\d+", re.ASCII)

# Host paths that carry the driver into a container (the vendor's base.list).
DRIVER_PATHS = (
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/version.info",
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
)
LIBRARY_PATHS = (
    "/usr/local/Ascend/driver/lib64/common",
    "/usr/local/Ascend/driver/lib64/driver",
)


class EditError(Exception):
    """The container cannot be created; the text is the runtime's inner message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNode:
    """A host device file as stat shows it; `kind` is c, b, p, or `file` for a stand-in."""

    kind: str
    major: int
    minor: int
    mode: int
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """How the runtime sees its host. Paths are as inside the node (`/dev/davinci0`)."""

    device: Callable[[str], HostNode | None]
    exists: Callable[[str], bool]
    source: Callable[[str], str]
    has_manager: bool
    stand_ins_allowed: bool = False
    extra_mounts: tuple[str, ...] = ()


def parse_devices(value: str) -> list[int]:
    """Ids in the order given; the grammar and the texts are the vendor's."""
    ids: list[int] = []
    if "Ascend" in value or "npu" in value:
        for item in value.split(","):
            match = _NAME.fullmatch(item.strip())
            if match is None:
                raise EditError(
                    f"failed to parse ascend device : invalid device format: {item.strip()}"
                )
            ids.append(int(match[3]))
    else:
        for item in value.split(","):
            ids += _numbers(item.strip())
    return [x for index, x in enumerate(ids) if index == 0 or ids[index - 1] != x]


def _numbers(item: str) -> list[int]:
    parts = [part.strip() for part in item.split("-")]

    def number(text: str) -> int | None:
        return int(text) if _DIGITS.fullmatch(text) else None

    if len(parts) > 2:
        raise EditError(f"failed to parse device : invalid device range: {item}")
    if len(parts) == 1:
        single = number(parts[0])
        if single is None:
            raise EditError(f"failed to parse device : invalid single device parameter: {item}")
        return [single]
    left, right = number(parts[0]), number(parts[1])
    if left is None or left < 0:
        raise EditError(
            f"failed to parse device : invalid left boarder range parameter: {parts[0]}"
        )
    if right is None or right > MAX_RIGHT_BORDER:
        raise EditError(
            f"failed to parse device : invalid right boarder range parameter: {parts[1]}"
        )
    if left > right:
        raise EditError(
            f"failed to parse device : left boarder ({left}) should not be larger than the right "
            f"one({right})"
        )
    return list(range(left, right + 1))


def visible_devices(spec: Spec) -> list[int]:
    """The ids a config asks for; none when the variable is absent, empty or `void`."""
    process = spec.get("process")
    if process is None:
        raise EditError("failed to check ASCEND_VISIBLE_DEVICES parameter, err: empty process info")
    value = _last(process.get("env") or [], VISIBLE)
    if value in ("", "void"):
        return []
    try:
        return parse_devices(value)
    except EditError as error:
        raise EditError(f"failed to check ASCEND_VISIBLE_DEVICES parameter, err: {error}") from None


def edit(spec: Spec, host: Host) -> Spec:
    """The config as runc gets it; raises EditError and leaves `spec` alone when refused."""
    ids = visible_devices(spec)
    new = copy.deepcopy(spec)
    env = new["process"].get("env")
    if ids:
        if not host.has_manager:
            raise EditError("failed to find a valid manager")
        is_virtual = "VIRTUAL" in _first(env or [], OPTIONS)
        _add_devices(new, ids, host, is_virtual=is_virtual)
        _add_driver(new, host)
    if env is not None:
        _extend_library_path(new["process"]["env"], host)
        new["process"]["env"].append(f"{MARK}=True")
    return new


def _add_devices(spec: Spec, ids: list[int], host: Host, *, is_virtual: bool) -> None:
    head = "failed to add device to env: "
    for number in ids:
        source = f"/dev/{'v' if is_virtual else ''}davinci{number}"
        why = f"{head}failed to add davinci device to spec: "
        add_node(spec, source, f"/dev/davinci{number}", host, why)
    if host.device("/dev/dvpp_cmdlist") is not None:
        add_node(spec, "/dev/dvpp_cmdlist", "/dev/dvpp_cmdlist", host, head)
    manager = "/dev/davinci_manager"
    add_node(spec, manager, manager, host, f"{head}add davinci_manager to spec error: ")
    for path in ("/dev/devmm_svm", "/dev/hisi_hdc"):
        why = f"{head}failed to add common manage device to spec : "
        add_node(spec, path, path, host, why)


def add_node(spec: Spec, source: str, target: str, host: Host, why: str) -> None:
    """Append one host device file to a config, with its cgroup rule."""
    node = host.device(source)
    if node is None:
        raise EditError(f"{why}failed to get {source} info : no such file or directory")
    if node.kind == "file":
        if not host.stand_ins_allowed:
            raise EditError(f"{why}failed to get {source} info : not a device node")
        # Without root there are no real device files; the runner places the stand-in itself.
        spec.setdefault("linux", {}).setdefault("devices", []).append(
            {"path": target, "type": "file", "source": host.source(source)}
        )
        return
    linux = spec.get("linux") or {}
    if linux.get("resources") is None:
        raise EditError("runtime error: invalid memory address or nil pointer dereference")
    if linux.get("devices") is None:
        linux["devices"] = []
    linux["devices"].append(
        {
            "path": target,
            "type": node.kind,
            "major": node.major,
            "minor": node.minor,
            "fileMode": node.mode & 0o7777,
            "uid": node.uid,
            "gid": node.gid,
        }
    )
    if linux["resources"].get("devices") is None:
        linux["resources"]["devices"] = []
    linux["resources"]["devices"].append(
        {
            "allow": True,
            "type": node.kind,
            "major": node.major,
            "minor": node.minor,
            "access": "rwm",
        }
    )


def _add_driver(spec: Spec, host: Host) -> None:
    mounts = spec.get("mounts")
    if mounts is None:
        mounts = spec["mounts"] = []
    taken = {mount.get("destination") for mount in mounts}
    for path in (*DRIVER_PATHS, *host.extra_mounts):
        if path not in taken and host.exists(path):
            mounts.append(
                {
                    "destination": path,
                    "type": "bind",
                    "source": host.source(path),
                    "options": ["rbind", "rprivate", "ro", "nosuid"],
                }
            )


def _extend_library_path(env: list[str], host: Host) -> None:
    present = [path for path in LIBRARY_PATHS if host.exists(path)]
    old = _last(env, "LD_LIBRARY_PATH")
    new = [path for path in present if path not in old.split(":")]
    if not new:
        return
    value = ":".join([*new, old]) if old else ":".join(new)
    for index in range(len(env) - 1, -1, -1):
        if env[index].startswith("LD_LIBRARY_PATH="):
            env[index] = f"LD_LIBRARY_PATH={value}"
            return
    env.append(f"LD_LIBRARY_PATH={value}")


def _last(env: list[str], name: str) -> str:
    """Last setting wins; a malformed entry met first hides it."""
    for entry in reversed(env):
        key, equals, value = entry.partition("=")
        if not equals:
            return ""
        if key == name:
            return value
    return ""


def _first(env: list[str], name: str) -> str:
    for entry in env:
        key, equals, value = entry.partition("=")
        if not equals:
            return ""
        if key == name:
            return value
    return ""
