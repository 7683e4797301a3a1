"""All objects of the cluster, their versions, and who is told of a change. Pure.

Owns: resource versions (one counter for everything), uniqueness, optimistic locking, deletion in
two steps for pods. Rules: what goes in and out is copied, so nobody can change a stored object by
accident; listeners are told in order, after the change. Knows no HTTP.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from simulator.cluster.admission import admit
from simulator.cluster.errors import (
    already_exists,
    bad_request,
    conflict,
    gone,
    not_found,
)
from simulator.cluster.kinds import BY_PLURAL, Kind

Object = dict[str, Any]
Change = Literal["ADDED", "MODIFIED", "DELETED"]

# How many past changes a watch can start from; older versions answer 410 Gone.
KEPT_CHANGES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One change; `obj` and `old` (what it replaced) must not be modified."""

    change: Change
    kind: Kind
    obj: Object
    version: int
    old: Object | None = None


Listener = Callable[[WatchEvent], None]


class Store:
    """`now` gives seconds since 1970, `uid` a new unique id."""

    def __init__(self, *, now: Callable[[], float], uid: Callable[[], str]) -> None:
        self._now = now
        self._uid = uid
        self._version = 0
        self._objects: dict[str, dict[tuple[str, str], Object]] = {p: {} for p in BY_PLURAL}
        self._changes: deque[WatchEvent] = deque(maxlen=KEPT_CHANGES)
        self._listeners: list[Listener] = []
        self._generated = 0

    @property
    def version(self) -> int:
        """Resource version of the newest change."""
        return self._version

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every change from now on; returns the way to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def since(self, version: int) -> list[WatchEvent]:
        """Every change after `version`; raises 410 when that is too long ago."""
        oldest = self._changes[0].version if self._changes else self._version + 1
        if version < oldest - 1:
            raise gone(f"too old resource version: {version} ({oldest - 1})")
        return [event for event in self._changes if event.version > version]

    def get(self, plural: str, name: str, namespace: str = "") -> Object:
        return copy.deepcopy(self._find(BY_PLURAL[plural], namespace, name))

    def find(self, plural: str, name: str, namespace: str = "") -> Object | None:
        """Like `get`, but None when there is no such object."""
        found = self._objects[plural].get((namespace, name))
        return None if found is None else copy.deepcopy(found)

    def list(self, plural: str, namespace: str = "") -> list[Object]:
        """Objects in name order; an empty namespace means all."""
        return [
            copy.deepcopy(obj)
            for (space, _), obj in sorted(self._objects[plural].items())
            if not namespace or space == namespace
        ]

    def create(
        self, plural: str, obj: Object, namespace: str = "", *, is_dry: bool = False
    ) -> Object:
        kind = BY_PLURAL[plural]
        made = copy.deepcopy(obj)
        metadata = made.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise bad_request("metadata must be an object")
        space = self._namespace(kind, metadata, namespace)
        if not metadata.get("name") and metadata.get("generateName"):
            self._generated += 1
            metadata["name"] = f"{metadata['generateName']}{_suffix(self._generated)}"
        made["apiVersion"], made["kind"] = kind.api_version, kind.kind
        if space and self.find("namespaces", space) is None:
            raise not_found(BY_PLURAL["namespaces"], space)
        admit(kind, made, lambda name: self.find("runtimeclasses", name))
        key = (space, str(metadata["name"]))
        if key in self._objects[plural]:
            raise already_exists(kind, key[1])
        metadata.pop("resourceVersion", None)
        metadata["uid"] = self._uid()
        metadata["creationTimestamp"] = self._timestamp()
        if plural in ("daemonsets", "pods"):
            metadata["generation"] = 1
        if plural == "namespaces":
            made.setdefault("spec", {"finalizers": ["kubernetes"]})
            made["status"] = {"phase": "Active"}
        if is_dry:
            return made
        return self._put("ADDED", kind, key, made)

    def update(
        self,
        plural: str,
        obj: Object,
        namespace: str = "",
        *,
        only_status: bool = False,
        is_dry: bool = False,
    ) -> Object:
        """Replace an object, or only its status. Without a resourceVersion nothing is compared."""
        kind = BY_PLURAL[plural]
        metadata = obj.get("metadata") or {}
        name = str(metadata.get("name", ""))
        space = self._namespace(kind, metadata, namespace)
        old = self._find(kind, space, name)
        sent_version = metadata.get("resourceVersion")
        if sent_version and sent_version != old["metadata"]["resourceVersion"]:
            raise conflict(kind, name)
        if metadata.get("uid") and metadata["uid"] != old["metadata"]["uid"]:
            raise conflict(
                kind,
                name,
                f"Precondition failed: UID in precondition: {metadata['uid']}, "
                f"UID in object meta: {old['metadata']['uid']}",
            )
        new = copy.deepcopy(obj)
        if only_status:
            # As the real server does for nodes: labels and annotations pass with the status.
            new = copy.deepcopy(old) | {"status": new.get("status") or {}}
            for field in ("labels", "annotations"):
                if field in metadata:
                    new["metadata"][field] = copy.deepcopy(metadata[field])
        elif kind.has_status:
            new["status"] = copy.deepcopy(old.get("status") or {})
        new["apiVersion"], new["kind"] = kind.api_version, kind.kind
        kept = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "namespace")
        for field in kept:
            if field in old["metadata"]:
                new["metadata"][field] = old["metadata"][field]
        if "generation" in old["metadata"] and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] += 1
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old or is_dry:
            return new
        return self._put("MODIFIED", kind, (space, name), new)

    def delete(
        self,
        plural: str,
        name: str,
        namespace: str = "",
        *,
        grace_s: int | None = None,
        uid: str | None = None,
    ) -> Object:
        """Remove an object; a bound pod is only marked, its kubelet deletes it with grace 0."""
        kind = BY_PLURAL[plural]
        old = self._find(kind, namespace, name)
        if uid is not None and uid != old["metadata"]["uid"]:
            raise conflict(kind, name, f"Precondition failed: UID in precondition: {uid}")
        if plural == "namespaces":
            self._empty(name)
        is_running = plural == "pods" and old["spec"].get("nodeName")
        default = int(old.get("spec", {}).get("terminationGracePeriodSeconds", 30))
        is_over = old.get("status", {}).get("phase") in ("Succeeded", "Failed")
        grace = (0 if is_over else default) if grace_s is None else grace_s
        if is_running and grace > 0:
            if "deletionTimestamp" in old["metadata"]:
                return copy.deepcopy(old)
            marked = copy.deepcopy(old)
            marked["metadata"]["deletionTimestamp"] = self._timestamp(grace)
            marked["metadata"]["deletionGracePeriodSeconds"] = grace
            return self._put("MODIFIED", kind, (namespace, name), marked)
        del self._objects[plural][(namespace, name)]
        return self._tell("DELETED", kind, copy.deepcopy(old), old)

    def _empty(self, namespace: str) -> None:
        for plural, objects in self._objects.items():
            for space, name in list(objects):
                if space == namespace:
                    self.delete(plural, name, namespace, grace_s=0)

    def _find(self, kind: Kind, namespace: str, name: str) -> Object:
        try:
            return self._objects[kind.plural][(namespace, name)]
        except KeyError:
            raise not_found(kind, name) from None

    def _put(self, change: Change, kind: Kind, key: tuple[str, str], obj: Object) -> Object:
        old = self._objects[kind.plural].get(key)
        self._objects[kind.plural][key] = obj
        return self._tell(change, kind, obj, old)

    def _tell(self, change: Change, kind: Kind, obj: Object, old: Object | None) -> Object:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        event = WatchEvent(
            change=change, kind=kind, obj=copy.deepcopy(obj), version=self._version, old=old
        )
        self._changes.append(event)
        for listener in list(self._listeners):
            listener(event)
        return copy.deepcopy(obj)

    def _timestamp(self, later_s: float = 0) -> str:
        moment = datetime.fromtimestamp(int(self._now() + later_s), UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    @staticmethod
    def _namespace(kind: Kind, metadata: Object, asked: str) -> str:
        if not kind.is_namespaced:
            return ""
        said = str(metadata.get("namespace") or asked or "default")
        if asked and said != asked:
            raise bad_request(
                f"the namespace of the provided object does not match the namespace sent on the "
                f"request: {said} is not {asked}"
            )
        metadata["namespace"] = said
        return said


_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def _suffix(number: int) -> str:
    """Five characters of the alphabet Kubernetes uses for generated names."""
    text = ""
    number *= 7_919_077  # spread neighbours apart; stays one-to-one modulo 27**5
    for _ in range(5):
        number, digit = divmod(number, len(_ALPHABET))
        text += _ALPHABET[digit]
    return text
