"""The kubelet's device manager: which devices exist, which are healthy, who holds them.

A pure state machine following Kubernetes 1.28 (`kubernetes:pkg/kubelet/cm/devicemanager`),
defects included: a stream that ends disconnects whatever client is registered for its resource now,
and devices are freed only when the next allocation looks. Texts are the kubelet's own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fake_kubelet.effects import AllocateResponse

API_VERSION = "v1beta1"
HEALTHY = "Healthy"

_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MAX_PREFIX = 253 - len("requests.")
_MAX_NAME = 63


class RegistrationError(Exception):
    """Register is refused; the text is the gRPC message."""


class AllocationError(Exception):
    """A container cannot have its devices; the text goes into the pod's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest:
    """What a plugin says of itself."""

    version: str
    endpoint: str
    resource_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """What a plugin wants called besides Allocate."""

    pre_start_required: bool = False
    preferred_allocation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as a plugin lists it; any health but `Healthy` counts as unhealthy."""

    id: str
    health: str
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Counts per resource; `removed` names resources dropped in this very look."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    removed: tuple[str, ...] = ()


@dataclass(slots=True)
class _Endpoint:
    client: int | None
    options: PluginOptions = field(default_factory=PluginOptions)
    stopped_at: float | None = None


@dataclass(slots=True)
class _Holding:
    ids: tuple[str, ...]
    response: AllocateResponse | None = None


def is_extended_resource(name: str) -> bool:
    """The name rule of `IsExtendedResourceName`."""
    prefix, slash, rest = name.partition("/")
    if not slash or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return bool(
        len(prefix) <= _MAX_PREFIX
        and _PREFIX.fullmatch(prefix)
        and len(rest) <= _MAX_NAME
        and _NAME.fullmatch(rest)
    )


def check_registration(request: RegisterRequest) -> None:
    """Refuse a wrong version, then a wrong name, in the kubelet's words."""
    if request.version != API_VERSION:
        raise RegistrationError(
            f'requested API version "{request.version}" is not supported by kubelet. '
            f'Supported version is ["{API_VERSION}"]'
        )
    if not is_extended_resource(request.resource_name):
        raise RegistrationError(f'the ResourceName "{request.resource_name}" is invalid')


