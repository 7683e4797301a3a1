"""What a kubelet needs around it when nothing else is there: an API in memory, and a container
runtime whose containers start at once. Pure.

A container runs until it is told to end, or as the pod's annotations say: `fake-kubelet/exit-after`
(seconds) and `fake-kubelet/exit-code`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fake_kubelet.effects import (
    ApiEffect,
    DeletePod,
    KillContainer,
    KillPod,
    PostEvent,
    RegisterNode,
    RunSandbox,
    RuntimeEffect,
    StartContainer,
    UpdateNodeStatus,
    UpdatePodStatus,
)
from fake_kubelet.messages import AllocateResponse
from fake_kubelet.status import merged_status, reset_extended
from fake_kubelet.wiring import Clock, Wiring

EXIT_AFTER = "fake-kubelet/exit-after"
EXIT_CODE = "fake-kubelet/exit-code"
KILLED = 137

Object = dict[str, Any]


class ModelApi:
    """The objects a kubelet writes. `changed` is called after every change."""

    def __init__(self, wiring: Wiring, changed: Callable[[], None] = lambda: None) -> None:
        self.node: Object = {}
        self.pods: dict[tuple[str, str], Object] = {}
        self.events: list[PostEvent] = []
        self._wiring = wiring
        self._changed = changed

    def carry_out(self, effect: ApiEffect) -> None:
        match effect:
            case RegisterNode(node, resets_extended):
                status = self.node.get("status")
                if resets_extended and status:
                    self.node = {**self.node, "status": reset_extended(status)}
                self.node = {**node, **self.node}
            case UpdateNodeStatus(status):
                before = self.node.get("status") or {}
                self.node = {**self.node, "status": merged_status(before, status)}
            case UpdatePodStatus(namespace, name, uid, status):
                pod = self._pod(namespace, name, uid)
                if pod is not None:
                    pod["status"] = dict(status)
            case DeletePod(namespace, name, uid):
                if self._pod(namespace, name, uid) is not None:
                    del self.pods[namespace, name]
                    self._wiring.apply(self._wiring.kubelet.pod_gone(uid, self._wiring.now()))
            case PostEvent():
                self.events.append(effect)
            case _:
                return  # leases are not looked at
        self._changed()

    # --- what users of the API do

    def create(self, pod: Mapping[str, Any], uid: str) -> Object:
        """A pod bound to this node."""
        metadata = {"namespace": "default", **pod["metadata"], "uid": uid}
        made: Object = {**pod, "metadata": metadata, "status": {"phase": "Pending"}}
        self.pods[metadata["namespace"], metadata["name"]] = made
        self._wiring.apply(self._wiring.kubelet.pod_assigned(made, self._wiring.now()))
        self._changed()
        return made

    def delete(self, namespace: str, name: str, grace_s: float) -> None:
        """Mark a pod for deletion; it goes when its containers are gone."""
        pod = self.pods[namespace, name]
        marks = {"deletionTimestamp": "now", "deletionGracePeriodSeconds": grace_s}
        pod["metadata"] = {**pod["metadata"], **marks}
        self._wiring.apply(self._wiring.kubelet.pod_deleting(pod, self._wiring.now()))
        self._changed()

    def force_delete(self, namespace: str, name: str) -> None:
        """Remove a pod's object at once."""
        pod = self.pods.pop((namespace, name))
        uid = str(pod["metadata"]["uid"])
        self._wiring.apply(self._wiring.kubelet.pod_gone(uid, self._wiring.now()))
        self._changed()

    def _pod(self, namespace: str, name: str, uid: str) -> Object | None:
        pod = self.pods.get((namespace, name))
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None


class ModelRuntime:
    """Containers as entries in a table. Reports to the kubelet, never inside a call of it."""

    def __init__(self, wiring: Wiring, clock: Clock) -> None:
        self._wiring = wiring
        self._clock = clock
        self.options: dict[tuple[str, str], AllocateResponse] = {}
        """What each container was last started with, by (uid, container)."""
        self._running: dict[tuple[str, str], int] = {}  # its attempt

    def carry_out(self, effect: RuntimeEffect) -> None:
        kubelet = self._wiring.kubelet
        match effect:
            case RunSandbox(pod):
                uid = str(pod["metadata"]["uid"])
                self._soon(lambda: kubelet.sandbox_started(uid, self._clock.now()))
            case StartContainer(pod, container, attempt, options):
                self._start(pod, container, attempt, options)
            case KillContainer(uid, container):
                self._clock.call_later(0, partial(self._kill, uid, container))
            case KillPod(uid):
                self._clock.call_later(0, lambda: self._kill_pod(uid))

    def exit(self, uid: str, container: str, code: int) -> bool:
        """A running container ends; False when there is none."""
        if self._running.pop((uid, container), None) is None:
            return False
        kubelet = self._wiring.kubelet
        now = self._clock.now()
        self._wiring.apply(kubelet.container_exited(uid, container, code, "", "", now))
        return True

    def log(self, uid: str, container: str) -> str | None:
        """What a container of this runtime prints: its environment and devices."""
        options = self.options.get((uid, container))
        if options is None:
            return None
        lines = [f"{name}={value}" for name, value in sorted(options.envs.items())]
        lines += [f"device {device.container_path}" for device in options.devices]
        lines += [f"mount {mount.container_path}" for mount in options.mounts]
        lines += [f"cdi {name}" for name in options.cdi_devices]
        return "".join(f"{line}\n" for line in lines)

    # --- inside

    def _start(
        self, pod: Mapping[str, Any], container: str, attempt: int, options: AllocateResponse
    ) -> None:
        uid = str(pod["metadata"]["uid"])
        key = (uid, container)
        self.options[key] = options
        kubelet = self._wiring.kubelet

        def begin() -> None:
            self._running[key] = attempt
            container_id = f"model://{uid}/{container}/{attempt}"
            now = self._clock.now()
            self._wiring.apply(kubelet.container_started(uid, container, container_id, now))

        self._clock.call_later(0, begin)
        notes = pod["metadata"].get("annotations") or {}
        if EXIT_AFTER in notes:
            code = int(notes.get(EXIT_CODE, "0"))

            def end() -> None:
                if self._running.get(key) == attempt:
                    self.exit(uid, container, code)

            self._clock.call_later(float(notes[EXIT_AFTER]), end)

    def _kill(self, uid: str, container: str) -> None:
        self.exit(uid, container, KILLED)

    def _kill_pod(self, uid: str) -> None:
        for one, container in [key for key in self._running if key[0] == uid]:
            self.exit(one, container, KILLED)
        for key in [key for key in self.options if key[0] == uid]:
            del self.options[key]
        self._wiring.apply(self._wiring.kubelet.pod_stopped(uid, self._clock.now()))

    def _soon(self, work: Callable[[], Any]) -> None:
        self._clock.call_later(0, lambda: self._wiring.apply(work()))
