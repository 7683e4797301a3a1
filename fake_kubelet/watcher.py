"""The plugin watcher: plugins that wait to be found in `plugins_registry`, instead of calling.

After `kubernetes:pkg/kubelet/pluginmanager`. Sub-directories are searched too; a name that begins
with a dot is not a plugin.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import grpc

from fake_kubelet import api
from fake_kubelet.device_manager import API_VERSION, is_extended_resource
from fake_kubelet.messages import RegisterRequest
from fake_kubelet.server import PluginSockets, Sink, describe

DIRECTORY = "var/lib/kubelet/plugins_registry"
LOOK_S = 1.0
RECENT_NS = 3_000_000_000
DIAL_S = 10.0
GET_INFO_S = 1.0
NOTIFY_S = 5.0
# A plugin that was refused is not asked again so soon.
RETRY_S = 60.0


class WatcherSink(Sink, Protocol):
    """A sink that also hears of sockets that vanish."""

    def plugin_removed(self, client: int) -> None: ...


class PluginWatcher:
    """Looks every second while open. Every method must be called on the event loop."""

    def __init__(self, root: Path, sockets: PluginSockets, sink: WatcherSink) -> None:
        self.directory = root / DIRECTORY
        self._sockets = sockets
        self._sink = sink
        self._found: dict[str, int | None] = {}  # socket -> its client, once it has one
        self._tries: dict[str, asyncio.Task[None]] = {}
        self._again: dict[str, float] = {}
        self._seen: dict[str, int] = {}  # directory -> when it was changed
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        os.makedirs(self.directory, mode=0o750, exist_ok=True)
        self._look()

    async def close(self) -> None:
        """Forget every plugin."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tries = list(self._tries.values())
        for task in tries:
            task.cancel()
        await asyncio.gather(*tries, return_exceptions=True)
        self._found.clear()
        self._again.clear()
        self._seen.clear()

    # --- inside

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_S, self._look)
        if not self._has_changed() and not self._again:
            return
        there = set(self._paths())
        for path in self._found.keys() - there:
            client = self._found.pop(path)
            self._again.pop(path, None)
            if client is not None:
                self._sink.plugin_removed(client)
        for path in sorted(there):
            is_due = self._again.get(path, 0.0) <= loop.time()
            if self._found.get(path) is None and path not in self._tries and is_due:
                self._found[path] = None
                task = loop.create_task(self._register(path))
                self._tries[path] = task

    def _has_changed(self) -> bool:
        """Whether any directory looked at before is different now, or was so a moment ago: its
        time is coarse, and taken after its names."""
        seen = {}
        for place in self._seen or (str(self.directory),):
            with contextlib.suppress(OSError):
                seen[place] = os.stat(place).st_mtime_ns
        return seen != self._seen or max(seen.values(), default=0) > time.time_ns() - RECENT_NS

    def _paths(self) -> Iterator[str]:
        self._seen = {}
        for place, directories, names in os.walk(self.directory):
            directories[:] = [name for name in directories if not name.startswith(".")]
            self._seen[place] = os.stat(place).st_mtime_ns
            for name in names:
                path = f"{place}/{name}"
                with contextlib.suppress(OSError):
                    if not name.startswith(".") and stat.S_ISSOCK(os.stat(path).st_mode):
                        yield path

    async def _register(self, path: str) -> None:
        try:
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                await asyncio.wait_for(channel.channel_ready(), DIAL_S)
                refusal = await self._introduce(path, channel)
                if refusal is not None:
                    self._again[path] = asyncio.get_running_loop().time() + RETRY_S
                status = api.message("pluginregistration", "RegistrationStatus")(
                    plugin_registered=refusal is None, error=refusal or ""
                )
                await self._ask(channel, api.NOTIFY, status, "RegistrationStatusResponse", NOTIFY_S)
        except (TimeoutError, grpc.RpcError):
            self._again[path] = asyncio.get_running_loop().time() + RETRY_S
        finally:
            del self._tries[path]

    async def _introduce(self, path: str, channel: Any) -> str | None:
        """Ask a plugin who it is and register it; the answer is why it is refused."""
        asked = api.message("pluginregistration", "InfoRequest")()
        try:
            info = await self._ask(channel, api.GET_INFO, asked, "PluginInfo", GET_INFO_S)
        except grpc.RpcError as error:
            return f"failed to get plugin info: {describe(error)}"
        if info.type != "DevicePlugin":
            return f"no handler registered for plugin type: {info.type} at socket {path}"
        if API_VERSION not in info.supported_versions:
            listed = " ".join(info.supported_versions)
            return (
                f"manager version, {API_VERSION}, is not among plugin supported versions [{listed}]"
            )
        if not is_extended_resource(info.name):
            return (
                f'invalid name of device plugin socket: the ResourceName "{info.name}" is invalid'
            )
        client = self._sink.register(
            RegisterRequest(
                version=API_VERSION,
                endpoint=info.endpoint or path,
                resource_name=info.name,
                is_path=True,
            )
        )
        refusal = await self._sockets.answer(client)
        if refusal is None:
            self._found[path] = client
        return refusal

    @staticmethod
    async def _ask(channel: Any, method: str, request: Any, response: str, limit_s: float) -> Any:
        call = channel.unary_unary(
            method,
            request_serializer=api.encode,
            response_deserializer=api.message("pluginregistration", response).FromString,
        )
        return await call(request, timeout=limit_s)
