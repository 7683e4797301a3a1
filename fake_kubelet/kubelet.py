"""One node's kubelet as a pure state machine: plugins, pods, node status.

Inputs are calls that carry `now` (seconds of scenario time); outputs are effects for someone else
to carry out. Owns the order of things: admission is serial for the node, devices are allocated
before a sandbox is made, init containers run one by one, a pod is deleted when its containers are
gone. Behaves like the Kubernetes version of its personality. Knows no vendor. Leaves out probes,
volumes, eviction, and the fit of anything but extended resources.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fake_kubelet.device_manager import AllocationError, DeviceManager, KubeletPanic
from fake_kubelet.effects import (
    Boot,
    CloseSockets,
    DeletePod,
    Effect,
    KillContainer,
    KillPod,
    OpenSockets,
    PostEvent,
    Record,
    RegisterNode,
    RenewLease,
    RunSandbox,
    SetTimer,
    StartContainer,
    UpdateNodeStatus,
    UpdatePodStatus,
    WriteCheckpoint,
)
from fake_kubelet.links import PluginLinks
from fake_kubelet.messages import Answer, Ask, Device, PluginOptions, RegisterRequest
from fake_kubelet.metrics import Metrics, resource_text
from fake_kubelet.personality import Personality, personality
from fake_kubelet.pods import Pod, new_pod
from fake_kubelet.rules import CallRule, CallRules
from fake_kubelet.status import (
    ContainerState,
    NodeIdentity,
    boot_id,
    node_object,
    node_status,
    pod_status,
    rejected_status,
)

DEFAULT_GRACE_S = 30.0
SANDBOX_RETRY_S = 10.0
CONFIG_RETRY_S = 10.0
FIRST_BACK_OFF_S = 10.0
MAX_BACK_OFF_S = 300.0
LEASE_S = 10.0
SERVICE_MANAGER_S = 10.0
LOST_EXIT_CODE = 255

HandlerOf = Callable[[str | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Times in seconds, the machine's NUMA nodes and the Topology Manager policy. # deviates: a
    real kubelet looks at its node every 10 s; the testbed's default is 0.5 s, so that changes show
    sooner."""

    node_status_update_s: float = 0.5
    node_status_report_s: float = 300.0
    grace_s: float = 300.0
    numa_nodes: tuple[int, ...] = (0, 1)
    topology_policy: str = "none"


