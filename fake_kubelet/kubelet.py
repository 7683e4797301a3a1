"""One node's kubelet as a pure state machine: plugins, pods, node status.

Inputs are calls that carry `now` (seconds of scenario time); outputs are effects for someone else
to carry out. Owns the order of things: admission is serial for the node, devices are allocated
before a sandbox is made, init containers run one by one, a pod is deleted when its containers are
gone. Knows no vendor. Leaves out probes, volumes and eviction.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fake_kubelet.device_manager import (
    AllocationError,
    Device,
    DeviceManager,
    PluginOptions,
    RegisterRequest,
    check_registration,
)
from fake_kubelet.effects import (
    AllocateResponse,
    CallAllocate,
    Connect,
    DeletePod,
    Disconnect,
    Effect,
    KillContainer,
    KillPod,
    PostEvent,
    RegisterNode,
    RenewLease,
    RunSandbox,
    SetTimer,
    StartContainer,
    UpdateNodeStatus,
    UpdatePodStatus,
    Watch,
    WipeSockets,
)
from fake_kubelet.status import (
    ContainerState,
    NodeIdentity,
    node_object,
    node_status,
    pod_phase,
    pod_status,
    rejected_status,
)

DEFAULT_GRACE_S = 30.0
SANDBOX_RETRY_S = 10.0
FIRST_BACK_OFF_S = 10.0
MAX_BACK_OFF_S = 300.0
LEASE_S = 10.0

HandlerOf = Callable[[str | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Times in seconds. # deviates: a real kubelet looks at its node every 10 s; the testbed's
    default is 0.5 s, so that changes show sooner."""

    node_status_update_s: float = 0.5
    node_status_report_s: float = 300.0
    grace_s: float = 300.0


@dataclass(slots=True, kw_only=True)
class _Client:
    resource: str
    endpoint: str
    is_watching: bool = False


