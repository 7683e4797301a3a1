"""The control plane: store, scheduler and the DaemonSet controller, reacting to changes.

Synchronous: a change marks the plane dirty and one pass is deferred, so it runs the same in
virtual time and on an event loop. Owns no clock and no socket.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from simulator.cluster.errors import ApiError
from simulator.cluster.scheduler import Bind, matches_selector, schedule
from simulator.cluster.store import Object, Store, WatchEvent

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
LEASE_SECONDS = 40

Defer = Callable[[Callable[[], None]], None]


class Cluster:
    """`now` gives seconds since 1970; `defer` runs an action soon, never inside the call."""

    def __init__(self, *, now: Callable[[], float], uid: Callable[[], str], defer: Defer) -> None:
        self.store = Store(now=now, uid=uid)
        self._now = now
        self._defer = defer
        self._is_dirty = False
        for name in NAMESPACES:
            self.store.create("namespaces", {"metadata": {"name": name}})
        for name in NAMESPACES:
            self.store.create("serviceaccounts", {"metadata": {"name": "default"}}, name)
        self.store.subscribe(self._changed)

    def bind(self, namespace: str, name: str, node: str) -> None:
        """Assign a pod to a node, as the binding sub-resource does."""
        pod = self.store.get("pods", name, namespace)
        pod["spec"]["nodeName"] = node
        conditions = [{"type": "PodScheduled", "status": "True"}]
        self.store.update("pods", pod, namespace)
        self._set_status(pod, {"phase": "Pending", "conditions": conditions})
        text = f"Successfully assigned {namespace}/{name} to {node}"
        self.post_event(_reference(pod), "Normal", "Scheduled", text, "default-scheduler")

    def post_event(
        self,
        involved: Mapping[str, str],
        kind: str,
        reason: str,
        message: str,
        component: str,
        host: str = "",
    ) -> None:
        """Record an event; the same one again only counts up."""
        namespace = involved.get("namespace") or "default"
        stamp = self._timestamp()
        for event in self.store.list("events", namespace):
            seen = (event["involvedObject"].get("uid"), event["reason"], event["message"])
            if seen == (involved.get("uid"), reason, message):
                event["count"] += 1
                event["lastTimestamp"] = stamp
                self.store.update("events", event, namespace)
                return
        number = f"{int(self._now() * 1000):x}{self.store.version:06x}"
        self.store.create(
            "events",
            {
                "metadata": {"name": f"{involved['name']}.{number}"},
                "involvedObject": dict(involved),
                "type": kind,
                "reason": reason,
                "message": message,
                "source": {"component": component, **({"host": host} if host else {})},
                "reportingComponent": component,
                "reportingInstance": host,
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "count": 1,
            },
            namespace,
        )

    def renew_lease(self, node: str) -> None:
        """The node's heartbeat in kube-node-lease."""
        spec = {
            "holderIdentity": node,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        lease = self.store.find("leases", node, "kube-node-lease")
        if lease is None:
            made = {"metadata": {"name": node}, "spec": spec}
            self.store.create("leases", made, "kube-node-lease")
        else:
            self.store.update("leases", lease | {"spec": spec}, "kube-node-lease")

    # --- reacting

    def _changed(self, event: WatchEvent) -> None:
        if event.change == "DELETED" and event.kind.plural == "daemonsets":
            uid = str(event.obj["metadata"]["uid"])
            self._defer(lambda: self._collect(uid))
        if event.kind.plural in ("pods", "nodes", "daemonsets") and not self._is_dirty:
            self._is_dirty = True
            self._defer(self._reconcile)

    def _reconcile(self) -> None:
        self._is_dirty = False
        nodes = self.store.list("nodes")
        for daemon_set in self.store.list("daemonsets"):
            self._run_daemon_set(daemon_set, nodes)
        self._schedule(nodes)
        for pod in self.store.list("pods"):
            is_orphan = not any(
                node["metadata"]["name"] == pod["spec"].get("nodeName") for node in nodes
            )
            if "deletionTimestamp" in pod["metadata"] and is_orphan:
                metadata = pod["metadata"]
                self.store.delete("pods", metadata["name"], metadata["namespace"], grace_s=0)

    def _schedule(self, nodes: list[Object]) -> None:
        pods = self.store.list("pods")
        waiting = [
            pod
            for pod in pods
            if not pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["spec"].get("schedulerName", "default-scheduler") == "default-scheduler"
        ]
        waiting.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
        for pod in waiting:
            metadata = pod["metadata"]
            outcome = schedule(pod, nodes, pods)
            if isinstance(outcome, Bind):
                self.bind(metadata["namespace"], metadata["name"], outcome.node)
                pod["spec"]["nodeName"] = outcome.node
                continue
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": outcome.message,
            }
            status = {"phase": "Pending", "conditions": [condition]}
            if self._set_status(pod, status):
                self.post_event(
                    _reference(pod),
                    "Warning",
                    "FailedScheduling",
                    outcome.message,
                    "default-scheduler",
                )

    def _set_status(self, pod: Object, status: Object) -> bool:
        """Lay `status` over the pod's; says whether that changed anything."""
        metadata = pod["metadata"]
        current = self.store.get("pods", metadata["name"], metadata["namespace"])
        merged = (current.get("status") or {}) | status
        if merged == current.get("status"):
            return False
        current["status"] = merged
        self.store.update("pods", current, metadata["namespace"], only_status=True)
        return True

    def _run_daemon_set(self, daemon_set: Object, nodes: list[Object]) -> None:
        """One pod on every matching node; a failed pod is replaced."""
        metadata = daemon_set["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        template = daemon_set["spec"]["template"]
        wanted = [node for node in nodes if matches_selector(template, node)]
        owned: dict[str, Object] = {}
        for pod in self.store.list("pods", namespace):
            owners = pod["metadata"].get("ownerReferences") or ()
            if not any(owner["uid"] == metadata["uid"] for owner in owners):
                continue
            is_wanted = any(
                node["metadata"]["name"] == pod["spec"].get("nodeName") for node in wanted
            )
            is_over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if "deletionTimestamp" in pod["metadata"]:
                continue
            if not is_wanted or is_over:
                self.store.delete("pods", pod["metadata"]["name"], namespace)
                continue
            owned[str(pod["spec"]["nodeName"])] = pod
        for node in wanted:
            if node["metadata"]["name"] not in owned:
                pod = self._daemon_pod(daemon_set, str(node["metadata"]["name"]))
                owned[str(node["metadata"]["name"])] = pod
        ready = sum(_is_ready(pod) for pod in owned.values())
        status = {
            "currentNumberScheduled": len(owned),
            "desiredNumberScheduled": len(wanted),
            "numberAvailable": ready,
            "numberMisscheduled": 0,
            "numberReady": ready,
            "numberUnavailable": len(wanted) - ready,
            "observedGeneration": metadata.get("generation", 1),
            "updatedNumberScheduled": len(owned),
        }
        if status != daemon_set.get("status"):
            fresh = self.store.get("daemonsets", name, namespace)
            fresh["status"] = status
            self.store.update("daemonsets", fresh, namespace, only_status=True)

    def _daemon_pod(self, daemon_set: Object, node: str) -> Object:
        metadata = daemon_set["metadata"]
        template = copy.deepcopy(daemon_set["spec"]["template"])
        pod = {
            "metadata": {
                **(template.get("metadata") or {}),
                "generateName": f"{metadata['name']}-",
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "DaemonSet",
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": template["spec"],
        }
        made = self.store.create("pods", pod, metadata["namespace"])
        text = f"Created pod: {made['metadata']['name']}"
        self.post_event(
            _reference(daemon_set), "Normal", "SuccessfulCreate", text, "daemonset-controller"
        )
        self.bind(metadata["namespace"], made["metadata"]["name"], node)
        return self.store.get("pods", made["metadata"]["name"], metadata["namespace"])

    def _collect(self, uid: str) -> None:
        """Garbage collection: delete what an object owned that is gone."""
        for pod in self.store.list("pods"):
            owners = pod["metadata"].get("ownerReferences") or ()
            if any(owner["uid"] == uid for owner in owners):
                metadata = pod["metadata"]
                try:
                    self.store.delete("pods", metadata["name"], metadata["namespace"])
                except ApiError:
                    continue

    def _timestamp(self) -> str:
        return datetime.fromtimestamp(int(self._now()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _reference(obj: Object) -> dict[str, str]:
    metadata = obj["metadata"]
    return {
        "apiVersion": str(obj["apiVersion"]),
        "kind": str(obj["kind"]),
        "namespace": str(metadata.get("namespace", "")),
        "name": str(metadata["name"]),
        "uid": str(metadata["uid"]),
    }
