"""The kinds this API serves, each defined once: group, plural, scope, short names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One served resource."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    is_namespaced: bool = True
    has_status: bool = False
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()


KINDS = (
    Kind(
        plural="namespaces",
        kind="Namespace",
        is_namespaced=False,
        has_status=True,
        short_names=("ns",),
    ),
    Kind(plural="nodes", kind="Node", is_namespaced=False, has_status=True, short_names=("no",)),
    Kind(plural="pods", kind="Pod", has_status=True, short_names=("po",)),
    Kind(plural="configmaps", kind="ConfigMap", short_names=("cm",)),
    Kind(plural="events", kind="Event", short_names=("ev",)),
    Kind(plural="serviceaccounts", kind="ServiceAccount", short_names=("sa",)),
    Kind(plural="daemonsets", kind="DaemonSet", group="apps", has_status=True, short_names=("ds",)),
    Kind(plural="runtimeclasses", kind="RuntimeClass", group="node.k8s.io", is_namespaced=False),
    Kind(plural="leases", kind="Lease", group="coordination.k8s.io"),
)

BY_PLURAL = {kind.plural: kind for kind in KINDS}


def find(group: str, version: str, plural: str) -> Kind | None:
    """The served kind at /apis/<group>/<version>/<plural>, or None."""
    kind = BY_PLURAL.get(plural)
    return kind if kind is not None and (kind.group, kind.version) == (group, version) else None
