"""One simulated server, wired: kubelet core, runtime, plugins and the API's store.

The wiring is the same in virtual time and on the wall clock; only the ports differ. Owns the
translation between the rooms and the journal entries of what passes between them; decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from fake_kubelet.device_manager import Device, PluginOptions, RegisterRequest
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
from fake_kubelet.kubelet import Kubelet, Settings
from fake_kubelet.status import NodeIdentity
from simulator.cluster.cluster import Cluster
from simulator.cluster.errors import ApiError
from simulator.cluster.store import WatchEvent
from simulator.kernel.chance import Chance
from simulator.kernel.clock import Clock, Timer
from simulator.kernel.journal import Journal


class Runtime(Protocol):
    """What starts and stops containers; it reports to the node."""

    def run_sandbox(self, pod: Mapping[str, Any], handler: str) -> None: ...
    def start_container(
        self, pod: Mapping[str, Any], name: str, attempt: int, options: AllocateResponse
    ) -> None: ...
    def kill_container(self, uid: str, name: str, grace_s: float) -> None: ...
    def kill_pod(self, uid: str, grace_s: float) -> None: ...


class PluginLink(Protocol):
    """The kubelet's way to device plugins; it reports to the node."""

    def connect(self, client: int, endpoint: str) -> None: ...
    def watch(self, client: int) -> None: ...
    def disconnect(self, client: int) -> None: ...
    def allocate(self, call: int, client: int, device_ids: tuple[str, ...]) -> None: ...
    def wipe(self) -> None: ...


class Chips(Protocol):
    """The cards, told which container computes on which chips (by physical id)."""

    def occupy(self, uid: str, container: str, phy_ids: tuple[int, ...]) -> None: ...
    def vacate(self, uid: str, container: str) -> None: ...


