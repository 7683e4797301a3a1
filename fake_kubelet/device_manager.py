"""The kubelet's device manager: which devices exist, which are healthy, who holds them.

A pure state machine after `kubernetes:pkg/kubelet/cm/devicemanager`, defects included, of the
version that its personality names. What has to ask a plugin is a generator: it yields an `Ask`
together with the client to ask, and is sent the answer. Texts are the kubelet's own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass

from fake_kubelet import checkpoint, topology, wire
from fake_kubelet.messages import (
    Allocate,
    AllocateResponse,
    Answer,
    Ask,
    CallFailed,
    Device,
    PluginOptions,
    Preferred,
    PreStart,
    RegisterRequest,
)
from fake_kubelet.personality import Personality

API_VERSION = "v1beta1"
HEALTHY = "Healthy"
NO_NODE = -1
PRE_START_S = 30.0
MAX_HEALTH_UPDATES = 100

_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MAX_PREFIX = 253 - len("requests.")
_MAX_NAME = 63
_MAX_ANNOTATION_NAME = 63

Steps = Generator[tuple[int, Ask], Answer, None]


class RegistrationError(Exception):
    """Register is refused; the text is the gRPC message, `code` its status as Go names it."""

    def __init__(self, text: str, code: str = "Unknown") -> None:
        super().__init__(text)
        self.code = code


class AllocationError(Exception):
    """A container cannot have its devices; the text goes into the pod's message."""


class KubeletPanic(Exception):
    """The kubelet of this version would crash here; the text is what it panics with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Counts per resource; `removed` names resources dropped in this very look."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a container holds of one resource: ids by NUMA node, and the plugin's answer."""

    by_node: Mapping[int, tuple[str, ...]]
    response: AllocateResponse

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for ids in self.by_node.values() for one in ids))


