"""Everything a kubelet listens on, as one port of the wiring.

Opens and closes with the kubelet: the Registration socket, the plugin watcher, pod-resources and,
where wanted, the HTTPS endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fake_kubelet.effects import CloseSockets, OpenSockets, PluginEffect
from fake_kubelet.podresources_server import PodResourcesServer
from fake_kubelet.server import PluginSockets
from fake_kubelet.watcher import PluginWatcher
from fake_kubelet.wiring import Wiring

if TYPE_CHECKING:
    from fake_kubelet.https import Accepts, HttpsEndpoint, Logs


_DEAD = (
    "device registration error: device plugin registration gRPC server failed and no device "
    "plugins can register: "
)


class KubeletShell:
    """The sockets below `root`. Every method must be called on the event loop."""

    def __init__(self, root: Path, wiring: Wiring, *, keeps_socket: bool = True) -> None:
        self.sockets = PluginSockets(root, wiring, keeps_socket=keeps_socket)
        self.pod_resources = PodResourcesServer(root, wiring)
        self.https: HttpsEndpoint | None = None
        self._root = root
        self._wiring = wiring
        self._watcher = PluginWatcher(root, self.sockets, wiring)
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve_https(
        self, logs: Logs, port: int = 0, *, accepts: Accepts = lambda token: False
    ) -> HttpsEndpoint:
        """Also serve HTTPS from now on; to be called before the kubelet starts, whose node tells
        the port. Raises OSError."""
        # Certificates and the HTTP server take longer to import than the rest to start.
        from fake_kubelet.https import HttpsEndpoint

        kubelet = self._wiring.kubelet
        self.https = HttpsEndpoint(
            self._root,
            pods=kubelet.pod_objects,
            checks=self._checks,
            metrics=lambda: kubelet.metrics.text(),
            resource_metrics=kubelet.resource_metrics,
            logs=logs,
            accepts=accepts,
            port=port,
        )
        await self.https.open()
        kubelet.identity = replace(kubelet.identity, kubelet_port=self.https.port)
        return self.https

    def carry_out(self, effect: PluginEffect) -> None:
        self.sockets.carry_out(effect)
        if isinstance(effect, OpenSockets):
            self._spawn(self._open())
        elif isinstance(effect, CloseSockets):
            self._spawn(self._close())

    def read_checkpoint(self) -> bytes | None:
        return self.sockets.read_checkpoint()

    def replace_checkpoint(self, data: bytes | None) -> None:
        self.sockets.replace_checkpoint(data)

    def has_files(self) -> bool:
        return self.sockets.has_files()

    def remove_socket(self) -> None:
        self.sockets.remove_socket()

    async def opened(self) -> None:
        """Wait until the sockets are as the kubelet's last start or stop wants them."""
        await self.sockets.opened()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Close everything; no socket stays behind."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close()
        await self.sockets.close()
        self.pod_resources.socket.unlink(missing_ok=True)

    # --- inside

    def _checks(self) -> Mapping[str, str | None]:
        checks: dict[str, str | None] = {"ping": None, "log": None, "syncloop": None}
        if self._wiring.kubelet.personality.device_registration_healthz == "on":
            failure = self.sockets.failure
            checks["device-plugin"] = None if failure is None else _DEAD + failure
        return checks

    async def _open(self) -> None:
        async with self._turn:
            self._watcher.open()
            await self.pod_resources.open()
            if self.https is not None:
                await self.https.open()

    async def _close(self) -> None:
        async with self._turn:
            await self._watcher.close()
            await self.pod_resources.close()
            if self.https is not None:
                await self.https.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        with contextlib.suppress(asyncio.CancelledError):
            error = task.exception()
            if error is not None:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "kubelet socket work failed", "exception": error, "task": task}
                )