class Node:
    """A node; `attach` gives it its ports before `start`."""

    def __init__(
        self,
        identity: NodeIdentity,
        *,
        cluster: Cluster,
        clock: Clock,
        chance: Chance,
        journal: Journal,
        settings: Settings | None = None,
    ) -> None:
        self.name = identity.name
        self._cluster = cluster
        self._clock = clock
        self._journal = journal
        self._runtime: Runtime
        self._plugins: PluginLink
        self._chips: Chips
        self._given: dict[tuple[str, str], tuple[int, ...]] = {}  # chips of each container
        self._timers: dict[str, Timer] = {}
        self.kubelet = Kubelet(
            identity,
            rng=chance.stream(f"kubelet {identity.name}"),
            handler_of=self._handler_of,
            epoch_s=clock.epoch() - clock.now(),
            settings=settings,
        )

    def attach(self, runtime: Runtime, plugins: PluginLink, chips: Chips) -> None:
        self._runtime, self._plugins, self._chips = runtime, plugins, chips

    def start(self) -> None:
        self._apply(self.kubelet.start(self._now()))
        self._cluster.store.subscribe(self._changed)
        for pod in self._cluster.store.list("pods"):
            self._see_pod(pod)

    def restart_kubelet(self) -> None:
        self._journal.record("kubelet.restart", node=self.name)
        self._apply(self.kubelet.restart(self._now()))

    def hold_pod(self, uid: str) -> None:
        self._apply(self.kubelet.hold_pod(uid, self._now()))

    def release_pod(self, uid: str) -> None:
        self._apply(self.kubelet.release_pod(uid, self._now()))

    # --- what plugins do

    def register(self, request: RegisterRequest) -> int:
        """A plugin registers; returns its client number, or raises RegistrationError."""
        effects = self.kubelet.register(request, self._now())
        self._journal.record(
            "plugin.register",
            node=self.name,
            resource=request.resource_name,
            endpoint=request.endpoint,
        )
        (connect,) = (effect for effect in effects if isinstance(effect, Connect))
        self._apply(effects)
        return connect.client

    def plugin_connected(self, client: int, options: PluginOptions) -> None:
        self._apply(self.kubelet.plugin_connected(client, options, self._now()))

    def connect_failed(self, client: int, text: str) -> None:
        self._journal.record("plugin.unreachable", node=self.name, why=text)
        self._apply(self.kubelet.connect_failed(client, text, self._now()))

    def devices_reported(self, client: int, devices: Iterable[Device]) -> None:
        listed = tuple(devices)
        self._journal.record(
            "plugin.devices",
            node=self.name,
            devices={device.id: device.health for device in listed},
        )
        self._apply(self.kubelet.devices_reported(client, listed, self._now()))

    def stream_ended(self, client: int) -> None:
        self._journal.record("plugin.stream-ended", node=self.name)
        self._apply(self.kubelet.stream_ended(client, self._now()))

    def allocate_answered(self, call: int, outcome: AllocateResponse | str) -> None:
        said = {"error": outcome} if isinstance(outcome, str) else {"envs": dict(outcome.envs)}
        self._journal.record("plugin.allocated", node=self.name, **said)
        self._apply(self.kubelet.allocate_answered(call, outcome, self._now()))

    # --- what the runtime reports

    def sandbox_started(self, uid: str) -> None:
        self._apply(self.kubelet.sandbox_started(uid, self._now()))

    def sandbox_failed(self, uid: str, text: str) -> None:
        self._journal.record("sandbox.failed", uid=uid, why=text)
        self._apply(self.kubelet.sandbox_failed(uid, text, self._now()))

    def container_started(self, uid: str, name: str, container_id: str) -> None:
        self._journal.record("container.started", uid=uid, container=name)
        if self._given.get((uid, name)):
            self._chips.occupy(uid, name, self._given[uid, name])
        self._apply(self.kubelet.container_started(uid, name, container_id, self._now()))

    def container_failed(self, uid: str, name: str, reason: str, text: str) -> None:
        self._journal.record("container.failed", uid=uid, container=name, reason=reason, why=text)
        self._apply(self.kubelet.container_failed(uid, name, reason, text, self._now()))

    def container_exited(self, uid: str, name: str, code: int, reason: str) -> None:
        self._journal.record("container.exited", uid=uid, container=name, code=code)
        if self._given.pop((uid, name), ()):
            self._chips.vacate(uid, name)
        self._apply(self.kubelet.container_exited(uid, name, code, reason, "", self._now()))

    def pod_stopped(self, uid: str) -> None:
        self._apply(self.kubelet.pod_stopped(uid, self._now()))

    # --- inside

    def _now(self) -> float:
        return self._clock.now()

    def _handler_of(self, runtime_class: str | None) -> str:
        if not runtime_class:
            return ""
        found = self._cluster.store.find("runtimeclasses", runtime_class)
        if found is None:
            raise LookupError(f'runtimeclass.node.k8s.io "{runtime_class}" not found')
        return str(found["handler"])

    def _changed(self, event: WatchEvent) -> None:
        """The API told of a change; looked at outside the call that made it."""
        if event.kind.plural != "pods" or event.obj["spec"].get("nodeName") != self.name:
            return
        if event.change == "DELETED":
            uid = str(event.obj["metadata"]["uid"])
            self._later(lambda: self._apply(self.kubelet.pod_gone(uid, self._now())))
        else:
            self._later(lambda: self._see_pod(event.obj))

    def _see_pod(self, pod: Mapping[str, Any]) -> None:
        if pod["spec"].get("nodeName") != self.name:
            return
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            self._apply(self.kubelet.pod_deleting(pod, self._now()))
            return
        current = self._cluster.store.find("pods", metadata["name"], metadata["namespace"])
        if current is not None and current["metadata"]["uid"] == metadata["uid"]:
            self._apply(self.kubelet.pod_assigned(pod, self._now()))

    def _later(self, action: Callable[[], None]) -> None:
        self._clock.call_later(0, action)

    def _apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            try:
                self._carry_out(effect)
            except ApiError as error:
                # The object is gone or changed meanwhile; the next change brings the truth.
                self._journal.record("api.refused", effect=type(effect).__name__, why=str(error))

    def _carry_out(self, effect: Effect) -> None:
        store, record = self._cluster.store, self._journal.record
        match effect:
            case Connect(client, _, endpoint):
                self._plugins.connect(client, endpoint)
            case Watch(client):
                self._plugins.watch(client)
            case Disconnect(client):
                self._plugins.disconnect(client)
            case CallAllocate(call, client, device_ids):
                record("plugin.allocate", node=self.name, devices=list(device_ids))
                self._plugins.allocate(call, client, device_ids)
            case WipeSockets():
                self._plugins.wipe()
            case RunSandbox(pod, handler):
                record("sandbox.run", pod=pod["metadata"]["name"], handler=handler)
                self._runtime.run_sandbox(pod, handler)
            case StartContainer(pod, container, attempt, options):
                record("container.start", pod=pod["metadata"]["name"], container=container)
                self._given[str(pod["metadata"]["uid"]), container] = _phy_ids(options)
                self._runtime.start_container(pod, container, attempt, options)
            case KillContainer(uid, container, grace_s):
                self._runtime.kill_container(uid, container, grace_s)
            case KillPod(uid, grace_s):
                self._runtime.kill_pod(uid, grace_s)
            case UpdatePodStatus(namespace, name, uid, status):
                self._write_pod_status(namespace, name, uid, status)
            case DeletePod(namespace, name, uid):
                store.delete("pods", name, namespace, grace_s=0, uid=uid)
            case RegisterNode(node):
                if store.find("nodes", self.name) is None:
                    record("node.registered", node=self.name)
                    store.create("nodes", dict(node))
            case UpdateNodeStatus(status):
                self._write_node_status(status)
            case RenewLease(node_name):
                self._cluster.renew_lease(node_name)
            case PostEvent(involved, kind, reason, message):
                record("event", object=involved["name"], reason=reason, message=message)
                self._cluster.post_event(involved, kind, reason, message, "kubelet", self.name)
            case SetTimer(key, at_s):
                if key in self._timers:
                    self._timers[key].cancel()
                delay = max(0.0, at_s - self._now())
                self._timers[key] = self._clock.call_later(delay, lambda: self._timer(key))

    def _timer(self, key: str) -> None:
        self._timers.pop(key, None)
        self._apply(self.kubelet.timer(key, self._now()))

    def _write_pod_status(
        self, namespace: str, name: str, uid: str, status: Mapping[str, Any]
    ) -> None:
        pod = self._cluster.store.get("pods", name, namespace)
        if pod["metadata"]["uid"] != uid:
            return
        self._journal.record("pod.status", pod=name, phase=status["phase"])
        pod["status"] = dict(status)
        self._cluster.store.update("pods", pod, namespace, only_status=True)

    def _write_node_status(self, status: Mapping[str, Any]) -> None:
        node = self._cluster.store.get("nodes", self.name)
        extended = {
            kind: {name: count for name, count in status[kind].items() if "/" in name}
            for kind in ("capacity", "allocatable")
        }
        self._journal.record("node.status", node=self.name, **extended)
        node["status"] = dict(status)
        self._cluster.store.update("nodes", node, only_status=True)


def _phy_ids(options: AllocateResponse) -> tuple[int, ...]:
    """The chips an Allocate answer hands out: by variable, or as device files."""
    listed = options.envs.get("ASCEND_VISIBLE_DEVICES", "")
    numbers = [int(part) for part in listed.split(",") if part.isdecimal()]
    for device in options.devices:
        found = re.fullmatch(r"/dev/davinci(\d+)", device.container_path)
        if found:
            numbers.append(int(found[1]))
    return tuple(dict.fromkeys(numbers))
