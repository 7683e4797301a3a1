"""NUMA alignment: hints and the four Topology Manager policies. Pure.

Follows `kubernetes:pkg/kubelet/cm/topologymanager` and `devicemanager/topology_hints.go` for one
provider, the device manager, and the scope `container`. A hint without nodes means "no preference".
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")

Mask = frozenset[int]


@dataclass(frozen=True, slots=True)
class Hint:
    """Nodes a container could use; None for any."""

    nodes: Mask | None
    is_preferred: bool


def resource_hints(
    *,
    nodes: Iterable[int],
    device_nodes: Mapping[str, Collection[int]],
    available: Collection[str],
    reusable: Collection[str],
    request: int,
) -> list[Hint]:
    """Hints for one resource: every set of nodes that can hold the request, the smallest size that
    all devices together could reach being preferred. `device_nodes` has every device, busy or
    not."""
    numbers = sorted(set(nodes))
    smallest = len(numbers)
    found: list[Mask] = []
    for size in range(1, len(numbers) + 1):
        for chosen in itertools.combinations(numbers, size):
            mask = frozenset(chosen)
            inside = {one for one, at in device_nodes.items() if mask.intersection(at)}
            if len(inside) >= request:
                smallest = min(smallest, size)
            placed = [one for one in reusable if device_nodes.get(one)]
            if any(one not in inside for one in placed):
                continue
            free = [one for one in available if one in inside and one not in placed]
            if len(placed) + len(free) >= request:
                found.append(mask)
    return [Hint(mask, len(mask) == smallest) for mask in found]


def decide(
    policy: str, hints: Mapping[str, Sequence[Hint] | None], nodes: Iterable[int]
) -> tuple[Mask | None, bool]:
    """The nodes to align a container to, and whether the policy admits it. `hints` maps each
    resource to its hints; None is "has no topology", empty is "cannot be satisfied"."""
    if policy == "none":
        return None, True
    everywhere = frozenset(nodes)
    columns: list[Sequence[Hint]] = []
    for listed in hints.values():
        if listed is None:
            columns.append([Hint(None, True)])
        else:
            columns.append(listed or [Hint(None, False)])
    if policy == "single-numa-node":
        columns = [
            [h for h in column if h.is_preferred and (h.nodes is None or len(h.nodes) == 1)]
            for column in columns
        ]
    best = _merge(columns, everywhere)
    affinity = best.nodes
    if policy == "single-numa-node" and affinity == everywhere:
        affinity = None
    return affinity, policy == "best-effort" or best.is_preferred


def _merge(columns: Sequence[Sequence[Hint]], everywhere: Mask) -> Hint:
    """The best combination of one hint per resource."""
    # How far apart unpreferred hints may be: the largest of the narrowest of each resource.
    spans = [min((len(h.nodes) for h in column if h.nodes), default=0) for column in columns]
    target = max(spans, default=0)
    best: Hint | None = None
    for chosen in itertools.product(*columns):
        masks = [hint.nodes for hint in chosen if hint.nodes is not None]
        merged = everywhere.intersection(*masks) if masks else everywhere
        is_preferred = all(h.is_preferred for h in chosen) and all(m == masks[0] for m in masks)
        if merged:
            best = _better(best, Hint(merged, is_preferred), target)
    return best or Hint(everywhere, False)


def _better(best: Hint | None, new: Hint, target: int) -> Hint:
    if best is None or best.is_preferred != new.is_preferred:
        return new if best is None or new.is_preferred else best
    assert best.nodes is not None
    assert new.nodes is not None
    if best.is_preferred:
        return new if _rank(new.nodes) < _rank(best.nodes) else best
    # Neither is preferred: as close to the target from above as can be, else the widest below it.
    sizes = len(best.nodes), len(new.nodes)
    if sizes[0] == sizes[1]:
        return new if _rank(new.nodes) < _rank(best.nodes) else best
    if sizes[0] > target:
        return new if sizes[1] < sizes[0] else best
    return new if sizes[0] < sizes[1] <= target else best


def _rank(mask: Mask) -> tuple[int, int]:
    """Fewer nodes first, then lower numbers."""
    return len(mask), sum(1 << node for node in mask)
