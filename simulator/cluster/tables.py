"""What `kubectl get` shows: columns and cells per kind. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from simulator.cluster.kinds import Kind

Object = dict[str, Any]
Cells = Callable[[Object, float], list[Any]]

# (column, shown only with -o wide)
_Columns = tuple[tuple[str, bool], ...]
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def age(created: str | None, now: float) -> str:
    """Time since a timestamp as kubectl prints it: the largest unit, two when small."""
    if not created:
        return "<unknown>"
    made = datetime.strptime(created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    seconds = max(0, int(now - made))
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 600:
        return f"{seconds // 60}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds // unit}{name}"
    return f"{seconds}s"


def _age(obj: Object, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _plain(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp", "")]


def pod_state(pod: Object) -> str:
    """The STATUS column: a reason of pod or container, else the phase."""
    status = pod.get("status") or {}
    shown = str(status.get("reason") or status.get("phase") or "Unknown")
    is_ready = False
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            shown = str(waiting["reason"])
        elif ended:
            shown = str(ended.get("reason") or f"ExitCode:{ended.get('exitCode')}")
        elif "running" in state:
            is_ready = True
    if shown == "Completed" and is_ready:
        shown = "Running"
    if "deletionTimestamp" in pod["metadata"]:
        shown = "Terminating"
    return shown


def _pod(pod: Object, now: float) -> list[Any]:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    total = len(pod["spec"]["containers"])
    ready = sum(bool(container.get("ready")) for container in containers)
    restarts = sum(int(container.get("restartCount", 0)) for container in containers)
    return [
        pod["metadata"]["name"],
        f"{ready}/{total}",
        pod_state(pod),
        str(restarts),
        _age(pod, now),
        status.get("podIP") or "<none>",
        pod["spec"].get("nodeName") or "<none>",
        "<none>",
        "<none>",
    ]


def _node(node: Object, now: float) -> list[Any]:
    status = node.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    word = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    if (node.get("spec") or {}).get("unschedulable"):
        word += ",SchedulingDisabled"
    roles = sorted(
        label.partition("/")[2]
        for label in node["metadata"].get("labels") or {}
        if label.startswith("node-role.kubernetes.io/")
    )
    info = status.get("nodeInfo") or {}
    addresses = {a["type"]: a["address"] for a in status.get("addresses") or ()}
    return [
        node["metadata"]["name"],
        word,
        ",".join(roles) or "<none>",
        _age(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage", "<unknown>"),
        info.get("kernelVersion", "<unknown>"),
        info.get("containerRuntimeVersion", "<unknown>"),
    ]


def _daemon_set(obj: Object, now: float) -> list[Any]:
    status = obj.get("status") or {}
    template = obj["spec"]["template"]["spec"]
    selector = template.get("nodeSelector") or {}
    labels = ((obj["spec"].get("selector") or {}).get("matchLabels")) or {}
    counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady",
              "updatedNumberScheduled", "numberAvailable")  # fmt: skip
    return [
        obj["metadata"]["name"],
        *(status.get(name, 0) for name in counts),
        ",".join(f"{k}={v}" for k, v in sorted(selector.items())) or "<none>",
        _age(obj, now),
        ",".join(c["name"] for c in template["containers"]),
        ",".join(c["image"] for c in template["containers"]),
        ",".join(f"{k}={v}" for k, v in sorted(labels.items())),
    ]


def _event(event: Object, now: float) -> list[Any]:
    involved = event.get("involvedObject") or {}
    return [
        age(event.get("lastTimestamp"), now),
        event.get("type", ""),
        event.get("reason", ""),
        f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}",
        event.get("message", ""),
    ]


_WIDE_POD: _Columns = (
    ("Name", False), ("Ready", False), ("Status", False), ("Restarts", False), ("Age", False),
    ("IP", True), ("Node", True), ("Nominated Node", True), ("Readiness Gates", True),
)  # fmt: skip
_TABLES: dict[str, tuple[_Columns, Cells]] = {
    "pods": (_WIDE_POD, _pod),
    "nodes": (
        (("Name", False), ("Status", False), ("Roles", False), ("Age", False), ("Version", False),
         ("Internal-IP", True), ("External-IP", True), ("OS-Image", True),
         ("Kernel-Version", True), ("Container-Runtime", True)),
        _node,
    ),
    "daemonsets": (
        (("Name", False), ("Desired", False), ("Current", False), ("Ready", False),
         ("Up-to-date", False), ("Available", False), ("Node Selector", False), ("Age", False),
         ("Containers", True), ("Images", True), ("Selector", True)),
        _daemon_set,
    ),
    "runtimeclasses": (
        (("Name", False), ("Handler", False), ("Age", False)),
        lambda obj, now: [obj["metadata"]["name"], obj.get("handler", ""), _age(obj, now)],
    ),
    "configmaps": (
        (("Name", False), ("Data", False), ("Age", False)),
        lambda obj, now: [
            obj["metadata"]["name"],
            len(obj.get("data") or {}) + len(obj.get("binaryData") or {}),
            _age(obj, now),
        ],
    ),
    "namespaces": (
        (("Name", False), ("Status", False), ("Age", False)),
        lambda obj, now: [
            obj["metadata"]["name"],
            (obj.get("status") or {}).get("phase", ""),
            _age(obj, now),
        ],
    ),
    "leases": (
        (("Name", False), ("Holder", False), ("Age", False)),
        lambda obj, now: [
            obj["metadata"]["name"],
            (obj.get("spec") or {}).get("holderIdentity", ""),
            _age(obj, now),
        ],
    ),
    "events": (
        (("Last Seen", False), ("Type", False), ("Reason", False), ("Object", False),
         ("Message", False)),
        _event,
    ),
}  # fmt: skip
_DEFAULT: tuple[_Columns, Cells] = ((("Name", False), ("Created At", False)), _plain)


def table(kind: Kind, objects: Sequence[Object], *, now: float, version: str) -> Object:
    """A meta.k8s.io/v1 Table of `objects`."""
    columns, cells = _TABLES.get(kind.plural, _DEFAULT)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": name,
                "priority": int(is_wide),
            }
            for name, is_wide in columns
        ],
        "rows": [
            {
                "cells": cells(obj, now),
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": obj["metadata"],
                },
            }
            for obj in objects
        ],
    }
