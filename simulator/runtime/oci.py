"""From a pod's container and the kubelet's options to an OCI config.json. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What runc lets every container do with devices: create nodes, use the harmless ones.
_BASE_RULES = ({"allow": False, "access": "rwm"},)
_MOUNTS: tuple[tuple[str, str, str, list[str]], ...] = (
    ("/proc", "proc", "proc", []),
    ("/dev", "tmpfs", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
    ("/dev/pts", "devpts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666"]),
    ("/dev/shm", "tmpfs", "shm", ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
    ("/sys", "sysfs", "sysfs", ["nosuid", "noexec", "nodev", "ro"]),
    ("/tmp", "tmpfs", "tmpfs", ["nosuid", "nodev", "mode=1777"]),
)
_CAPABILITIES = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"]


def container_spec(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    argv: Sequence[str],
    rootfs: str,
    envs: Mapping[str, str],
    image_env: Mapping[str, str],
    container_id: str,
) -> dict[str, Any]:
    """The config of one container; later variables win: image, pod, then the device plugin."""
    merged = dict(image_env)
    merged.update({e["name"]: str(e.get("value", "")) for e in container.get("env") or ()})
    merged.update(envs)
    metadata = pod["metadata"]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(argv),
            "env": [PATH, *(f"{key}={value}" for key, value in merged.items())],
            "cwd": str(container.get("workingDir") or "/"),
            "capabilities": {
                name: list(_CAPABILITIES) for name in ("bounding", "effective", "permitted")
            },
            "noNewPrivileges": True,
        },
        "root": {"path": rootfs, "readonly": False},
        "hostname": str(metadata["name"]),
        "mounts": [
            {"destination": where, "type": kind, "source": source, "options": list(options)}
            for where, kind, source, options in _MOUNTS
        ],
        "annotations": {
            "io.kubernetes.cri.container-name": str(container["name"]),
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.sandbox-name": str(metadata["name"]),
            "io.kubernetes.cri.sandbox-namespace": str(metadata["namespace"]),
            "io.kubernetes.cri.sandbox-uid": str(metadata["uid"]),
        },
        "linux": {
            "cgroupsPath": f"/npu-testbed/{container_id}",
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
            "resources": {"devices": [dict(rule) for rule in _BASE_RULES]},
            "devices": [],
        },
    }


def argv_of(
    container: Mapping[str, Any], *, entrypoint: Sequence[str], arguments: Sequence[str] = ()
) -> list[str]:
    """The pod's command replaces the image's entrypoint and arguments, its args the arguments."""
    command = container.get("command")
    words = [*(entrypoint if command is None else command)]
    if container.get("args") is not None:
        words += container["args"]
    elif command is None:
        words += arguments
    return [str(word) for word in words]
