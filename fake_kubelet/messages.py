"""The messages between kubelet and device plugins as plain values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """What a plugin wants called besides Allocate."""

    pre_start_required: bool = False
    preferred_allocation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest:
    """What a plugin says of itself. `options` count only where the version takes them from here;
    `is_path`: the endpoint is a path of its own, found by the plugin watcher."""

    version: str
    endpoint: str
    resource_name: str
    options: PluginOptions = field(default_factory=PluginOptions)
    is_path: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as a plugin lists it; any health but `Healthy` counts as unhealthy. `numa_nodes`
    is None where the plugin sent no topology at all."""

    id: str
    health: str
    numa_nodes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """A device file for a container, as the plugin's Allocate names it."""

    host_path: str
    container_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount for a container."""

    host_path: str
    container_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateResponse:
    """One container's answer from a plugin, or several merged. `raw` is the message as it came,
    for the checkpoint; empty for one that never was on the wire."""

    envs: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[DeviceSpec, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()
    raw: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call to a plugin failed; the text is the one Go prints, `rpc error: code = ...`. With
    `is_answer` the plugin did answer, but nothing that helps."""

    text: str
    is_answer: bool = False


@dataclass(frozen=True, slots=True)
class Allocate:
    """Ask for one container's devices; the answer is an AllocateResponse."""

    resource: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preferred:
    """Ask which devices the plugin prefers; the answer is a tuple of ids."""

    resource: str
    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class PreStart:
    """Tell the plugin that a container is about to start; the answer is None."""

    resource: str
    device_ids: tuple[str, ...]


Ask = Allocate | Preferred | PreStart
Answer = AllocateResponse | tuple[str, ...] | CallFailed | None
