"""What the pod-resources API answers, `v1` and `v1alpha1`, by the kubelet's version. Pure.

After `kubernetes:pkg/kubelet/apis/podresources`; texts are the kubelet's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fake_kubelet import api
from fake_kubelet.device_manager import NO_NODE, Holding
from fake_kubelet.kubelet import Kubelet
from fake_kubelet.pods import Pod

SERVICE = "v1.PodResourcesLister"
CALLS_PER_S = 100.0
BURST = 10


class CallRefused(Exception):
    """A call fails: status code as Go names it, and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PodResources:
    """Answers as protobuf messages. Times are seconds."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet
        self._tokens = float(BURST)
        self._refilled_at = 0.0

    def list(self, version: str, now: float) -> Any:
        """ListPodResourcesResponse of `v1` or `v1alpha1`."""
        kubelet = self._kubelet
        self._enter("list", version, now)
        kubelet.devices.collect()
        response = api.message(version, "ListPodResourcesResponse")()
        scope = kubelet.personality.podres_list_scope
        for pod in kubelet.pods.values():
            if pod.is_orphan or (version == "v1" and scope == "active" and not pod.is_active):
                continue
            self._fill(response.pod_resources.add(), pod, version)
        return response

    def get(self, name: str, namespace: str, now: float) -> Any:
        """GetPodResourcesResponse."""
        personality = self._kubelet.personality
        if personality.podres_get == "absent":
            raise CallRefused("Unimplemented", f"unknown method Get for service {SERVICE}")
        self._enter("get", "v1", now)
        if personality.podres_get == "off":
            raise self._failed("get", "PodResources API Get method disabled")
        for pod in self._kubelet.pods.values():
            if (pod.name, pod.namespace) == (name, namespace) and not pod.is_orphan:
                response = api.message("v1", "GetPodResourcesResponse")()
                self._fill(response.pod_resources, pod, "v1")
                return response
        raise self._failed("get", f"pod {name} in namespace {namespace} not found")

    def allocatable(self, now: float) -> Any:
        """AllocatableResourcesResponse: devices only."""
        kubelet = self._kubelet
        which = kubelet.personality.podres_allocatable_set
        if which == "none":
            raise CallRefused(
                "Unimplemented",
                f"unknown method GetAllocatableResources for service {SERVICE}",
            )
        self._enter("get_allocatable", "v1", now)
        response = api.message("v1", "AllocatableResourcesResponse")()
        for resource, devices in sorted(kubelet.devices.known_devices().items()):
            if not kubelet.devices.knows(resource):
                continue
            healthy = kubelet.devices.healthy(resource)
            for one, device in devices.items():
                if device.numa_nodes == () or (which == "healthy" and one not in healthy):
                    continue
                for node in device.numa_nodes or (NO_NODE,):
                    _add_device(response.devices, resource, (one,), node)
        return response

    # --- inside

    def _enter(self, what: str, version: str, now: float) -> None:
        """Every call: the limit of calls first, then the counters."""
        if self._kubelet.personality.podres_rate_limit == "on":
            grown = self._tokens + (now - self._refilled_at) * CALLS_PER_S
            self._tokens, self._refilled_at = min(float(BURST), grown), now
            if self._tokens < 1:
                raise CallRefused("ResourceExhausted", "rejected by rate limit")
            self._tokens -= 1
        self._kubelet.metrics.pod_resources("total", version)
        self._kubelet.metrics.pod_resources(what, version)

    def _failed(self, what: str, text: str) -> CallRefused:
        self._kubelet.metrics.pod_resources(f"errors_{what}", "v1")
        return CallRefused("Unknown", text)

    def _fill(self, row: Any, pod: Pod, version: str) -> None:
        kubelet = self._kubelet
        row.name, row.namespace = pod.name, pod.namespace
        shows_sidecars = version == "v1" and kubelet.personality.podres_init_sidecars == "on"
        held = kubelet.devices.holdings(pod.uid)
        for state in pod.containers:
            if state.is_init and not (state.is_sidecar and shows_sidecars):
                continue
            container = row.containers.add(name=state.name)
            for resource, holding in held.get(state.name, {}).items():
                self._add_holding(container.devices, resource, holding, version)

    def _add_holding(self, rows: Any, resource: str, holding: Holding, version: str) -> None:
        if self._kubelet.personality.podres_entry_shape == "per_resource":
            rows.add(resource_name=resource, device_ids=holding.ids)
            return
        for node, ids in holding.by_node.items():
            has_topology = version == "v1" and node != NO_NODE
            for one in ids:
                _add_device(rows, resource, (one,), node if has_topology else NO_NODE)


def _add_device(rows: Any, resource: str, ids: Iterable[str], node: int) -> None:
    row = rows.add(resource_name=resource, device_ids=ids)
    if node != NO_NODE:
        row.topology.nodes.add(ID=node)
