"""Where a pod may run, or why nowhere, in the default scheduler's words. Pure.

Filters in the order of Kubernetes 1.28: unschedulable, taints, selector, resources. Extended
resources are integers and never overcommitted. Does not score: among fitting nodes the one with
the most free cards wins, then the first by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.cluster.admission import quantity

Object = Mapping[str, Any]

SELECTOR = "node(s) didn't match Pod's node affinity/selector"
UNSCHEDULABLE = "node(s) were unschedulable"
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """The pod fits on this node."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unschedulable:
    """No node takes the pod; `message` is the event's text."""

    message: str


def requests(pod: Object) -> dict[str, float]:
    """What the pod asks for: the larger of its app containers' sum and any init container."""
    spec = pod["spec"]
    total: dict[str, float] = {}
    for container in spec.get("containers") or ():
        for name, amount in _asked(container).items():
            total[name] = total.get(name, 0) + amount
    for container in spec.get("initContainers") or ():
        for name, amount in _asked(container).items():
            total[name] = max(total.get(name, 0), amount)
    return total


def schedule(pod: Object, nodes: Sequence[Object], pods: Sequence[Object]) -> Bind | Unschedulable:
    """Choose a node for `pod`; `pods` are all pods, those bound to a node use it up."""
    if not nodes:
        return Unschedulable(message="no nodes available to schedule pods")
    used: dict[str, dict[str, float]] = {node["metadata"]["name"]: {} for node in nodes}
    placed: Counter[str] = Counter()
    for other in pods:
        node_name = other["spec"].get("nodeName")
        is_over = (other.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if node_name not in used or is_over:
            continue
        placed[node_name] += 1
        for name, amount in requests(other).items():
            used[node_name][name] = used[node_name].get(name, 0) + amount
    wanted = requests(pod)
    fitting: list[tuple[float, str]] = []
    reasons: Counter[str] = Counter()
    is_resolvable: Counter[bool] = Counter()
    for node in nodes:
        name = node["metadata"]["name"]
        found, can_preempt = _refusals(pod, node, wanted, used[name], placed[name])
        if not found:
            free = sum(_free(node, used[name], r) for r in wanted if "/" in r)
            fitting.append((-free, name))
            continue
        reasons.update(found)
        is_resolvable[can_preempt] += 1
    if fitting:
        return Bind(node=min(fitting)[1])
    listed = ", ".join(sorted(f"{count} {text}" for text, count in reasons.items()))
    after = ", ".join(
        sorted(
            f"{count} {NO_VICTIMS if can_preempt else NOT_HELPFUL}"
            for can_preempt, count in is_resolvable.items()
        )
    )
    head = f"0/{len(nodes)} nodes are available: "
    return Unschedulable(message=f"{head}{listed}. preemption: {head}{after}.")


def _asked(container: Object) -> dict[str, float]:
    resources = container.get("resources") or {}
    table = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: _amount(amount) for name, amount in table.items()}


def _amount(text: object) -> float:
    parsed = quantity(text)
    return 0.0 if parsed is None else parsed[0] / parsed[1]


def _free(node: Object, used: Mapping[str, float], resource: str) -> float:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return _amount(allocatable.get(resource, "0")) - used.get(resource, 0)


def _refusals(
    pod: Object,
    node: Object,
    wanted: Mapping[str, float],
    used: Mapping[str, float],
    placed: int,
) -> tuple[list[str], bool]:
    """Reasons of the first filter that refuses, and whether evicting pods could help."""
    spec = node.get("spec") or {}
    tolerations = pod["spec"].get("tolerations") or ()
    if spec.get("unschedulable"):
        return [UNSCHEDULABLE], False
    for taint in spec.get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not any(
            _tolerates(toleration, taint) for toleration in tolerations
        ):
            value = taint.get("value", "")
            return [f"node(s) had untolerated taint {{{taint['key']}: {value}}}"], False
    if not matches_selector(pod, node):
        return [SELECTOR], False
    found = []
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    if placed >= _amount(allocatable.get("pods", "110")):
        found.append("Too many pods")
    for name in sorted(wanted, key=lambda name: ("/" in name, name)):
        if wanted[name] > 0 and wanted[name] > _free(node, used, name):
            found.append(f"Insufficient {name}")
    return found, True


def matches_selector(pod: Object, node: Object) -> bool:
    """Whether the node has every label of the pod's nodeSelector."""
    labels = node["metadata"].get("labels") or {}
    selector = pod["spec"].get("nodeSelector") or {}
    return all(labels.get(key) == value for key, value in selector.items())


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint["key"]
    return (toleration.get("key"), toleration.get("value", "")) == (
        taint["key"],
        taint.get("value", ""),
    )
