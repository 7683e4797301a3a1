"""One simulated server, wired: kubelet core, runtime, plugins and the API's store.

The wiring is the same in virtual time and on the wall clock; only the ports differ. Owns the
translation between the rooms and the journal entries of what passes between them; decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fake_kubelet import actions
from fake_kubelet.effects import (
    ApiEffect,
    DeletePod,
    KillContainer,
    KillPod,
    PostEvent,
    RegisterNode,
    RenewLease,
    RunSandbox,
    RuntimeEffect,
    StartContainer,
    UpdateNodeStatus,
    UpdatePodStatus,
)
from fake_kubelet.kubelet import Kubelet, Settings
from fake_kubelet.messages import AllocateResponse
from fake_kubelet.personality import Personality
from fake_kubelet.status import NodeIdentity, merged_status, reset_extended
from fake_kubelet.wiring import PluginPort, Wiring
from simulator.cluster.cluster import Cluster
from simulator.cluster.errors import ApiError
from simulator.cluster.store import WatchEvent
from simulator.kernel.chance import Chance
from simulator.kernel.clock import Clock
from simulator.kernel.journal import Journal


class Runtime(Protocol):
    """What starts and stops containers; it reports to the node."""

    def run_sandbox(self, pod: Mapping[str, Any], handler: str) -> None: ...
    def start_container(
        self, pod: Mapping[str, Any], name: str, attempt: int, options: AllocateResponse
    ) -> None: ...
    def kill_container(self, uid: str, name: str, grace_s: float) -> None: ...
    def kill_pod(self, uid: str, grace_s: float) -> None: ...


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
        behaves_like: Personality | None = None,
    ) -> None:
        self.name = identity.name
        self._cluster = cluster
        self._clock = clock
        self._journal = journal
        self._runtime: Runtime
        self._chips: Chips
        self._given: dict[tuple[str, str], tuple[int, ...]] = {}  # chips of each container
        self.kubelet = Kubelet(
            identity,
            rng=chance.stream(f"kubelet {identity.name}"),
            handler_of=self._handler_of,
            epoch_s=clock.epoch() - clock.now(),
            settings=settings,
            behaves_like=behaves_like,
        )
        self.wiring = Wiring(self.kubelet, clock, self._record)

    def attach(self, runtime: Runtime, plugins: PluginPort, chips: Chips) -> None:
        self._runtime, self._chips = runtime, chips
        self.wiring.attach(plugins, _Ports(self._run), _Ports(self._write))

    def start(self) -> None:
        self.wiring.boot()
        self._cluster.store.subscribe(self._changed)
        for pod in self._cluster.store.list("pods"):
            self._see_pod(pod)

    def perform(self, action: actions.Action) -> None:
        """Do one of the kubelet's actions. Raises BadAction."""
        actions.perform(action, self.wiring, self._force_delete)

    def hold_pod(self, uid: str) -> None:
        self.wiring.apply(self.kubelet.hold_pod(uid, self._now()))

    def release_pod(self, uid: str) -> None:
        self.wiring.apply(self.kubelet.release_pod(uid, self._now()))

    # --- what the runtime reports

    def sandbox_started(self, uid: str) -> None:
        self.wiring.apply(self.kubelet.sandbox_started(uid, self._now()))

    def sandbox_failed(self, uid: str, text: str) -> None:
        self._journal.record("sandbox.failed", uid=uid, why=text)
        self.wiring.apply(self.kubelet.sandbox_failed(uid, text, self._now()))

    def container_started(self, uid: str, name: str, container_id: str) -> None:
        self._journal.record("container.started", uid=uid, container=name)
        if self._given.get((uid, name)):
            self._chips.occupy(uid, name, self._given[uid, name])
        self.wiring.apply(self.kubelet.container_started(uid, name, container_id, self._now()))

    def container_failed(self, uid: str, name: str, reason: str, text: str) -> None:
        self._journal.record("container.failed", uid=uid, container=name, reason=reason, why=text)
        self.wiring.apply(self.kubelet.container_failed(uid, name, reason, text, self._now()))

    def container_exited(self, uid: str, name: str, code: int, reason: str) -> None:
        self._journal.record("container.exited", uid=uid, container=name, code=code)
        if self._given.pop((uid, name), ()):
            self._chips.vacate(uid, name)
        self.wiring.apply(self.kubelet.container_exited(uid, name, code, reason, "", self._now()))

    def pod_stopped(self, uid: str) -> None:
        self.wiring.apply(self.kubelet.pod_stopped(uid, self._now()))

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
            self._later(lambda: self.wiring.apply(self.kubelet.pod_gone(uid, self._now())))
        else:
            self._later(lambda: self._see_pod(event.obj))

    def _see_pod(self, pod: Mapping[str, Any]) -> None:
        if pod["spec"].get("nodeName") != self.name:
            return
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            self.wiring.apply(self.kubelet.pod_deleting(pod, self._now()))
            return
        current = self._cluster.store.find("pods", metadata["name"], metadata["namespace"])
        if current is not None and current["metadata"]["uid"] == metadata["uid"]:
            self.wiring.apply(self.kubelet.pod_assigned(pod, self._now()))

    def _later(self, action: Callable[[], None]) -> None:
        self._clock.call_later(0, action)

    def _record(self, kind: str, fields: Mapping[str, Any]) -> None:
        self._journal.record(kind, node=self.name, **fields)

    def _force_delete(self, namespace: str, name: str) -> None:
        self._cluster.store.delete("pods", name, namespace, grace_s=0)

    def _run(self, effect: RuntimeEffect) -> None:
        record = self._journal.record
        match effect:
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

    def _write(self, effect: ApiEffect) -> None:
        try:
            self._write_to_store(effect)
        except ApiError as error:
            # The object is gone or changed meanwhile; the next change brings the truth.
            self._journal.record("api.refused", effect=type(effect).__name__, why=str(error))

    def _write_to_store(self, effect: ApiEffect) -> None:
        store = self._cluster.store
        match effect:
            case UpdatePodStatus(namespace, name, uid, status):
                self._write_pod_status(namespace, name, uid, status)
            case DeletePod(namespace, name, uid):
                store.delete("pods", name, namespace, grace_s=0, uid=uid)
            case RegisterNode(node, resets_extended):
                self._register_node(node, resets_extended)
            case UpdateNodeStatus(status):
                self._write_node_status(status)
            case RenewLease(node_name):
                self._cluster.renew_lease(node_name)
            case PostEvent(involved, kind, reason, message):
                self._journal.record(
                    "event", object=involved["name"], reason=reason, message=message
                )
                self._cluster.post_event(involved, kind, reason, message, "kubelet", self.name)

    def _register_node(self, node: Mapping[str, Any], resets_extended: bool) -> None:
        known = self._cluster.store.find("nodes", self.name)
        if known is None:
            self._journal.record("node.registered", node=self.name)
            self._cluster.store.create("nodes", dict(node))
            return
        if resets_extended and known.get("status"):
            reset = {**known, "status": reset_extended(known["status"])}
            self._cluster.store.update("nodes", reset, only_status=True)

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
        node["status"] = merged_status(node.get("status") or {}, status)
        self._cluster.store.update("nodes", node, only_status=True)


class _Ports:
    """A port that hands every effect to one function."""

    def __init__(self, carry_out: Callable[[Any], None]) -> None:
        self.carry_out = carry_out


def _phy_ids(options: AllocateResponse) -> tuple[int, ...]:
    """The chips an Allocate answer hands out: by variable, or as device files."""
    listed = options.envs.get("ASCEND_VISIBLE_DEVICES", "")
    numbers = [int(part) for part in listed.split(",") if part.isdecimal()]
    for device in options.devices:
        found = re.fullmatch(r"/dev/davinci(\d+)", device.container_path)
        if found:
            numbers.append(int(found[1]))
    return tuple(dict.fromkeys(numbers))