@dataclass(slots=True, kw_only=True)
class _Pod:
    pod: Mapping[str, Any]
    started_s: float
    containers: list[ContainerState]
    todo: deque[tuple[str, str, int]] = field(default_factory=deque)
    is_admitted: bool = False
    is_rejected: bool = False
    has_sandbox: bool = False
    is_deleting: bool = False
    is_held: bool = False
    last_status: Mapping[str, Any] | None = None

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    @property
    def restart_policy(self) -> str:
        return str(self.pod["spec"].get("restartPolicy", "Always"))

    @property
    def is_over(self) -> bool:
        return self.is_rejected or (
            self.is_admitted
            and pod_phase(self.containers, self.restart_policy) in ("Succeeded", "Failed")
        )

    def container(self, name: str) -> ContainerState:
        return next(c for c in self.containers if c.name == name)


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
    ) -> None:
        self.identity = identity
        self.settings = settings or Settings()
        self.devices = DeviceManager(grace_s=self.settings.grace_s, rng=rng)
        self._handler_of = handler_of
        self._epoch_s = epoch_s
        self._clients: dict[int, _Client] = {}
        self._next_client = 1
        self._calls: dict[int, tuple[str, str, str]] = {}
        self._next_call = 1
        self._pods: dict[str, _Pod] = {}
        self._queue: deque[str] = deque()
        self._is_admitting = False
        self._started_at = 0.0
        self._node_capacity: dict[str, int] = {}
        self._node_allocatable: dict[str, int] = {}
        self._reported: tuple[dict[str, int], dict[str, int]] | None = None
        self._reported_at = 0.0

    # --- the kubelet itself

    def start(self, now: float) -> list[Effect]:
        """Listen, register the node, begin the periodic work."""
        self._started_at = now
        self._reported = None
        return [
            WipeSockets(),
            RegisterNode(node_object(self.identity)),
            RenewLease(self.identity.name),
            SetTimer("lease", now + LEASE_S),
            *self._sync_node(now),
        ]

    def restart(self, now: float) -> list[Effect]:
        """Stop and start: connections to plugins break, the checkpoint's knowledge stays, running
        containers keep running."""
        lost = [Disconnect(client) for client in self.devices.restart(now)]
        self._clients.clear()
        self._calls.clear()
        self._is_admitting = False
        for uid, pod in self._pods.items():
            if not pod.is_admitted and not pod.is_rejected and uid not in self._queue:
                self._forget_picks(pod)
                pod.todo = self._wanted(pod.pod)
                self._queue.append(uid)
        return [*lost, *self.start(now), *self._admit(now)]

    def timer(self, key: str, now: float) -> list[Effect]:
        kind, _, rest = key.partition(":")
        if kind == "lease":
            return [RenewLease(self.identity.name), SetTimer("lease", now + LEASE_S)]
        if kind == "node":
            return self._sync_node(now)
        uid, _, container = rest.partition(":")
        pod = self._pods.get(uid)
        if pod is None or pod.is_deleting or pod.is_over:
            return []
        if kind == "sandbox" and not pod.has_sandbox:
            return self._run_sandbox(pod, now)
        if kind == "container" and not pod.is_held:
            state = pod.container(container)
            if state.stage in ("waiting", "terminated"):
                return self._start_container(pod, state, now)
        return []

    # --- plugins

    def register(self, request: RegisterRequest, now: float) -> list[Effect]:
        """A plugin called Register; raises RegistrationError when it is refused."""
        check_registration(request)
        client = self._next_client
        self._next_client += 1
        self._clients[client] = _Client(resource=request.resource_name, endpoint=request.endpoint)
        return [Connect(client, request.resource_name, request.endpoint)]

    def plugin_connected(self, client: int, options: PluginOptions, now: float) -> list[Effect]:
        known = self._clients.get(client)
        if known is None:
            return [Disconnect(client)]
        known.is_watching = True
        self.devices.connected(known.resource, client, options)
        return [Watch(client)]

    def connect_failed(self, client: int, text: str, now: float) -> list[Effect]:
        self._clients.pop(client, None)
        return []

    def devices_reported(self, client: int, devices: Iterable[Device], now: float) -> list[Effect]:
        known = self._clients.get(client)
        if known is None:
            return []
        self.devices.reported(known.resource, devices)
        return []

    def stream_ended(self, client: int, now: float) -> list[Effect]:
        known = self._clients.pop(client, None)
        if known is None or not known.is_watching:
            return []
        lost = self.devices.stream_ended(known.resource, now)
        return [] if lost is None else [Disconnect(lost)]

    # --- pods

    def pod_assigned(self, pod: Mapping[str, Any], now: float) -> list[Effect]:
        """A pod bound to this node appeared, or changed without being deleted."""
        uid = str(pod["metadata"]["uid"])
        if uid in self._pods:
            self._pods[uid].pod = pod
            return []
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return []
        spec = pod["spec"]
        containers = [
            ContainerState(name=c["name"], image=c.get("image", ""), is_init=is_init)
            for is_init, group in ((True, "initContainers"), (False, "containers"))
            for c in spec.get(group) or ()
        ]
        self._pods[uid] = _Pod(
            pod=pod, started_s=self._wall(now), containers=containers, todo=self._wanted(pod)
        )
        self._queue.append(uid)
        return self._admit(now)

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
        if not known.has_sandbox:
            return self._gone(known, now)
        grace = metadata.get("deletionGracePeriodSeconds")
        stopping = [c for c in known.containers if c.stage == "running"]
        events = [
            self._event(known, "Normal", "Killing", f"Stopping container {c.name}")
            for c in stopping
        ]
        return [*events, KillPod(uid, DEFAULT_GRACE_S if grace is None else float(grace))]

    def pod_gone(self, uid: str, now: float) -> list[Effect]:
        """The object vanished (forced deletion, or our own request was carried out)."""
        known = self._pods.pop(uid, None)
        if known is None or not known.has_sandbox:
            return []
        return [KillPod(uid, 0.0)]

    def hold_pod(self, uid: str, now: float) -> list[Effect]:
        """Stop a pod's containers and keep them down until `release_pod`."""
        pod = self._pods[uid]
        pod.is_held = True
        return [KillContainer(uid, c.name, 2.0) for c in pod.containers if c.stage == "running"]

    def release_pod(self, uid: str, now: float) -> list[Effect]:
        pod = self._pods[uid]
        pod.is_held = False
        effects: list[Effect] = []
        for state in pod.containers:
            if state.stage in ("waiting", "terminated") and not state.is_init:
                effects += self._start_container(pod, state, now)
        return effects

    def allocate_answered(
        self, call: int, outcome: AllocateResponse | str, now: float
    ) -> list[Effect]:
        """A plugin answered Allocate, or the call failed with a text."""
        known = self._calls.pop(call, None)
        if known is None:
            return []
        uid, container, resource = known
        self._is_admitting = False
        pod = self._pods.get(uid)
        if isinstance(outcome, str):
            self.devices.release(uid, container, resource)
            effects = [] if pod is None else self._reject(pod, outcome, now)
            return [*effects, *self._admit(now)]
        self.devices.answered(uid, container, resource, outcome)
        if pod is not None:
            self._queue.appendleft(uid)
        return self._admit(now)

    def sandbox_started(self, uid: str, now: float) -> list[Effect]:
        pod = self._pods.get(uid)
        if pod is None or pod.is_deleting:
            return [KillPod(uid, 0.0)]
        pod.has_sandbox = True
        return [*self._status(pod, now), *self._start_next(pod, now)]

    def sandbox_failed(self, uid: str, text: str, now: float) -> list[Effect]:
        pod = self._pods.get(uid)
        if pod is None:
            return []
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
        image = f'Container image "{state.image}" already present on machine'
        return [
            self._event(pod, "Normal", "Pulled", image),
            self._event(pod, "Normal", "Created", f"Created container {name}"),
            self._event(pod, "Normal", "Started", f"Started container {name}"),
            *self._status(pod, now),
        ]

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
        return [event, *self._ended(pod, state, 128, reason, text, now)]

    def container_exited(
        self, uid: str, name: str, exit_code: int, reason: str, text: str, now: float
    ) -> list[Effect]:
        pod = self._pods.get(uid)
        if pod is None:
            return []
        state = pod.container(name)
        why = reason or ("Completed" if exit_code == 0 else "Error")
        return self._ended(pod, state, exit_code, why, text, now)

    def pod_stopped(self, uid: str, now: float) -> list[Effect]:
        pod = self._pods.get(uid)
        if pod is None:
            return []
        pod.has_sandbox = False
        return self._gone(pod, now) if pod.is_deleting else []

    # --- inside

    def _wall(self, now: float) -> float:
        return self._epoch_s + now

    def _sync_node(self, now: float) -> list[Effect]:
        """One look at the devices; writes only what changed, or a heartbeat now and then."""
        again = SetTimer("node", now + self.settings.node_status_update_s)
        seen = self.devices.look(now)
        self._node_capacity.update(seen.capacity)
        self._node_allocatable.update(seen.capacity)
        self._node_allocatable.update(seen.allocatable)
        for name in seen.removed:
            self._node_capacity[name] = self._node_allocatable[name] = 0
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
        )
        return [UpdateNodeStatus(status), again]

    @staticmethod
    def _wanted(pod: Mapping[str, Any]) -> deque[tuple[str, str, int]]:
        """(container, resource, count) of every extended resource, init containers first."""
        spec = pod["spec"]
        return deque(
            (container["name"], resource, int(str(count)))
            for group in ("initContainers", "containers")
            for container in spec.get(group) or ()
            for resource, count in sorted(
                ((container.get("resources") or {}).get("limits") or {}).items()
            )
            if "/" in resource and str(count).isdigit()
        )

    def _admit(self, now: float) -> list[Effect]:
        """Work on the admission queue until a plugin has to be asked."""
        effects: list[Effect] = []
        while self._queue and not self._is_admitting:
            pod = self._pods.get(self._queue.popleft())
            if pod is None or pod.is_deleting or pod.is_over:
                continue
            effects += self._admit_one(pod, now)
        return effects

    def _admit_one(self, pod: _Pod, now: float) -> list[Effect]:
        while pod.todo:
            container, resource, count = pod.todo[0]
            if not self.devices.knows(resource):
                pod.todo.popleft()
                continue
            self.devices.collect(p.uid for p in self._pods.values() if not p.is_over)
            try:
                picked = self.devices.pick(pod.uid, container, resource, count)
            except AllocationError as error:
                return self._reject(pod, str(error), now)
            pod.todo.popleft()
            if picked is not None:
                client, ids = picked
                call = self._next_call
                self._next_call += 1
                self._calls[call] = (pod.uid, container, resource)
                self._is_admitting = True
                return [CallAllocate(call, client, ids)]
        pod.is_admitted = True
        return [*self._status(pod, now), *self._run_sandbox(pod, now)]

    def _reject(self, pod: _Pod, why: str, now: float) -> list[Effect]:
        pod.is_rejected = True
        reason = "UnexpectedAdmissionError"
        message = f"Allocate failed due to {why}, which is unexpected"
        metadata = pod.pod["metadata"]
        status = rejected_status(reason, message, pod.started_s)
        return [
            self._event(pod, "Warning", reason, message),
            UpdatePodStatus(metadata["namespace"], metadata["name"], pod.uid, status),
        ]

    def _run_sandbox(self, pod: _Pod, now: float) -> list[Effect]:
        class_name = pod.pod["spec"].get("runtimeClassName")
        try:
            handler = self._handler_of(class_name)
        except LookupError as error:
            metadata = pod.pod["metadata"]
            text = (
                f'failed to get sandbox runtime for pod "{metadata["name"]}_'
                f'{metadata["namespace"]}({pod.uid})": {error.args[0]}'
            )
            return self.sandbox_failed(pod.uid, text, now)
        return [RunSandbox(pod.pod, handler)]

    def _start_next(self, pod: _Pod, now: float) -> list[Effect]:
        """The next init container, or all app containers once the inits are through."""
        for state in pod.containers:
            if state.is_init and not (state.stage == "terminated" and state.exit_code == 0):
                return self._start_container(pod, state, now) if state.stage == "waiting" else []
        effects: list[Effect] = []
        for state in pod.containers:
            if not state.is_init and state.stage == "waiting":
                effects += self._start_container(pod, state, now)
        return effects

    def _start_container(self, pod: _Pod, state: ContainerState, now: float) -> list[Effect]:
        if not pod.has_sandbox:
            return []
        if state.stage == "terminated":
            state.restarts += 1
            state.last = state.ended()
        state.stage = "starting"
        options = self.devices.run_options(pod.uid, state.name)
        return [StartContainer(pod.pod, state.name, state.restarts, options)]

    def _ended(
        self, pod: _Pod, state: ContainerState, code: int, reason: str, text: str, now: float
    ) -> list[Effect]:
        state.stage, state.reason, state.message = "terminated", reason, text
        state.exit_code, state.finished_s = code, self._wall(now)
        if pod.is_deleting:
            return self._status(pod, now)
        is_done = code == 0 and (state.is_init or pod.restart_policy != "Always")
        if is_done:
            effects = self._start_next(pod, now) if state.is_init else []
            effects = [*effects, *self._status(pod, now)]
            return [*effects, *self._stop_finished(pod)]
        if pod.restart_policy == "Never":
            return [*self._status(pod, now), *self._stop_finished(pod)]
        delay = self._back_off(state)
        message = (
            f"Back-off restarting failed container {state.name} in pod "
            f"{pod.pod['metadata']['name']}_{pod.pod['metadata']['namespace']}({pod.uid})"
        )
        state.last = state.ended()
        state.stage, state.reason = "waiting", "CrashLoopBackOff"
        state.message = f"back-off {delay:g}s restarting failed container={state.name}"
        effects = [self._event(pod, "Warning", "BackOff", message), *self._status(pod, now)]
        state.restarts += 1
        return [*effects, SetTimer(f"container:{pod.uid}:{state.name}", now + delay)]

    def _stop_finished(self, pod: _Pod) -> list[Effect]:
        """A pod that is over gives up its sandbox."""
        return [KillPod(pod.uid, 0.0)] if pod.is_over and pod.has_sandbox else []

    @staticmethod
    def _back_off(state: ContainerState) -> float:
        return float(min(FIRST_BACK_OFF_S * 2 ** min(state.restarts, 10), MAX_BACK_OFF_S))

    def _gone(self, pod: _Pod, now: float) -> list[Effect]:
        self._pods.pop(pod.uid, None)
        metadata = pod.pod["metadata"]
        return [DeletePod(metadata["namespace"], metadata["name"], pod.uid)]

    def _forget_picks(self, pod: _Pod) -> None:
        for container, resources in self.devices.holdings(pod.uid).items():
            for resource in resources:
                self.devices.release(pod.uid, container, resource)

    def _status(self, pod: _Pod, now: float) -> list[Effect]:
        status = pod_status(
            pod.containers,
            restart_policy=pod.restart_policy,
            host_ip=self.identity.address,
            started_s=pod.started_s,
            now_s=self._wall(now),
            has_sandbox=pod.has_sandbox,
        )
        if status == pod.last_status:
            return []
        pod.last_status = status
        metadata = pod.pod["metadata"]
        return [UpdatePodStatus(metadata["namespace"], metadata["name"], pod.uid, status)]

    @staticmethod
    def _event(pod: _Pod, kind: str, reason: str, message: str) -> PostEvent:
        metadata = pod.pod["metadata"]
        involved = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": pod.uid,
        }
        return PostEvent(involved, kind, reason, message)
