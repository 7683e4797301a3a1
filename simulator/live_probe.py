"""The gates' eyes on a real node: files below its root, npu-smi as a program, the API as a client.

Works on a testbed's node and, with root `/` and a kubeconfig, on a real one.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator import deployment
from simulator.gates import Answer, ApiRefused, CardState, ConfiguredRuntime, Object
from simulator.kube import Kube, Refused
from simulator.plugin import library
from simulator.plugin.library import FileFact
from simulator.runtime import containerd_config
from simulator.runtime.live import CONFIG, program_state

NPU_SMI = "usr/local/bin/npu-smi"
KUBELET_SOCKET = "var/lib/kubelet/device-plugins/kubelet.sock"
SMI_TIMEOUT_S = 10.0
POLL_S = 0.1

# Row 1 of a card in `npu-smi info`: id, name, health.
_ROW = re.compile(r"\| (\d+) +(\S+) +\| (OK|Warning|Alarm|Critical|UNKNOWN) +\| [\d.-]+ ")

Wait = Callable[[Callable[[], bool], float], bool]


def _poll(claim: Callable[[], bool], within_s: float) -> bool:
    ends_at = time.monotonic() + within_s
    while not claim():
        if time.monotonic() >= ends_at:
            return False
        time.sleep(POLL_S)
    return True


class LiveProbe:
    """Looks at the node whose root directory is `root` through the cluster `kube`."""

    def __init__(self, root: Path, kube: Kube, node: str, wait: Wait = _poll) -> None:
        self._root = root
        self._kube = kube
        self._node = node
        self._wait = wait

    def library(self) -> Answer:
        call = f"examine {self._root / library.DRIVER_DIRECTORIES[1] / library.LIBRARY}"
        owners = frozenset({0, os.geteuid()})
        try:
            place = library.choose(
                self._fact, owners=owners, directories=library.DRIVER_DIRECTORIES
            )
        except library.LibraryRefused as refusal:
            return Answer(call=call, got=str(refusal), kind=refusal.kind)
        return Answer(call=call, got=f"/{place} may be loaded")

    def cards(self) -> tuple[Answer, tuple[CardState, ...]]:
        program = self._root / NPU_SMI
        call = f"{program} info"
        directories = [str(self._root / place) for place in library.DRIVER_DIRECTORIES]
        try:
            done = subprocess.run(
                [str(program), "info"],
                env={"LD_LIBRARY_PATH": ":".join(directories), "PATH": "/usr/bin:/bin"},
                capture_output=True,
                text=True,
                timeout=SMI_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Answer(call=call, got=str(error), kind="failed"), ()
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip() or f"status {done.returncode}"
            return Answer(call=call, got=said, kind="failed"), ()
        states = tuple(
            CardState(card_id=int(match[1]), health=match[3])
            for match in map(_ROW.match, done.stdout.splitlines())
            if match
        )
        return Answer(call=call, got=f"{len(states)} cards"), states

    def daemon_set(self) -> Object | None:
        return self._kube.get(
            f"/apis/apps/v1/namespaces/kube-system/daemonsets/{deployment.PLUGIN}"
        )

    def plugin_log(self) -> str:
        path = "/api/v1/namespaces/kube-system/pods"
        pods = self._kube.get(f"{path}?labelSelector=name%3D{deployment.PLUGIN}") or {}
        return "".join(
            self._log("kube-system", pod["metadata"]["name"]) for pod in pods.get("items", ())
        )

    def kubelet_socket(self) -> Answer:
        path = self._root / KUBELET_SOCKET
        call = f"connect to {path}"
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(SMI_TIMEOUT_S)
            try:
                client.connect(str(path))
            except OSError as error:
                return Answer(call=call, got=(error.strerror or str(error)).lower(), kind="missing")
        return Answer(call=call, got="accepted")

    def node(self) -> Object | None:
        return self._kube.get(f"/api/v1/nodes/{self._node}")

    def runtime_class(self, name: str) -> Object | None:
        return self._kube.get(f"/apis/node.k8s.io/v1/runtimeclasses/{name}")

    def containerd(self) -> tuple[Answer, ConfiguredRuntime | None]:
        path = self._root / CONFIG
        call = f"read {path}"
        try:
            found = containerd_config.parse(path.read_text())
        except (OSError, containerd_config.BadConfig, UnicodeDecodeError) as error:
            return Answer(call=call, got=str(error), kind="missing"), None
        binaries = {name: handler.binary for name, handler in found.handlers.items()}
        got = f"default {found.default}, handlers {', '.join(sorted(binaries)) or 'none'}"
        return Answer(call=call, got=got), ConfiguredRuntime(
            default=found.default,
            binaries=binaries,
            binary_state={n: program_state(self._root, b) for n, b in binaries.items()},
        )

    def create_pod(self, pod: Object) -> Object:
        self._change("POST", "/api/v1/namespaces/default/pods", pod)
        return pod

    def pod(self, name: str) -> Object | None:
        return self._kube.get(f"/api/v1/namespaces/default/pods/{name}")

    def pod_events(self, name: str) -> list[Object]:
        pod = self.pod(name)
        if pod is None:
            return []
        selector = f"involvedObject.uid%3D{pod['metadata']['uid']}"
        listed = self._kube.get(f"/api/v1/namespaces/default/events?fieldSelector={selector}")
        events: list[Object] = (listed or {}).get("items", [])
        return events

    def pod_log(self, name: str) -> str:
        return self._log("default", name)

    def delete_pod(self, name: str) -> None:
        self._change("DELETE", f"/api/v1/namespaces/default/pods/{name}", None)

    def wait_for(self, claim: Callable[[], bool], within_s: float) -> bool:
        return self._wait(claim, within_s)

    def _log(self, namespace: str, name: str) -> str:
        try:
            raw = self._kube.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}/log")
        except Refused:
            return ""
        return raw.decode(errors="replace")

    def _change(self, method: str, path: str, body: Any) -> None:
        try:
            self._kube.request(method, path, body)
        except Refused as refused:
            raise ApiRefused(str(refused)) from None

    def _fact(self, path: str) -> FileFact | None:
        try:
            found = os.lstat(self._root / path)
        except OSError:
            return None
        return FileFact(mode=found.st_mode, uid=found.st_uid)
