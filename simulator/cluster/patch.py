"""The patch types of Kubernetes clients, each a pure function from object and patch to object.

JSON patch comes from a library, with the real server's leniency: `replace` of a missing map key
sets it. Strategic merge knows the merge keys of the kinds served here; lists without one are
replaced whole. Server-side apply is reduced to a strategic merge: field managers are not tracked.
"""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch

from simulator.cluster.errors import ApiError, bad_request

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

# List field -> key by which its elements are merged (`kubernetes/api:core/v1/types.go`).
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
}
_PRIMITIVE_MERGE = ("finalizers",)


def apply(kind: str, obj: dict[str, Any], patch: Any) -> dict[str, Any]:
    """A new object; raises ApiError for a patch that cannot be applied."""
    if kind == JSON_PATCH:
        return _json_patch(obj, patch)
    if not isinstance(patch, dict):
        raise bad_request("patch must be a JSON object")
    if kind == MERGE:
        merged = _merge(obj, patch)
    elif kind in (STRATEGIC, APPLY):
        merged = strategic(obj, patch)
    else:
        raise ApiError(
            415,
            "UnsupportedMediaType",
            f"the body of the request was in an unknown format - accepted media types include: "
            f"{JSON_PATCH}, {MERGE}, {STRATEGIC}, {APPLY}",
        )
    result: dict[str, Any] = merged
    return result


def _merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _json_patch(obj: dict[str, Any], patch: Any) -> dict[str, Any]:
    if not isinstance(patch, list):
        raise bad_request("a JSON patch must be a list of operations")
    current = copy.deepcopy(obj)
    for operation in patch:
        if not isinstance(operation, dict):
            raise bad_request("each operation of a JSON patch must be an object")
        try:
            current = jsonpatch.apply_patch(current, [_lenient(operation, current)])
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            code = 422 if "test" in str(operation.get("op")) else 400
            raise ApiError(code, "Invalid", f"the patch cannot be applied: {error}") from None
        except (TypeError, KeyError, ValueError, AttributeError, IndexError) as error:
            raise bad_request(f"the patch cannot be applied: {error}") from None
    if not isinstance(current, dict):
        raise bad_request("the patch must leave an object")
    return current


def _lenient(operation: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
    if operation.get("op") != "replace":
        return operation
    pointer = jsonpatch.JsonPointer(str(operation.get("path")))
    parent, last = pointer.to_last(current)
    if isinstance(parent, dict) and last not in parent:
        return operation | {"op": "add"}
    return operation


def strategic(target: Any, patch: Any, field: str = "") -> Any:
    """Strategic merge of `patch` into `target`; `field` names the list being merged."""
    if isinstance(patch, dict):
        directive = patch.get("$patch")
        if directive == "replace":
            return {key: value for key, value in patch.items() if key != "$patch"}
        result = copy.deepcopy(target) if isinstance(target, dict) else {}
        retained = patch.get("$retainKeys")
        if isinstance(retained, list):
            result = {key: value for key, value in result.items() if key in retained}
        for key, value in patch.items():
            if key.startswith("$deleteFromPrimitiveList/") and isinstance(value, list):
                name = key.partition("/")[2]
                kept = [item for item in result.get(name) or () if item not in value]
                result[name] = kept
            elif key.startswith("$"):
                continue
            elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
                result.pop(key, None)
            else:
                result[key] = strategic(result.get(key), value, key)
        for key, order in patch.items():
            if key.startswith("$setElementOrder/") and isinstance(order, list):
                name = key.partition("/")[2]
                if isinstance(result.get(name), list):
                    result[name] = _ordered(result[name], order, _MERGE_KEYS.get(name))
        return result
    if isinstance(patch, list) and isinstance(target, list):
        if field in _PRIMITIVE_MERGE:
            return [*target, *(item for item in patch if item not in target)]
        if field in _MERGE_KEYS:
            return _merge_list(target, patch, _MERGE_KEYS[field])
    if isinstance(patch, list):
        return [copy.deepcopy(i) for i in patch if not (isinstance(i, dict) and "$patch" in i)]
    return copy.deepcopy(patch)


def _merge_list(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = copy.deepcopy(target)
    for item in patch:
        if not isinstance(item, dict):
            raise bad_request(f"elements of this list must be objects with {key!r}")
        if item.get("$patch") == "replace":
            return [copy.deepcopy(i) for i in patch if "$patch" not in i]
        if key not in item:
            raise bad_request(f"map does not contain the merge key {key!r}: {item}")
        place = next((n for n, old in enumerate(result) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(copy.deepcopy(item))
        else:
            result[place] = strategic(result[place], item)
    return result


def _ordered(items: list[Any], order: list[Any], key: str | None) -> list[Any]:
    def name(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [name(item) for item in order]
    known = sorted((i for i in items if name(i) in wanted), key=lambda i: wanted.index(name(i)))
    return [*known, *(item for item in items if name(item) not in wanted)]
