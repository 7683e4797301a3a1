"""One pod as the kubelet knows it: its object, its containers, how far it has come. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fake_kubelet.status import ContainerState, pod_phase

_QUANTITY = re.compile(r"\+?(\d+)(k|M|G|T|Ki|Mi|Gi|Ti|e\d+)?")
_FACTORS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def whole_number(quantity: object) -> int | None:
    """A Kubernetes quantity that is a whole number, `1k` being 1000; None for any other."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        return None
    suffix = match[2] or ""
    factor = 10 ** int(suffix[1:]) if suffix.startswith("e") else _FACTORS.get(suffix, 1)
    return int(match[1]) * factor


def limits_of(container: Mapping[str, Any]) -> dict[str, int]:
    """Extended resources a container asks for, by name."""
    limits = (container.get("resources") or {}).get("limits") or {}
    found = {name: whole_number(count) for name, count in sorted(limits.items()) if "/" in name}
    return {name: count for name, count in found.items() if count is not None}


@dataclass(slots=True, kw_only=True)
class Pod:
    """A pod bound to this node. `has_sidecars` says whether restartable init containers are
    understood; `started_s` is in seconds since 1970."""

    pod: Mapping[str, Any]
    started_s: float
    has_sidecars: bool = True
    containers: list[ContainerState]
    is_admitted: bool = False
    is_rejected: bool = False
    has_sandbox: bool = False
    is_sandbox_asked: bool = False
    is_deleting: bool = False
    is_orphan: bool = False  # its object is gone
    is_forgotten: bool = False  # an orphan of before the kubelet started
    is_held: bool = False
    last_status: Mapping[str, Any] | None = None

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"].get("namespace", "default"))

    @property
    def restart_policy(self) -> str:
        return str(self.pod["spec"].get("restartPolicy", "Always"))

    @property
    def phase(self) -> str:
        if self.is_rejected:
            return "Failed"
        return pod_phase(self.containers, self.restart_policy)

    @property
    def is_over(self) -> bool:
        """In a phase that is final."""
        return self.is_rejected or (self.is_admitted and self.phase in ("Succeeded", "Failed"))

    @property
    def is_active(self) -> bool:
        """May hold devices: not over, or not stopped yet."""
        return not self.is_forgotten and (self.has_sandbox or not self.is_over)

    def container(self, name: str) -> ContainerState:
        return next(c for c in self.containers if c.name == name)

    def limits(self, name: str) -> dict[str, int]:
        return limits_of(self._spec_of(name))

    def is_reusable(self, name: str) -> bool:
        """An ordinary init container: later containers take over its devices."""
        state = self.container(name)
        return state.is_init and not state.is_sidecar

    def request(self) -> dict[str, int]:
        """Extended resources of the pod as a whole: the most that is needed at one time."""
        running: dict[str, int] = {}
        most: dict[str, int] = {}
        for state in self.containers:
            wants = self.limits(state.name)
            lasting = not state.is_init or state.is_sidecar
            for name, count in wants.items():
                total = running.get(name, 0) + count
                most[name] = max(most.get(name, 0), total)
                if lasting:
                    running[name] = total
        return most

    def _spec_of(self, name: str) -> Mapping[str, Any]:
        spec = self.pod["spec"]
        both = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        return next(container for container in both if container["name"] == name)


def new_pod(pod: Mapping[str, Any], *, started_s: float, has_sidecars: bool) -> Pod:
    """A pod that was just assigned; init containers come first."""
    spec = pod["spec"]
    containers = [
        ContainerState(
            name=c["name"],
            image=c.get("image", ""),
            is_init=is_init,
            is_sidecar=is_init and has_sidecars and c.get("restartPolicy") == "Always",
        )
        for is_init, group in ((True, "initContainers"), (False, "containers"))
        for c in spec.get(group) or ()
    ]
    return Pod(pod=pod, started_s=started_s, has_sidecars=has_sidecars, containers=containers)