class _Refused(AllocationError):
    """Admission refuses a pod for another reason than a failed allocation."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Kubelet:
    """The kubelet of one node. `epoch_s` turns scenario time into calendar time; `handler_of`
    gives the runtime handler of a RuntimeClass name and raises LookupError for an unknown one."""

    def __init__(
        self,
        identity: NodeIdentity,
        *,
        rng: random.Random,
        handler_of: HandlerOf,
        epoch_s: float = 0.0,
        settings: Settings | None = None,
        behaves_like: Personality | None = None,
    ) -> None:
        self.identity = identity
        self.settings = settings or Settings()
        self.personality = behaves_like or personality()
        self.rules = CallRules()
        self.is_up = False
        self._rng = rng
        self._handler_of = handler_of
        self._epoch_s = epoch_s
        self._pods: dict[str, Pod] = {}
        self.is_runtime_down = False  # at the next start
        self._order: random.Random | None = None  # of the pods a start meets; None: `rng`
        self._boots = 1
        self._boots_told = 1
        self._boots_again_in_s: float | None = None  # once these sandboxes are gone
        self._losing: set[str] = set()
        self._collect_s = 0.0
        self._dies_slowly: dict[str, float] = {}  # uid -> seconds its containers take to go
        self._update_s = self.settings.node_status_update_s
        self._node_capacity: dict[str, int] = {}
        self._node_allocatable: dict[str, int] = {}
        self._next_number = 1
        self._new_run(0.0)

    def _new_run(self, now: float) -> None:
        """What a kubelet process has in memory, fresh."""
        self.metrics = Metrics()
        self.devices = DeviceManager(
            self.personality,
            grace_s=self.settings.grace_s,
            rng=self._rng,
            active_pods=self._active,
            sources_ready=lambda: self._sources_ready,
            is_running=lambda uid, container: (uid, container) in self._was_running,
            numa_nodes=self.settings.numa_nodes,
            policy=self.settings.topology_policy,
        )
        self.links = PluginLinks(
            self.devices,
            self.personality,
            rules=self.rules,
            metrics=self.metrics,
            first=self._next_number,
        )
        self._queue: deque[str] = deque()
        self._first_batch: set[str] = set()
        self._sources_ready = False
        self._was_running: set[tuple[str, str]] = set()
        self._starting: set[tuple[str, str]] = set()  # container starts that wait for a plugin
        self._admitting: str | None = None
        self._started_at = now
        self._reported: tuple[dict[str, int], dict[str, int]] | None = None
        self._reported_at = 0.0

    # --- the kubelet itself

    def start(
        self,
        now: float,
        checkpoint: bytes | None = None,
        *,
        has_files: bool = True,
        is_runtime_down: bool = False,
    ) -> list[Effect]:
        """Start from a checkpoint file (None: there is none). `has_files`: the plugin directory
        holds any file; `is_runtime_down`: the runtime cannot tell which containers run."""
        if self.is_up:
            return []
        self._new_run(now)
        self.is_up = True
        if not is_runtime_down:
            self._was_running = self._running_containers()
        effects: list[Effect] = [
            Record("kubelet.start", {"version": self.personality.version}),
        ]
        trouble = self.devices.recover(checkpoint, now)
        if trouble is not None:
            effects.append(Record("checkpoint.not-believed", {"why": trouble}))
        rule = self.personality.reset_extended_resources
        resets = rule == "always" or not has_files
        if resets:
            for known in (self._node_capacity, self._node_allocatable):
                known.update(dict.fromkeys(known, 0))
        effects += [
            OpenSockets(self.personality.dir_cleanup, self.personality.cleanup_failure == "aborts"),
            RegisterNode(node_object(self.identity), resets),
            RenewLease(self.identity.name),
            SetTimer("lease", now + LEASE_S),
            *self.collect_every(self._collect_s, now),
            *self._sync_node(now),
        ]
        if self._boots_told != self._boots:
            self._boots_told = self._boots
            effects.append(self._reboot_event())
        order = self._order or self._rng
        self._order, self.is_runtime_down = None, False
        for uid in order.sample(uids := sorted(self._pods), len(uids)):
            effects += self._pick_up(self._pods[uid], now)
        self._first_batch = set(self._queue)
        self._sources_ready = not self._first_batch
        return self._settled(effects, now)

    def stop(self, now: float, *, is_crash: bool = False) -> list[Effect]:
        """The process ends: connections break, containers keep running."""
        if not self.is_up:
            return []
        self.is_up = False
        self._next_number = self.links.next_number
        lost = self.links.close()
        for uid, container in self._starting:
            if uid in self._pods:
                self._pods[uid].container(container).stage = "waiting"
        kind = "kubelet.crash" if is_crash else "kubelet.stop"
        return [Record(kind, {}), *lost, CloseSockets()]

    def restart(
        self,
        now: float,
        *,
        delay_s: float = 0.0,
        is_crash: bool = False,
        keeps_containers: bool = True,
        is_runtime_down: bool = False,
        order_seed: int | None = None,
    ) -> list[Effect]:
        """Stop, and be started again after `delay_s`. Without `keeps_containers` every container
        is lost meanwhile; `order_seed` decides in which order the pods are met then."""
        effects = self.stop(now, is_crash=is_crash)
        self.is_runtime_down = is_runtime_down
        self._order = None if order_seed is None else random.Random(order_seed)
        self._boots_again_in_s = delay_s
        if not keeps_containers:
            effects += self._lose_containers(now)
        return [*effects, *self._boot_again(now)]

    def reboot(
        self, now: float, *, delay_s: float = 0.0, order_seed: int | None = None
    ) -> list[Effect]:
        """The machine restarts: every container is lost, then the kubelet starts again."""
        self._boots += 1
        return self.restart(
            now, delay_s=delay_s, is_crash=True, keeps_containers=False, order_seed=order_seed
        )

    def behave_like(self, chosen: Personality) -> None:
        """Another version, from the next start on."""
        self.personality = chosen

    def update_every(self, seconds: float, now: float) -> list[Effect]:
        """How often the node is looked at from now on."""
        self._update_s = seconds
        return [SetTimer("node", now + seconds)] if self.is_up else []

    def collect_every(self, seconds: float, now: float) -> list[Effect]:
        """Free what finished pods hold every so often, as a client that lists pod-resources makes
        it happen; 0 ends it."""
        self._collect_s = seconds
        return [SetTimer("collect", now + seconds)] if seconds > 0 else []

    def timer(self, key: str, now: float) -> list[Effect]:
        if key == "boot":
            return [] if self.is_up else [Boot()]
        if not self.is_up:
            return []
        if key == "lease":
            return [RenewLease(self.identity.name), SetTimer("lease", now + LEASE_S)]
        if key == "node":
            return self._settled(self._sync_node(now), now)
        if key == "collect":
            self.devices.collect()
            return self.collect_every(self._collect_s, now)
        effects = self._guarded(lambda: self.links.timer(key, now), now)
        if effects is not None:
            return effects
        kind, _, rest = key.partition(":")
        uid, _, container = rest.partition(":")
        pod = self._pods.get(uid)
        if pod is not None and kind == "kill":
            return [KillPod(uid, 0.0)]
        if pod is None or pod.is_deleting or pod.is_over:
            return []
        if kind == "sandbox" and not pod.has_sandbox:
            return self._run_sandbox(pod, now)
        if kind == "container" and not pod.is_held:
            state = pod.container(container)
            if state.stage in ("waiting", "terminated"):
                return self._settled(self._start_container(pod, state, now), now)
        return []

    # --- plugins

    def register(self, request: RegisterRequest, now: float) -> tuple[int, list[Effect]]:
        """A plugin called Register: a client number, under which `AnswerRegister` comes. Raises
        RegistrationError when it is refused at once."""
        return self.links.register(request, now)

    def plugin_connected(
        self, client: int, options: PluginOptions | None, now: float
    ) -> list[Effect]:
        return self._guarded(lambda: self.links.plugin_connected(client, options, now), now) or []

    def connect_failed(self, client: int, text: str, now: float) -> list[Effect]:
        return self.links.connect_failed(client, text, now)

    def devices_reported(self, client: int, devices: Iterable[Device], now: float) -> list[Effect]:
        effects, owners = self.links.devices_reported(client, devices)
        for uid in owners:
            if uid in self._pods:
                effects += self._status(self._pods[uid], now)
        return self._settled(effects, now)

    def stream_ended(self, client: int, now: float) -> list[Effect]:
        return self._guarded(lambda: self.links.stream_ended(client, now), now) or []

    def plugin_removed(self, client: int, now: float) -> list[Effect]:
        """The plugin watcher no longer finds a client's socket."""
        return self._guarded(lambda: self.links.removed(client, now), now) or []

    def call_answered(self, call: int, answer: Answer, now: float) -> list[Effect]:
        """A plugin answered a call, or the call failed."""
        return self._guarded(lambda: self.links.call_answered(call, answer, now), now) or []

    def cut_streams(self, resource: str) -> list[Effect]:
        """Break the connections to a resource's plugins from this side."""
        return self.links.cut(resource)

    def set_rule(self, rule: CallRule) -> None:
        """What is to happen to calls that fit; see `rules`."""
        self.rules.add(rule)

    def release_calls(self, now: float) -> list[Effect]:
        """Forget every rule and let go of what they hold."""
        self.rules.clear()
        return self._guarded(lambda: self.links.release(now), now) or []

    # --- pods

    @property
    def pods(self) -> Mapping[str, Pod]:
        """All pods by uid, finished ones and those being removed included."""
        return self._pods

    def pod_objects(self) -> list[Mapping[str, Any]]:
        """The pods as the kubelet shows them, status included."""
        return [
            {**pod.pod, "status": dict(pod.last_status or pod.pod.get("status") or {})}
            for pod in self._pods.values()
            if not pod.is_orphan
        ]

    def held_twice(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """(resource, id) -> uids, of every device that more than one pod with containers holds."""
        found: dict[tuple[str, str], list[str]] = {}
        for uid, pod in self._pods.items():
            if not pod.has_sandbox:
                continue
            ids = {
                (resource, one)
                for resources in self.devices.holdings(uid).values()
                for resource, holding in resources.items()
                for one in holding.ids
            }
            for key in ids:
                found.setdefault(key, []).append(uid)
        return {key: tuple(uids) for key, uids in found.items() if len(uids) > 1}

    def resource_metrics(self) -> str:
        """What /metrics/resource says: start times of running containers; use of CPU and memory is
        not simulated and reads 0."""
        started = {
            (pod.namespace, pod.name, state.name): state.started_s
            for pod in self._pods.values()
            for state in pod.containers
            if state.stage == "running" and state.started_s is not None
        }
        return resource_text(started)

    @property
    def queued(self) -> int:
        """How many pods wait for admission, the one under way included."""
        return len(self._queue) + (self._admitting is not None)

    def pod_assigned(self, pod: Mapping[str, Any], now: float) -> list[Effect]:
        """A pod bound to this node appeared, or changed without being deleted."""
        uid = str(pod["metadata"]["uid"])
        if uid in self._pods:
            self._pods[uid].pod = pod
            return []
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return []
        has_sidecars = self.personality.sidecars == "on"
        self._pods[uid] = new_pod(pod, started_s=self._wall(now), has_sidecars=has_sidecars)
        if not self.is_up:
            return []
        self._queue.append(uid)
        return self._settled([], now)

    def pod_deleting(self, pod: Mapping[str, Any], now: float) -> list[Effect]:
        """The pod carries a deletion timestamp: stop it, then remove the object."""
        metadata = pod["metadata"]
        uid = str(metadata["uid"])
        known = self._pods.get(uid)
        if known is None:
            return [DeletePod(metadata["namespace"], metadata["name"], uid)]
        if known.is_deleting:
            return []
        known.pod = pod
        known.is_deleting = True
        return self._terminate(known, now) if self.is_up else []

    def pod_gone(self, uid: str, now: float) -> list[Effect]:
        """The object vanished (forced deletion, or our own request was carried out). Containers
        that still run are stopped; the pod counts until they are gone."""
        known = self._pods.get(uid)
        if known is None:
            return []
        known.is_orphan = True
        if not known.has_sandbox and not known.is_sandbox_asked:
            del self._pods[uid]
            return []
        if known.is_deleting or not self.is_up:
            known.is_deleting = True
            return []
        known.is_deleting = True
        return self._terminate(known, now)

    def hold_pod(self, uid: str, now: float) -> list[Effect]:
        """Stop a pod's containers and keep them down until `release_pod`."""
        pod = self._pods[uid]
        pod.is_held = True
        return [KillContainer(uid, c.name, 2.0) for c in pod.containers if c.stage == "running"]

    def hold_terminating(self, uid: str, seconds: float) -> None:
        """When this pod is removed, its containers take so long to go."""
        self._dies_slowly[uid] = seconds

    def release_pod(self, uid: str, now: float) -> list[Effect]:
        pod = self._pods[uid]
        pod.is_held = False
        effects: list[Effect] = []
        for state in pod.containers:
            if state.stage in ("waiting", "terminated") and not state.is_init:
                effects += self._start_container(pod, state, now)
        return self._settled(effects, now)

    def sandbox_started(self, uid: str, now: float) -> list[Effect]:
        pod = self._pods.get(uid)
        if pod is None:
            return [KillPod(uid, 0.0)]
        pod.has_sandbox, pod.is_sandbox_asked = True, False
        if pod.is_deleting:
            return [KillPod(uid, 0.0)]
        if not self.is_up:
            return []
        return self._settled([*self._status(pod, now), *self._start_next(pod, now)], now)

    def sandbox_failed(self, uid: str, text: str, now: float) -> list[Effect]:
        pod = self._pods.get(uid)
        if pod is None:
            return []
        pod.is_sandbox_asked = False
        if pod.is_deleting:
            return self._gone(pod, now)
        message = f"Failed to create pod sandbox: rpc error: code = Unknown desc = {text}"
        return [
            self._event(pod, "Warning", "FailedCreatePodSandBox", message),
            SetTimer(f"sandbox:{uid}", now + SANDBOX_RETRY_S),
        ]

    def container_started(self, uid: str, name: str, container_id: str, now: float) -> list[Effect]:
        pod = self._pods.get(uid)
        if pod is None:
            return []
        state = pod.container(name)
        state.stage, state.reason, state.message = "running", "", ""
        state.container_id = container_id
        state.started_s, state.finished_s = self._wall(now), None
        if not self.is_up:
            return []
        image = f'Container image "{state.image}" already present on machine'
        effects = [
            self._event(pod, "Normal", "Pulled", image),
            self._event(pod, "Normal", "Created", f"Created container {name}"),
            self._event(pod, "Normal", "Started", f"Started container {name}"),
            *self._status(pod, now),
        ]
        if state.is_sidecar and not pod.is_deleting:
            effects += self._start_next(pod, now)
        return self._settled(effects, now)

    def container_failed(
        self, uid: str, name: str, reason: str, text: str, now: float
    ) -> list[Effect]:
        """A container could not be started. `ErrImagePull` is retried for every policy; any other
        reason counts as an exit with code 128."""
        pod = self._pods.get(uid)
        if pod is None:
            return []
        state = pod.container(name)
        if reason == "ErrImagePull":
            message = f'Failed to pull image "{state.image}": {text}'
            state.stage, state.reason, state.message = "waiting", reason, text
            state.restarts += 1
            retry = SetTimer(f"container:{uid}:{name}", now + self._back_off(state))
            state.restarts -= 1
            return [
                self._event(pod, "Warning", "Failed", message),
                self._event(pod, "Warning", "Failed", "Error: ErrImagePull"),
                *self._status(pod, now),
                retry,
            ]
        event = self._event(pod, "Warning", "Failed", f"Error: {text}")
        return self._settled([event, *self._ended(pod, state, 128, reason, text, now)], now)

    def container_exited(
        self, uid: str, name: str, exit_code: int, reason: str, text: str, now: float
    ) -> list[Effect]:
        pod = self._pods.get(uid)
        if pod is None:
            return []
        state = pod.container(name)
        if state.stage == "terminated" or (state.stage == "waiting" and state.last is not None):
            return []  # lost with the machine before
        why = reason or ("Completed" if exit_code == 0 else "Error")
        return self._settled(self._ended(pod, state, exit_code, why, text, now), now)

    def pod_stopped(self, uid: str, now: float) -> list[Effect]:
        pod = self._pods.get(uid)
        if pod is None:
            return []
        pod.has_sandbox = False
        self._losing.discard(uid)
        if not self.is_up:
            return self._boot_again(now)
        effects = self._gone(pod, now) if pod.is_deleting else self._status(pod, now)
        return self._settled(effects, now)

    # --- inside: the process

    def _wall(self, now: float) -> float:
        return self._epoch_s + now

    def _guarded(self, work: Callable[[], list[Effect] | None], now: float) -> list[Effect] | None:
        """Do it; a version that would crash here crashes, and is started again."""
        try:
            effects = work()
        except KubeletPanic as panic:
            crash = self.restart(now, delay_s=SERVICE_MANAGER_S, is_crash=True)
            return [Record("kubelet.panic", {"why": str(panic)}), *crash]
        return None if effects is None else self._settled(effects, now)

    def _settled(self, effects: list[Effect], now: float) -> list[Effect]:
        """What every piece of work ends with: the next admissions, and the checkpoint if it has to
        be written."""
        effects = [*effects, *self._admit(now)]
        if not self.devices.is_dirty:
            return effects
        content = self.devices.checkpoint()
        return [*effects, WriteCheckpoint(content, self.personality.checkpoint_write)]

    def _running_containers(self) -> set[tuple[str, str]]:
        """What the runtime lists as running. Of a container that ran before, a version that looks
        at a single id may hit the old one."""
        found = set()
        for uid, pod in self._pods.items():
            for state in pod.containers:
                if state.stage != "running":
                    continue
                is_single = self.personality.running_container_bypass == "single_id"
                if is_single and state.restarts and self._rng.random() < 0.5:
                    continue
                found.add((uid, state.name))
        return found

    def _lose_containers(self, now: float) -> list[Effect]:
        """Every container and sandbox of the machine goes, without the kubelet's doing."""
        effects: list[Effect] = []
        for pod in self._pods.values():
            for state in pod.containers:
                if state.stage in ("running", "starting"):
                    state.stage, state.reason = "terminated", "Unknown"
                    state.exit_code, state.finished_s = LOST_EXIT_CODE, self._wall(now)
                    state.has_news = True
            if pod.has_sandbox:
                self._losing.add(pod.uid)
                effects.append(KillPod(pod.uid, 0.0))
        return effects

    def _boot_again(self, now: float) -> list[Effect]:
        """Start after a restart, as soon as no sandbox is being removed any more."""
        delay_s = self._boots_again_in_s
        if delay_s is None or self._losing:
            return []
        self._boots_again_in_s = None
        return [SetTimer("boot", now + delay_s)] if delay_s > 0 else [Boot()]

    def _reboot_event(self) -> PostEvent:
        text = f"Node {self.identity.name} has been rebooted, boot id: {boot_id(self._boots)}"
        involved = {"apiVersion": "v1", "kind": "Node", "name": self.identity.name}
        return PostEvent(involved, "Warning", "Rebooted", text)

    def _pick_up(self, pod: Pod, now: float) -> list[Effect]:
        """A starting kubelet meets a pod that was there before."""
        if pod.is_orphan:
            pod.is_forgotten = True
        if pod.is_deleting or pod.is_orphan:
            return self._terminate(pod, now)
        if pod.is_rejected or (pod.is_over and self.personality.readmit_terminal_pods == "off"):
            return []
        self._queue.append(pod.uid)
        return []

    def _active(self) -> set[str]:
        if self.personality.finished_pods == "free":
            return {uid for uid, pod in self._pods.items() if not pod.is_over}
        return {uid for uid, pod in self._pods.items() if pod.is_active}

    # --- inside: the node

    def _sync_node(self, now: float) -> list[Effect]:
        """One look at the devices; writes only what changed, or a heartbeat now and then."""
        again = SetTimer("node", now + self._update_s)
        seen = self.devices.look(now)
        self._node_capacity.update(seen.capacity)
        self._node_allocatable.update(seen.capacity)
        self._node_allocatable.update(seen.allocatable)
        for name in seen.removed:
            self._node_capacity[name] = self._node_allocatable[name] = 0
        for name, count in self._node_capacity.items():
            # Nothing was said of it in this look: allocatable is copied from capacity.
            if name not in seen.capacity and name not in seen.removed:
                self._node_allocatable[name] = count
        shown = (dict(self._node_capacity), dict(self._node_allocatable))
        is_due = now - self._reported_at >= self.settings.node_status_report_s
        if shown == self._reported and not is_due:
            return [again]
        self._reported, self._reported_at = shown, now
        status = node_status(
            self.identity,
            *shown,
            ready_since_s=self._wall(self._started_at),
            heartbeat_s=self._wall(now),
            release=self.personality.release,
            boots=self._boots,
        )
        return [UpdateNodeStatus(status), again]

    # --- inside: admission

    def _admit(self, now: float) -> list[Effect]:
        """Work on the admission queue until a plugin has to be asked."""
        effects: list[Effect] = []
        while self.is_up and self._queue and self._admitting is None:
            pod = self._pods.get(uid := self._queue.popleft())
            if pod is None or pod.is_deleting or pod.is_rejected:
                self._admission_over(uid)
                continue
            self._admitting = uid
            steps = self._admission(pod)

            def done(error: AllocationError | None, then: float, pod: Pod = pod) -> list[Effect]:
                return self._decided(pod, error, then)

            effects += self.links.run(steps, done, now)
        return effects

    def _admission(self, pod: Pod) -> Generator[tuple[int, Ask], Answer, None]:
        for state in pod.containers:
            limits = pod.limits(state.name)
            names = self._rng.sample(order := list(limits), len(order))
            limits = {name: limits[name] for name in names}
            if not self.devices.align(pod.uid, state.name, limits):
                raise _Refused(
                    "TopologyAffinityError",
                    "Resources cannot be allocated with Topology locality",
                )
            yield from self.devices.allocate(
                pod.uid, state.name, limits, is_reusable=pod.is_reusable(state.name)
            )
        self._check_fit(pod)

    def _check_fit(self, pod: Pod) -> None:
        """The node must have what its pods ask for, as it was last reported."""
        for name, count in sorted(pod.request().items()):
            if name not in self._node_allocatable or count == 0:
                continue
            limit = self._node_allocatable[name]
            if pod.uid in self.devices.holders():
                limit = max(limit, len(self.devices.allocated(name)))
            used = sum(
                other.request().get(name, 0)
                for other in self._pods.values()
                if other is not pod and other.is_admitted and other.is_active
            )
            if used + count > limit:
                raise _Refused(
                    f"OutOf{name}",
                    f"Node didn't have enough resource: {name}, requested: {count}, "
                    f"used: {used}, capacity: {limit}",
                )

    def _decided(self, pod: Pod, error: AllocationError | None, now: float) -> list[Effect]:
        if error is None:
            effects = self._admitted(pod, now)
        elif isinstance(error, _Refused):
            effects = self._reject(pod, error.reason, str(error), now)
        else:
            message = f"Allocate failed due to {error}, which is unexpected"
            effects = self._reject(pod, "UnexpectedAdmissionError", message, now)
        self._admitting = None
        self._admission_over(pod.uid)
        return effects

    def _admission_over(self, uid: str) -> None:
        self._first_batch.discard(uid)
        if not self._first_batch:
            self._sources_ready = True

    def _admitted(self, pod: Pod, now: float) -> list[Effect]:
        if self._pods.get(pod.uid) is not pod or pod.is_deleting:
            return []
        was_over = pod.is_over
        pod.is_admitted = True
        if was_over:
            return []
        effects: list[Effect] = []
        for state in pod.containers:
            is_news, state.has_news = state.has_news, False
            if is_news and (pod.has_sandbox or pod.restart_policy == "Never"):
                effects += self._ended(
                    pod, state, state.exit_code, state.reason, state.message, now
                )
        if pod.is_over:
            return [*effects, *self._status(pod, now)]
        if pod.has_sandbox:
            again = self._start_next(pod, now, ignores_back_off=True)
            return [*effects, *self._status(pod, now), *again]
        if pod.is_sandbox_asked:
            return effects
        for state in pod.containers:  # a new sandbox: everything begins anew
            if state.stage == "terminated":
                state.restarts += 1
                state.last = state.ended()
                state.stage, state.reason = "waiting", "ContainerCreating"
        return [*effects, *self._status(pod, now), *self._run_sandbox(pod, now)]

    def _reject(self, pod: Pod, reason: str, message: str, now: float) -> list[Effect]:
        if self._pods.get(pod.uid) is not pod:
            return []
        if self.personality.admission_metric == "on":
            self.metrics.rejected(reason)
        pod.is_rejected = True
        status = rejected_status(reason, self.personality.status_prefix + message, pod.started_s)
        pod.last_status = status
        effects: list[Effect] = [
            self._event(pod, "Warning", reason, message),
            UpdatePodStatus(pod.namespace, pod.name, pod.uid, status),
        ]
        if pod.has_sandbox:
            effects += [*self._killing(pod), KillPod(pod.uid, DEFAULT_GRACE_S)]
        return effects

    # --- inside: containers

    def _terminate(self, pod: Pod, now: float) -> list[Effect]:
        if not pod.has_sandbox:
            # A sandbox that is being made is ended as soon as it is there.
            return [] if pod.is_sandbox_asked else self._gone(pod, now)
        grace = pod.pod["metadata"].get("deletionGracePeriodSeconds")
        if pod.is_orphan and grace is None:
            grace = pod.pod["spec"].get("terminationGracePeriodSeconds")
        slow_s = self._dies_slowly.pop(pod.uid, None)
        if slow_s is not None:
            return [*self._killing(pod), SetTimer(f"kill:{pod.uid}", now + slow_s)]
        grace_s = DEFAULT_GRACE_S if grace is None else float(grace)
        return [*self._killing(pod), KillPod(pod.uid, grace_s)]

    def _killing(self, pod: Pod) -> list[Effect]:
        running = [c for c in pod.containers if c.stage == "running"]
        return [
            self._event(pod, "Normal", "Killing", f"Stopping container {c.name}") for c in running
        ]

    def _run_sandbox(self, pod: Pod, now: float) -> list[Effect]:
        class_name = pod.pod["spec"].get("runtimeClassName")
        try:
            handler = self._handler_of(class_name)
        except LookupError as error:
            text = (
                f'failed to get sandbox runtime for pod "{pod.name}_{pod.namespace}({pod.uid})": '
                f"{error.args[0]}"
            )
            return self.sandbox_failed(pod.uid, text, now)
        pod.is_sandbox_asked = True
        return [RunSandbox(pod.pod, handler)]

    def _start_next(self, pod: Pod, now: float, *, ignores_back_off: bool = False) -> list[Effect]:
        """The next init container, or all app containers once the inits are through."""
        effects: list[Effect] = []

        def waits(state: ContainerState) -> bool:
            return state.reason == "CrashLoopBackOff" and not ignores_back_off

        for state in pod.containers:
            if not state.is_init or state.is_through or (state.is_sidecar and waits(state)):
                continue
            is_due = state.stage == "waiting" and not waits(state)
            return self._start_container(pod, state, now) if is_due else []
        for state in pod.containers:
            if not state.is_init and state.stage == "waiting" and not waits(state):
                effects += self._start_container(pod, state, now)
        return effects

    def _start_container(self, pod: Pod, state: ContainerState, now: float) -> list[Effect]:
        if not pod.has_sandbox or not self.is_up:
            return []
        if state.stage == "terminated":
            state.restarts += 1
            state.last = state.ended()
        state.stage = "starting"
        self._starting.add((pod.uid, state.name))
        steps = self.devices.before_start(
            pod.uid,
            state.name,
            pod.limits(state.name),
            is_reusable=pod.is_reusable(state.name),
        )

        def done(error: AllocationError | None, then: float) -> list[Effect]:
            return self._ready_to_start(pod, state, error, then)

        return self.links.run(steps, done, now)

    def _ready_to_start(
        self, pod: Pod, state: ContainerState, error: AllocationError | None, now: float
    ) -> list[Effect]:
        self._starting.discard((pod.uid, state.name))
        if pod.is_deleting or not pod.has_sandbox:
            state.stage = "waiting"
            return []
        if error is None:
            options = self.devices.run_options(pod.uid, state.name)
            return [StartContainer(pod.pod, state.name, state.restarts, options)]
        state.stage, state.reason = "waiting", "CreateContainerConfigError"
        state.message = str(error)
        return [
            self._event(pod, "Warning", "Failed", f"Error: {error}"),
            *self._status(pod, now),
            SetTimer(f"container:{pod.uid}:{state.name}", now + CONFIG_RETRY_S),
        ]

    def _ended(
        self, pod: Pod, state: ContainerState, code: int, reason: str, text: str, now: float
    ) -> list[Effect]:
        state.stage, state.reason, state.message = "terminated", reason, text
        state.exit_code = code
        if not state.has_news:
            state.finished_s = self._wall(now)
        state.has_news = not self.is_up
        if not self.is_up or pod.is_rejected:
            return []
        if pod.is_deleting:
            return self._status(pod, now)
        policy = "Always" if state.is_sidecar else pod.restart_policy
        is_done = code == 0 and (self._is_once(state) or policy != "Always")
        if is_done:
            effects = self._start_next(pod, now) if state.is_init else []
            effects = [*effects, *self._status(pod, now)]
            return [*effects, *self._stop_finished(pod)]
        if policy == "Never" or pod.is_over:
            return [*self._status(pod, now), *self._stop_finished(pod)]
        delay = self._back_off(state)
        message = (
            f"Back-off restarting failed container {state.name} in pod "
            f"{pod.name}_{pod.namespace}({pod.uid})"
        )
        state.last = state.ended()
        state.stage, state.reason = "waiting", "CrashLoopBackOff"
        state.message = f"back-off {delay:g}s restarting failed container={state.name}"
        effects = [self._event(pod, "Warning", "BackOff", message), *self._status(pod, now)]
        state.restarts += 1
        return [*effects, SetTimer(f"container:{pod.uid}:{state.name}", now + delay)]

    @staticmethod
    def _is_once(state: ContainerState) -> bool:
        return state.is_init and not state.is_sidecar

    def _stop_finished(self, pod: Pod) -> list[Effect]:
        """A pod that is over gives up its sandbox."""
        return [KillPod(pod.uid, 0.0)] if pod.is_over and pod.has_sandbox else []

    @staticmethod
    def _back_off(state: ContainerState) -> float:
        return float(min(FIRST_BACK_OFF_S * 2 ** min(state.restarts, 10), MAX_BACK_OFF_S))

    def _gone(self, pod: Pod, now: float) -> list[Effect]:
        self._pods.pop(pod.uid, None)
        self._dies_slowly.pop(pod.uid, None)
        return [] if pod.is_orphan else [DeletePod(pod.namespace, pod.name, pod.uid)]

    def _status(self, pod: Pod, now: float) -> list[Effect]:
        if not self.is_up or pod.is_rejected or pod.is_orphan:
            return []
        status = pod_status(
            pod.containers,
            restart_policy=pod.restart_policy,
            host_ip=self.identity.address,
            started_s=pod.started_s,
            now_s=self._wall(now),
            has_sandbox=pod.has_sandbox,
            device_health=self._device_health(pod),
        )
        is_held = self.personality.finished_pods == "held" and pod.has_sandbox
        if is_held and status["phase"] in ("Succeeded", "Failed"):
            status["phase"] = (pod.last_status or {}).get("phase", "Pending")
        if status == pod.last_status:
            return []
        pod.last_status = status
        return [UpdatePodStatus(pod.namespace, pod.name, pod.uid, status)]

    def _device_health(self, pod: Pod) -> dict[str, list[dict[str, Any]]]:
        if self.personality.resource_health_status == "off":
            return {}
        return {
            container: [
                {
                    "name": resource,
                    "resources": [
                        {"resourceID": one, "health": self.devices.health_of(resource, one)}
                        for one in sorted(holding.ids)
                    ],
                }
                for resource, holding in sorted(resources.items())
            ]
            for container, resources in self.devices.holdings(pod.uid).items()
        }

    @staticmethod
    def _event(pod: Pod, kind: str, reason: str, message: str) -> PostEvent:
        involved = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        }
        return PostEvent(involved, kind, reason, message)