@dataclass(slots=True)
class _Endpoint:
    client: int | None
    socket: str = ""
    options: PluginOptions | None = None
    stopped_at: float | None = None


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
    """State of all device plugins and allocations of one node. Times are seconds.

    `active_pods` gives the uids that may hold devices now, `sources_ready` whether the kubelet has
    seen all its pods once since it started, `is_running` whether the runtime's list of when the
    kubelet started has a container. `is_dirty` says that the checkpoint has to be written."""

    def __init__(
        self,
        personality: Personality,
        *,
        grace_s: float,
        rng: random.Random,
        active_pods: Callable[[], set[str]],
        sources_ready: Callable[[], bool] = lambda: True,
        is_running: Callable[[str, str], bool] = lambda uid, container: False,
        numa_nodes: tuple[int, ...] = (),
        policy: str = "none",
    ) -> None:
        self._personality = personality
        self._grace_s = grace_s
        self._rng = rng
        self._active_pods = active_pods
        self._sources_ready = sources_ready
        self._is_running = is_running
        self._numa_nodes = numa_nodes
        self._policy = policy
        self.is_dirty = False
        self._endpoints: dict[str, _Endpoint] = {}
        # Clients by resource and socket; only a version that tells sockets apart keeps several.
        self._clients: dict[str, dict[str, int]] = {}
        self._devices: dict[str, dict[str, Device]] = {}
        self._healthy: dict[str, set[str]] = {}
        self._unhealthy: dict[str, set[str]] = {}
        # Ids in use as the manager believes: what is held, and picks whose Allocate is under way
        # or went wrong. Rebuilt from what is held now and then.
        self._allocated: dict[str, set[str]] = {}
        self._held: dict[str, dict[str, dict[str, Holding]]] = {}
        self._reuse: tuple[str, dict[str, set[str]]] = ("", {})
        self._pending: str | None = None
        self._affinity: dict[tuple[str, str], topology.Mask | None] = {}

    # --- plugins

    def client_of(self, resource: str, socket: str) -> int | None:
        """The client registered for a resource and socket, dialling or connected."""
        return self._clients.get(resource, {}).get(socket)

    def dialling(self, resource: str, socket: str, client: int) -> None:
        """A client takes its place before it is dialled, as versions that dial inside Register do;
        one that was there before is forgotten, not closed."""
        if self._personality.stale_stream_disconnect == "by_socket":
            self._clients.setdefault(resource, {})[socket] = client
        elif self._personality.stale_stream_disconnect == "by_name":
            self._clients[resource] = {socket: client}

    def dial_failed(self, resource: str, socket: str) -> None:
        if self._personality.stale_stream_disconnect == "by_socket":
            self._clients.get(resource, {}).pop(socket, None)
        else:
            self._clients.pop(resource, None)

    def connected(self, resource: str, socket: str, client: int, options: PluginOptions) -> None:
        """A plugin answered the dial: it replaces the resource's endpoint."""
        self._endpoints[resource] = _Endpoint(client, socket, options)

    def reported(self, resource: str, devices: Iterable[Device]) -> list[str]:
        """A full list arrived: everything known of the resource is rebuilt from it. Returns the
        uids of pods whose device health has to be told."""
        before = self._devices.get(resource, {})
        listed = tuple(devices)
        self._devices[resource] = {device.id: device for device in listed}
        self._healthy[resource] = {d.id for d in listed if d.health == HEALTHY}
        self._unhealthy[resource] = {d.id for d in listed if d.health != HEALTHY}
        self.is_dirty = True
        if self._personality.resource_health_status == "off":
            return []
        changed = [d.id for d in listed if d.id not in before or before[d.id].health != d.health]
        return self._owners(changed)

    def stream_ended(self, resource: str, socket: str, client: int, now: float) -> int | None:
        """A ListAndWatch stream ended; returns the client to disconnect, if there is one."""
        rule = self._personality.stale_stream_disconnect
        endpoint = self._endpoints.get(resource)
        is_current = endpoint is not None and endpoint.client == client
        if rule == "identity":
            if endpoint is not None and is_current:
                self._stop(resource, endpoint, now)
            return client
        found = self._clients.get(resource, {})
        if rule == "by_name":
            self._clients.pop(resource, None)
            victim = next(iter(found.values()), None)
        else:
            victim = found.pop(socket, None)
        if victim is None:
            return None
        if endpoint is None:
            if self._personality.disconnect_nil_panic == "on":
                raise KubeletPanic("invalid memory address or nil pointer dereference")
        elif rule == "by_name" or endpoint.client == victim:
            self._stop(resource, endpoint, now)
        return victim

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
                self.is_dirty = True
        names = {*self._healthy, *self._unhealthy}
        return Capacity(
            capacity={
                name: len(self._healthy.get(name, ())) + len(self._unhealthy.get(name, ()))
                for name in sorted(names)
            },
            allocatable={name: len(ids) for name, ids in sorted(self._healthy.items())},
            removed=tuple(removed),
        )

    # --- what is held

    def knows(self, resource: str) -> bool:
        """Unknown resources are ignored: such a pod is admitted without a device."""
        return resource in self._healthy or resource in self._allocated

    def allocated(self, resource: str) -> frozenset[str]:
        """Ids the manager takes to be in use, finished pods included until collected."""
        return frozenset(self._allocated.get(resource, ()))

    def in_use(self) -> dict[str, int]:
        """resource -> how many ids are taken to be in use."""
        return {name: len(ids) for name, ids in self._allocated.items() if ids}

    def leaked(self) -> dict[str, frozenset[str]]:
        """Ids taken to be in use that no container holds."""
        held = self._held_ids()
        found = {name: ids - held.get(name, set()) for name, ids in self._allocated.items()}
        return {name: frozenset(ids) for name, ids in found.items() if ids}

    def holdings(self, uid: str) -> Mapping[str, Mapping[str, Holding]]:
        """container -> resource -> what it holds, of one pod."""
        return self._held.get(uid, {})

    def holders(self) -> Iterable[str]:
        """Uids of all pods that hold something."""
        return self._held.keys()

    def healthy(self, resource: str) -> frozenset[str]:
        return frozenset(self._healthy.get(resource, ()))

    def known_devices(self) -> Mapping[str, Mapping[str, Device]]:
        """resource -> id -> device as last sent; kept after a plugin is gone."""
        return self._devices

    def health_of(self, resource: str, device_id: str) -> str:
        """Health for a pod's status: what was last sent, and Healthy where nothing was."""
        device = self._devices.get(resource, {}).get(device_id)
        return "Healthy" if device is None or device.health == HEALTHY else "Unhealthy"

    def collect(self) -> None:
        """Free what pods hold that are no longer active; nothing while sources are not ready."""
        if not self._sources_ready():
            return
        keep = self._active_pods()
        if self._pending is not None:
            keep = keep | {self._pending}
        gone = [uid for uid in self._held if uid not in keep]
        if not gone:
            return
        for uid in gone:
            del self._held[uid]
        self._rebuild()

    # --- allocation

    def align(self, uid: str, container: str, limits: Mapping[str, int]) -> bool:
        """Ask the topology policy before a container is allocated; False refuses the pod."""
        if self._policy == "none":
            return True
        self._enter(uid)
        self.collect()
        hints = {
            resource: self._hints(uid, container, resource, count)
            for resource, count in limits.items()
            if self.knows(resource)
        }
        nodes, is_admitted = topology.decide(self._policy, hints, self._numa_nodes)
        self._affinity[uid, container] = nodes
        return is_admitted

    def allocate(
        self, uid: str, container: str, limits: Mapping[str, int], *, is_reusable: bool
    ) -> Steps:
        """Give a container its devices. `is_reusable`: an ordinary init container, whose devices
        later containers of the pod take over. Raises AllocationError."""
        self._enter(uid)
        if self._reuse[0] != uid:
            self._reuse = (uid, {})
        has_collected, has_allocated = False, False
        for resource, count in limits.items():
            if not self.knows(resource):
                continue
            if not has_collected:
                self.collect()
                has_collected = True
            has_allocated |= yield from self._allocate_one(uid, container, resource, count)
        if has_allocated:
            self.is_dirty = True
        mine = self._held.get(uid, {}).get(container, {})
        for resource, holding in mine.items():
            reusable = self._reuse[1].setdefault(resource, set())
            if is_reusable:
                reusable.update(holding.ids)
            else:
                reusable.difference_update(holding.ids)

    def before_start(
        self,
        uid: str,
        container: str,
        limits: Mapping[str, int],
        *,
        is_reusable: bool,
    ) -> Steps:
        """What happens at every start of a container: PreStartContainer where the plugin wants it,
        and Allocate again where nothing is recorded. Raises AllocationError."""
        needs_devices = False
        skips_zero = self._personality.zero_request_start == "skipped"
        for resource, count in limits.items():
            if not self.knows(resource) or (count == 0 and skips_zero):
                continue
            yield from self._pre_start(uid, container, resource)
            is_active = uid in self._active_pods()
            if not is_active and self._personality.allocate_for_gone_pods == "off":
                continue
            if self._holding(uid, container, resource) is None:
                needs_devices = True
        if needs_devices:
            yield from self.allocate(uid, container, limits, is_reusable=is_reusable)

    def run_options(self, uid: str, container: str) -> AllocateResponse:
        """All answers for a container merged; on a clash the first one wins."""
        envs: dict[str, str] = {}
        annotations: dict[str, str] = {}
        devices: dict[str, object] = {}
        mounts: dict[str, object] = {}
        merged = AllocateResponse()
        for holding in self._held.get(uid, {}).get(container, {}).values():
            answer = holding.response
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
        return self._with_cdi(uid, container, merged)

    # --- checkpoint

    def checkpoint(self) -> checkpoint.Checkpoint:
        """What the checkpoint file has to say; clears `is_dirty`."""
        self.is_dirty = False
        return checkpoint.Checkpoint(
            entries=tuple(
                checkpoint.Entry(
                    pod_uid=uid,
                    container=container,
                    resource=resource,
                    ids=holding.by_node,
                    response=wire.response_bytes(holding.response),
                )
                for uid, containers in self._held.items()
                for container, resources in containers.items()
                for resource, holding in resources.items()
            ),
            registered={name: tuple(sorted(ids)) for name, ids in self._healthy.items()},
        )

    def recover(self, raw: bytes | None, now: float) -> str | None:
        """Begin from a checkpoint: allocations, and every resource without devices. Returns why
        the file was not believed; everything is empty then."""
        if raw is None:
            return None
        own = self._personality.checkpoint_write
        formats = {own, "v1"} if self._personality.checkpoint_reads_v1 == "on" else {own}
        try:
            content = checkpoint.decode(raw, formats)
        except checkpoint.CorruptCheckpoint as error:
            return str(error)
        for entry in content.entries:
            pod = self._held.setdefault(entry.pod_uid, {})
            pod.setdefault(entry.container, {})[entry.resource] = Holding(
                by_node=entry.ids, response=wire.response_from_bytes(entry.response)
            )
        for name in content.registered:
            self._healthy[name] = set()
            self._unhealthy[name] = set()
            self._endpoints[name] = _Endpoint(None, stopped_at=now)
        self._rebuild()
        return None

    # --- inside

    def _enter(self, uid: str) -> None:
        if self._personality.pending_admission_pod == "on":
            self._pending = uid

    def _holding(self, uid: str, container: str, resource: str) -> Holding | None:
        return self._held.get(uid, {}).get(container, {}).get(resource)

    def _ids_of(self, uid: str) -> set[str]:
        """Ids one pod holds, of whatever resource."""
        containers = self._held.get(uid, {})
        return {one for held in containers.values() for h in held.values() for one in h.ids}

    def _held_ids(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for containers in self._held.values():
            for resources in containers.values():
                for resource, holding in resources.items():
                    found.setdefault(resource, set()).update(holding.ids)
        return found

    def _rebuild(self) -> None:
        self._allocated = self._held_ids()

    def _allocate_one(
        self, uid: str, container: str, resource: str, count: int
    ) -> Generator[tuple[int, Ask], Answer, bool]:
        ids = yield from self._choose(uid, container, resource, count)
        if not ids:
            return False
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            self._rebuild()
            raise AllocationError(f"unknown Device Plugin {resource}")
        if endpoint.stopped_at is not None or endpoint.client is None:
            self._rebuild()
            raise AllocationError(f"endpoint {resource} has been stopped")
        answer = yield endpoint.client, Allocate(resource, tuple(self._shuffled(ids)))
        if isinstance(answer, CallFailed):
            if not answer.is_answer:  # an answer without a container leaves the picks taken
                self._rebuild()
            raise AllocationError(answer.text)
        assert isinstance(answer, AllocateResponse)
        pod = self._held.setdefault(uid, {})
        pod.setdefault(container, {})[resource] = Holding(
            by_node=self._by_node(resource, ids), response=answer
        )
        return True

    def _choose(
        self, uid: str, container: str, resource: str, count: int
    ) -> Generator[tuple[int, Ask], Answer, list[str]]:
        """Ids for a container, taken from now on; none when it has them already."""
        recorded = self._holding(uid, container, resource)
        if recorded is not None and len(recorded.ids) != count:
            raise AllocationError(
                f'pod "{uid}" container "{container}" changed request for resource "{resource}" '
                f"from {len(recorded.ids)} to {count}"
            )
        if (
            self._personality.running_container_bypass != "off"
            and not self._sources_ready()
            and self._is_running(uid, container)
        ):
            return []
        if self._personality.admission_health_checks == "on":
            self._check_health(resource, recorded)
        if recorded is not None or count == 0:
            return []
        taken: list[str] = []

        def take(ids: Iterable[str]) -> bool:
            if resource not in self._allocated:
                if has_asked and self._personality.reuse_nil_map_panic == "on":
                    raise KubeletPanic("assignment to entry in nil map")
                self._allocated[resource] = set()
            for one in self._shuffled(set(ids).difference(taken)):
                if len(taken) == count:
                    break
                self._allocated[resource].add(one)
                taken.append(one)
            return len(taken) == count

        has_asked = False
        if take(self._reuse[1].get(resource, set())):
            return taken
        available = self._healthy.get(resource, set()) - self._allocated[resource]
        needed = count - len(taken)
        if len(available) < needed:
            raise AllocationError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {needed}, Available: {len(available)}"
            )
        aligned, unaligned, without = self._split(uid, container, resource, available)
        if needed < len(aligned):
            has_asked = True
            wanted = yield from self._preferred(resource, aligned, taken, count)
            if take(wanted & aligned) or take(aligned):
                return taken
        else:
            if take(aligned):
                return taken
            has_asked = True
            wanted = yield from self._preferred(resource, available, taken, count)
            if take(wanted & available) or take(unaligned) or take(without):
                return taken
        raise AllocationError(
            "unexpectedly allocated less resources than required. "
            f"Requested: {count}, Got: {len(taken)}"
        )

    def _check_health(self, resource: str, recorded: Holding | None) -> None:
        if resource not in self._healthy:
            raise AllocationError(f"cannot allocate unregistered device {resource}")
        healthy = self._healthy[resource]
        if not healthy:
            raise AllocationError(
                f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            )
        if recorded is not None and not healthy.issuperset(recorded.ids):
            raise AllocationError(
                "previously allocated devices are no longer healthy; "
                f"cannot allocate unhealthy devices {resource}"
            )

    def _preferred(
        self, resource: str, available: set[str], taken: list[str], size: int
    ) -> Generator[tuple[int, Ask], Answer, set[str]]:
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            raise AllocationError(
                f"endpoint not found in cache for a registered resource: {resource}"
            )
        wants = endpoint.options is not None and endpoint.options.preferred_allocation
        if not wants or self._personality.preferred_allocation == "off":
            return set()
        rpc = "device plugin GetPreferredAllocation rpc failed with err: "
        if endpoint.stopped_at is not None or endpoint.client is None:
            raise AllocationError(f"{rpc}endpoint {resource} has been stopped")
        ask = Preferred(
            resource,
            tuple(self._shuffled(available.union(taken))),
            tuple(self._shuffled(taken)),
            size,
        )
        answer = yield endpoint.client, ask
        if isinstance(answer, CallFailed):
            raise AllocationError(rpc + answer.text)
        assert isinstance(answer, tuple)
        return set(answer)

    def _pre_start(self, uid: str, container: str, resource: str) -> Steps:
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            raise AllocationError(
                f"endpoint not found in cache for a registered resource: {resource}"
            )
        if endpoint.options is None or not endpoint.options.pre_start_required:
            return
        held = self._holding(uid, container, resource)
        if held is None:
            raise AllocationError(
                f"no devices found allocated in local cache for pod {uid}, "
                f"container {container}, resource {resource}"
            )
        rpc = "device plugin PreStartContainer rpc failed with err: "
        if endpoint.stopped_at is not None or endpoint.client is None:
            raise AllocationError(f"{rpc}endpoint {resource} has been stopped")
        answer = yield endpoint.client, PreStart(resource, tuple(self._shuffled(held.ids)))
        if isinstance(answer, CallFailed):
            raise AllocationError(rpc + answer.text)

    def _with_cdi(self, uid: str, container: str, merged: AllocateResponse) -> AllocateResponse:
        how = self._personality.cdi_devices
        if not merged.cdi_devices or how == "plain":
            return merged
        annotations = dict(merged.annotations)
        name = f"devicemanager_{uid}-{container}"
        if how == "annotated" and len(name) <= _MAX_ANNOTATION_NAME:
            annotations[f"cdi.k8s.io/{name}"] = ",".join(sorted(merged.cdi_devices))
        return AllocateResponse(
            envs=merged.envs,
            devices=merged.devices,
            mounts=merged.mounts,
            annotations=annotations,
            cdi_devices=() if how == "ignored" else merged.cdi_devices,
        )

    def _nodes_of(self, resource: str, device_id: str) -> tuple[int, ...]:
        device = self._devices.get(resource, {}).get(device_id)
        return device.numa_nodes or () if device is not None else ()

    def _by_node(self, resource: str, ids: Iterable[str]) -> dict[int, tuple[str, ...]]:
        found: dict[int, list[str]] = {}
        none = int(self._personality.no_topology_numa_key)
        for one in ids:
            for node in self._nodes_of(resource, one) or (none,):
                found.setdefault(node, []).append(one)
        return {node: tuple(listed) for node, listed in found.items()}

    def _has_topology(self, resource: str) -> bool:
        return any(d.numa_nodes for d in self._devices.get(resource, {}).values())

    def _hints(
        self, uid: str, container: str, resource: str, request: int
    ) -> list[topology.Hint] | None:
        if not self._has_topology(resource):
            return None
        devices = self._devices.get(resource, {})
        at = {one: device.numa_nodes or () for one, device in devices.items()}
        nodes: Iterable[int] = self._numa_nodes
        if self._personality.hint_nodes == "of_devices":
            nodes = {node for listed in at.values() for node in listed}
        held = self._holding(uid, container, resource)
        if held is not None:
            if len(held.ids) != request:
                return []
            available: set[str] = set(held.ids)
            reusable: set[str] = set()
        else:
            available = self._healthy.get(resource, set()) - self.allocated(resource)
            reusable = self._reuse[1].get(resource, set()) if self._reuse[0] == uid else set()
            if len(available | reusable) < request:
                return []
        return topology.resource_hints(
            nodes=nodes,
            device_nodes=at,
            available=available,
            reusable=reusable,
            request=request,
        )

    def _split(
        self, uid: str, container: str, resource: str, available: set[str]
    ) -> tuple[set[str], set[str], set[str]]:
        """Available ids inside the wanted nodes, on other nodes, and without any."""
        wanted = self._affinity.get((uid, container))
        if wanted is None or not self._has_topology(resource):
            return set(), set(), set(available)
        aligned, unaligned, without = set(), set(), set()
        for one in available:
            nodes = self._nodes_of(resource, one)
            if not nodes:
                without.add(one)
            elif wanted.intersection(nodes):
                aligned.add(one)
            else:
                unaligned.add(one)
        return aligned, unaligned, without

    def _owners(self, changed: list[str]) -> list[str]:
        """Pods that hold one of the ids, whatever the resource; only so many are told."""
        owners: list[str] = []
        for one in changed:
            holders = [
                uid
                for uid, containers in self._held.items()
                if any(
                    one in h.ids for resources in containers.values() for h in resources.values()
                )
            ]
            if holders:
                owners.append(self._rng.choice(holders))
        if self._personality.resource_health_status == "dropping":
            owners = owners[:MAX_HEALTH_UPDATES]
        return list(dict.fromkeys(owners))

    def _shuffled(self, ids: Iterable[str]) -> list[str]:
        """The order of a Go map: any, here from the seed."""
        return self._rng.sample(ordered := sorted(ids), len(ordered))

    def _stop(self, resource: str, endpoint: _Endpoint, now: float) -> None:
        endpoint.stopped_at = now
        unhealthy = self._unhealthy.setdefault(resource, set())
        if resource in self._healthy:
            unhealthy |= self._healthy[resource]
            self._healthy[resource] = set()