class DeviceManager:
    """State of all device plugins and allocations of one node. Times are seconds."""

    def __init__(self, *, grace_s: float, rng: random.Random) -> None:
        self._grace_s = grace_s
        self._rng = rng
        self._endpoints: dict[str, _Endpoint] = {}
        self._clients: dict[str, int] = {}
        self._devices: dict[str, dict[str, Device]] = {}
        self._healthy: dict[str, set[str]] = {}
        self._unhealthy: dict[str, set[str]] = {}
        self._held: dict[str, dict[str, dict[str, _Holding]]] = {}

    def connected(self, resource: str, client: int, options: PluginOptions) -> None:
        """A plugin answered the dial: it replaces the resource's endpoint."""
        self._endpoints[resource] = _Endpoint(client, options)
        self._clients[resource] = client

    def reported(self, resource: str, devices: Iterable[Device]) -> None:
        """A full list arrived: everything known of the resource is rebuilt from it."""
        listed = tuple(devices)
        self._devices[resource] = {device.id: device for device in listed}
        self._healthy[resource] = {d.id for d in listed if d.health == HEALTHY}
        self._unhealthy[resource] = {d.id for d in listed if d.health != HEALTHY}

    def stream_ended(self, resource: str, now: float) -> int | None:
        """A ListAndWatch stream ended; returns the client to disconnect, if one is registered."""
        client = self._clients.pop(resource, None)
        if client is None:
            return None
        self._stop(resource, now)
        return client

    def restart(self, now: float) -> list[int]:
        """The kubelet starts anew from its checkpoint; returns the clients whose connections die.

        Allocations and resource names survive, device lists do not."""
        clients = list(self._clients.values())
        self._clients.clear()
        names = list(self._healthy)
        self._devices.clear()
        self._healthy = {name: set() for name in names}
        self._unhealthy = {name: set() for name in names}
        self._endpoints = {name: _Endpoint(None, stopped_at=now) for name in names}
        return clients

    def look(self, now: float) -> Capacity:
        """Capacity and allocatable; a plugin gone for longer than the grace period is forgotten
        here and nowhere else."""
        removed = []
        for name in sorted({*self._healthy, *self._unhealthy}):
            endpoint = self._endpoints.get(name)
            stopped_at = endpoint.stopped_at if endpoint else None
            is_over = endpoint is None or (
                stopped_at is not None and now - stopped_at > self._grace_s
            )
            if is_over:
                self._endpoints.pop(name, None)
                self._healthy.pop(name, None)
                self._unhealthy.pop(name, None)
                removed.append(name)
        names = {*self._healthy, *self._unhealthy}
        return Capacity(
            capacity={
                name: len(self._healthy.get(name, ())) + len(self._unhealthy.get(name, ()))
                for name in sorted(names)
            },
            allocatable={name: len(ids) for name, ids in sorted(self._healthy.items())},
            removed=tuple(removed),
        )

    def knows(self, resource: str) -> bool:
        """Unknown resources are ignored: such a pod is admitted without a device."""
        return resource in self._healthy or bool(self.allocated(resource))

    def allocated(self, resource: str) -> set[str]:
        """Ids that some recorded container holds, finished pods included until collected."""
        return {
            device
            for containers in self._held.values()
            for resources in containers.values()
            if resource in resources
            for device in resources[resource].ids
        }

    def holdings(self, uid: str) -> dict[str, dict[str, tuple[str, ...]]]:
        """container -> resource -> ids of one pod."""
        return {
            container: {name: holding.ids for name, holding in resources.items()}
            for container, resources in self._held.get(uid, {}).items()
        }

    def collect(self, active: Iterable[str]) -> None:
        """Free what pods hold that are no longer active."""
        keep = set(active)
        for uid in [uid for uid in self._held if uid not in keep]:
            del self._held[uid]

    def pick(
        self, uid: str, container: str, resource: str, count: int
    ) -> tuple[int, tuple[str, ...]] | None:
        """Choose devices for one container; None when it has them already.

        Returns the client to call Allocate on and the ids, which are held from now on."""
        recorded = self._held.get(uid, {}).get(container, {}).get(resource)
        if recorded is not None and len(recorded.ids) != count:
            raise AllocationError(
                f'pod "{uid}" container "{container}" changed request for resource "{resource}" '
                f"from {len(recorded.ids)} to {count}"
            )
        if resource not in self._healthy:
            raise AllocationError(f"cannot allocate unregistered device {resource}")
        healthy = self._healthy[resource]
        if not healthy:
            raise AllocationError(
                f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            )
        if recorded is not None:
            if not set(recorded.ids) <= healthy:
                raise AllocationError(
                    "previously allocated devices are no longer healthy; "
                    f"cannot allocate unhealthy devices {resource}"
                )
            return None
        if count == 0:
            return None
        available = sorted(healthy - self.allocated(resource))
        if len(available) < count:
            raise AllocationError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {count}, Available: {len(available)}"
            )
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            raise AllocationError(f"unknown Device Plugin {resource}")
        if endpoint.stopped_at is not None or endpoint.client is None:
            raise AllocationError(f"endpoint {resource} has been stopped")
        ids = tuple(self._rng.sample(available, count))
        self._held.setdefault(uid, {}).setdefault(container, {})[resource] = _Holding(ids)
        return endpoint.client, ids

    def answered(self, uid: str, container: str, resource: str, response: AllocateResponse) -> None:
        """Allocate answered: keep it for every start of the container."""
        self._held[uid][container][resource].response = response

    def release(self, uid: str, container: str, resource: str) -> None:
        """Allocate failed: the ids chosen for it are free again."""
        self._held.get(uid, {}).get(container, {}).pop(resource, None)

    def run_options(self, uid: str, container: str) -> AllocateResponse:
        """All answers for a container merged; on a clash the first one wins."""
        envs: dict[str, str] = {}
        annotations: dict[str, str] = {}
        devices: dict[str, object] = {}
        mounts: dict[str, object] = {}
        merged = AllocateResponse()
        for holding in self._held.get(uid, {}).get(container, {}).values():
            answer = holding.response or AllocateResponse()
            envs = {**answer.envs, **envs}
            annotations = {**answer.annotations, **annotations}
            new_devices = tuple(d for d in answer.devices if d.container_path not in devices)
            new_mounts = tuple(m for m in answer.mounts if m.container_path not in mounts)
            devices.update({d.container_path: d for d in new_devices})
            mounts.update({m.container_path: m for m in new_mounts})
            merged = AllocateResponse(
                envs=envs,
                devices=(*merged.devices, *new_devices),
                mounts=(*merged.mounts, *new_mounts),
                annotations=annotations,
                cdi_devices=tuple(dict.fromkeys((*merged.cdi_devices, *answer.cdi_devices))),
            )
        return merged

    def _stop(self, resource: str, now: float) -> None:
        endpoint = self._endpoints.get(resource)
        if endpoint is not None:
            endpoint.stopped_at = now
        unhealthy = self._unhealthy.setdefault(resource, set())
        if resource in self._healthy:
            unhealthy |= self._healthy[resource]
            self._healthy[resource] = set()
