"""What the API says of itself: groups, resources, version, and the OpenAPI that kubectl needs.

Pure. The OpenAPI documents name the kinds and say that the server validates fields; they hold no
schemas, so `kubectl explain` has nothing to show.
"""

from __future__ import annotations

from typing import Any

from simulator.cluster.kinds import KINDS, Kind

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def version(kubernetes: str) -> dict[str, str]:
    """`kubernetes` as in v1.28.15."""
    major, minor, *_ = kubernetes.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": kubernetes,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2024-10-22T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def core_versions() -> dict[str, Any]:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups() -> dict[str, Any]:
    listed = []
    for name in sorted({kind.group for kind in KINDS if kind.group}):
        version = {"groupVersion": f"{name}/v1", "version": "v1"}
        listed.append({"name": name, "versions": [version], "preferredVersion": version})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(name: str) -> dict[str, Any] | None:
    found = next((g for g in groups()["groups"] if g["name"] == name), None)
    return None if found is None else {"kind": "APIGroup", "apiVersion": "v1", **found}


def resources(group_name: str, group_version: str) -> dict[str, Any] | None:
    kinds = [k for k in KINDS if (k.group, k.version) == (group_name, group_version)]
    if not kinds:
        return None
    listed: list[dict[str, Any]] = []
    for kind in kinds:
        listed.append(
            _resource(kind, kind.plural, VERBS)
            | {"singularName": kind.singular, "shortNames": list(kind.short_names)}
        )
        if kind.has_status:
            listed.append(_resource(kind, f"{kind.plural}/status", ["get", "patch", "update"]))
        if kind.plural == "pods":
            listed.append(_resource(kind, "pods/log", ["get"]))
            listed.append(_resource(kind, "pods/binding", ["create"]) | {"kind": "Binding"})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group_name}/{group_version}" if group_name else group_version,
        "resources": listed,
    }


def _resource(kind: Kind, name: str, verbs: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "singularName": "",
        "namespaced": kind.is_namespaced,
        "kind": kind.kind,
        "verbs": verbs,
    }


def openapi_index() -> dict[str, Any]:
    paths = {}
    for kind in KINDS:
        path = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash=1"}
    return {"paths": paths}


def openapi(path: str) -> dict[str, Any] | None:
    """The document of `api/v1` or `apis/<group>/<version>`."""
    parts = path.split("/")
    wanted = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else tuple(parts[1:])
    kinds = [k for k in KINDS if (k.group, k.version) == wanted]
    if not kinds:
        return None
    parameter = {
        "name": "fieldValidation",
        "in": "query",
        "schema": {"type": "string", "uniqueItems": True},
    }
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for kind in kinds:
        identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        scope = "/namespaces/{namespace}" if kind.is_namespaced else ""
        operation = {
            "parameters": [parameter],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": identity,
        }
        base = f"/{path}{scope}/{kind.plural}"
        paths[base] = {"post": operation | {"x-kubernetes-action": "post"}}
        paths[f"{base}/{{name}}"] = {
            "put": operation | {"x-kubernetes-action": "put"},
            "patch": operation | {"x-kubernetes-action": "patch"},
        }
        schemas[f"io.k8s.api.{kind.kind}"] = {
            "type": "object",
            "x-kubernetes-group-version-kind": [identity],
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "NPU Testbed", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }
