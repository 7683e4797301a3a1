"""The Kubernetes objects every testbed starts with, as plain JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

RESOURCE = "huawei.com/Ascend910"
HANDLER = "ascend"
RUNTIME_CLASS = "ascend"
PLUGIN = "ascend-device-plugin"
PLUGIN_IMAGE = "npu-testbed/device-plugin:1"
RUNTIME_BINARY = "/usr/local/Ascend/Ascend-Docker-Runtime/ascend-docker-runtime"


def runtime_class() -> dict[str, Any]:
    return {"metadata": {"name": RUNTIME_CLASS}, "handler": HANDLER}


def plugin_daemon_set(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """The device plugin on every Linux node, privileged, as the vendor deploys it."""
    labels = {"name": PLUGIN}
    return {
        "metadata": {"name": PLUGIN, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [
                        {
                            "name": "device-plugin",
                            "image": PLUGIN_IMAGE,
                            "args": list(arguments),
                            "securityContext": {"privileged": True},
                        }
                    ],
                },
            },
        },
    }


def pod(
    name: str,
    *,
    image: str,
    cards: str | None = None,
    runtime_class: str = "",
    command: Sequence[str] = (),
    node_selector: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A pod that runs once."""
    container: dict[str, Any] = {"name": "main", "image": image}
    if command:
        container["command"] = list(command)
    if cards is not None:
        container["resources"] = {"limits": {RESOURCE: cards}}
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    if node_selector:
        spec["nodeSelector"] = dict(node_selector)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
