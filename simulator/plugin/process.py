"""The reference device plugin as a process: real libdcmi.so, real gRPC sockets.

Carries out what the core decides; the log goes to standard output. Ends with status 0 on SIGTERM
and, as the vendor's plugin does, also when the driver never comes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from fake_kubelet import api
from simulator.plugin import library
from simulator.plugin.core import (
    AllocateError,
    Effect,
    Exit,
    Log,
    PluginCore,
    PluginDevice,
    PluginSettings,
    Probe,
    Register,
    SendDevices,
    Serve,
    SetTimer,
    StopServing,
)
from simulator.plugin.dcmi import LibraryDcmi
from simulator.plugin.survey import DriverFailure, Survey, survey

PLUGIN_DIRECTORY = "var/lib/kubelet/device-plugins"
FAULT_CODES = "usr/local/faultCode.json"


class Driver:
    """libdcmi.so of a node's root: found, checked and loaded anew until that works."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._dcmi: LibraryDcmi | None = None

    def read(self) -> Survey | DriverFailure:
        if self._dcmi is None:
            owners = frozenset({0, os.geteuid()})
            try:
                place = library.choose(
                    self._fact, owners=owners, directories=library.DRIVER_DIRECTORIES
                )
                self._dcmi = LibraryDcmi(self._root / place)
            except (library.LibraryRefused, OSError) as error:
                return DriverFailure("load libdcmi.so", str(error))
        return survey(self._dcmi)

    @property
    def loaded(self) -> LibraryDcmi | None:
        return self._dcmi

    def _fact(self, path: str) -> library.FileFact | None:
        try:
            found = os.lstat(self._root / path)
        except OSError:
            return None
        return library.FileFact(mode=found.st_mode, uid=found.st_uid)


class PluginProcess:
    """The core with its sockets; lives on one event loop."""

    def __init__(self, root: Path, settings: PluginSettings) -> None:
        self._directory = root / PLUGIN_DIRECTORY
        self._driver = Driver(root)
        self._core = PluginCore(settings, _levels(root / FAULT_CODES))
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._streams: set[asyncio.Queue[tuple[PluginDevice, ...] | None]] = set()
        self._server: Any = None
        self._endpoint = ""
        self._subscribed = False
        self._queue: asyncio.Queue[Effect] = asyncio.Queue()
        self._ended: asyncio.Future[int] = self._loop.create_future()

    async def run(self) -> int:
        """Until told to stop; returns the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, lambda: self._take(self._core.stop()))
        self._take(self._core.start(self._now()))
        worker = self._loop.create_task(self._work())
        try:
            waiting: set[asyncio.Future[Any]] = {self._ended, worker}
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if worker in done:
                worker.result()
            return await self._ended
        finally:
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker
            await self._stop_serving()

    def _now(self) -> float:
        return time.monotonic()

    def _take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._queue.put_nowait(effect)

    async def _work(self) -> None:
        while True:
            await self._carry_out(await self._queue.get())

    async def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Probe():
                outcome = self._driver.read()
                self._take(self._core.probed(outcome, self._now()))
                self._subscribe()
            case Serve(endpoint):
                await self._serve(endpoint)
            case StopServing():
                await self._stop_serving()
            case Register(resource, endpoint):
                await self._register(resource, endpoint)
            case SendDevices(devices):
                for stream in self._streams:
                    stream.put_nowait(devices)
            case SetTimer(key, at_s):
                if key in self._timers:
                    self._timers[key].cancel()
                delay = max(0.0, at_s - self._now())
                self._timers[key] = self._loop.call_later(delay, partial(self._timer, key))
            case Log(text):
                print(text, flush=True)
            case Exit(status, text):
                print(text, flush=True)
                if not self._ended.done():
                    self._ended.set_result(status)

    def _timer(self, key: str) -> None:
        self._take(self._core.timer(key, self._now()))

    def _subscribe(self) -> None:
        dcmi = self._driver.loaded
        if dcmi is None or self._subscribed:
            return

        def on_event(code: int, logic_id: int, severity: int, assertion: int) -> None:
            self._loop.call_soon_threadsafe(self._fault, code, severity)

        self._subscribed = dcmi.subscribe(on_event) == 0

    def _fault(self, code: int, severity: int) -> None:
        self._take(self._core.fault_event(code, severity))

    async def _serve(self, endpoint: str) -> None:
        await self._stop_serving()
        path = self._directory / endpoint
        with contextlib.suppress(OSError):
            path.unlink()
        self._server = grpc.aio.server()
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "GetDevicePluginOptions": unary(
                self._options,
                request_deserializer=api.Empty.FromString,
                response_serializer=api.encode,
            ),
            "ListAndWatch": stream(
                self._list_and_watch,
                request_deserializer=api.Empty.FromString,
                response_serializer=api.encode,
            ),
            "Allocate": unary(
                self._allocate,
                request_deserializer=api.AllocateRequest.FromString,
                response_serializer=api.encode,
            ),
            "PreStartContainer": unary(
                self._pre_start,
                request_deserializer=api.PreStartContainerRequest.FromString,
                response_serializer=api.encode,
            ),
            "GetPreferredAllocation": unary(
                self._preferred,
                request_deserializer=api.PreferredAllocationRequest.FromString,
                response_serializer=api.encode,
            ),
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(f"{api.PACKAGE}.DevicePlugin", methods),)
        )
        try:
            self._server.add_insecure_port(f"unix:{path}")
            await self._server.start()
            os.chmod(path, 0o600)
        except (RuntimeError, OSError) as error:
            self._server = None
            print(f"cannot serve on {path}: {error}", flush=True)
        self._endpoint = endpoint

    async def _stop_serving(self) -> None:
        for stream in self._streams:
            stream.put_nowait(None)
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
            with contextlib.suppress(OSError):
                (self._directory / self._endpoint).unlink()

    async def _register(self, resource: str, endpoint: str) -> None:
        socket = self._directory / "kubelet.sock"
        if not socket.exists():
            text = f"dial unix {socket}: connect: no such file or directory"
            self._take(self._core.register_failed(text, self._now()))
            return
        request = api.RegisterRequest(
            version=api.VERSION, endpoint=endpoint, resource_name=resource
        )
        try:
            async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
                call = channel.unary_unary(
                    api.REGISTER,
                    request_serializer=api.encode,
                    response_deserializer=api.Empty.FromString,
                )
                await call(request)
        except grpc.RpcError as error:
            self._take(self._core.register_failed(str(error.details()), self._now()))
        else:
            self._take(self._core.registered(self._now()))

    async def _options(self, request: Any, context: Any) -> Any:
        return api.DevicePluginOptions()

    async def _list_and_watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        stream: asyncio.Queue[tuple[PluginDevice, ...] | None] = asyncio.Queue()
        self._streams.add(stream)
        self._take(self._core.stream_opened(self._now()))
        try:
            while (devices := await stream.get()) is not None:
                answer = api.ListAndWatchResponse()
                for device in devices:
                    health = "Healthy" if device.is_healthy else "Unhealthy"
                    answer.devices.add(ID=device.device_id, health=health)
                yield answer
        finally:
            self._streams.discard(stream)
            self._take(self._core.stream_closed(self._now()))

    async def _allocate(self, request: Any, context: Any) -> Any:
        answer = api.AllocateResponse()
        for container in request.container_requests:
            try:
                made = self._core.allocate(tuple(container.devices_ids), self._driver.read())
            except AllocateError as error:
                await context.abort(grpc.StatusCode.UNKNOWN, str(error))
            response = answer.container_responses.add()
            response.envs.update(made.envs)
            for node in made.devices:
                response.devices.add(
                    host_path=node.host_path,
                    container_path=node.container_path,
                    permissions=node.permissions,
                )
        return answer

    async def _pre_start(self, request: Any, context: Any) -> Any:
        return api.PreStartContainerResponse()

    async def _preferred(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNKNOWN, "not support")


def _levels(path: Path) -> dict[int, str]:
    """code -> level from the host's faultCode.json; empty when it cannot be read."""
    try:
        table = json.loads(path.read_text())
        return {
            int(code, 16): key.removesuffix("Codes")
            for key, codes in table.items()
            for code in codes
        }
    except (OSError, ValueError, AttributeError, TypeError) as error:
        print(f"{path}: cannot be read ({error}); every code isolates its card", flush=True)
        return {}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="npu-testbed-plugin", description="The reference Ascend device plugin."
    )
    parser.add_argument("--root", type=Path, default=Path("/"), help="the node's root directory")
    parser.add_argument("--answer", choices=("runtime", "devices"), default="runtime")
    parser.add_argument("--ignore-kubelet-restart", action="store_true")
    parser.add_argument("--driver-timeout", type=float, default=600.0, metavar="SECONDS")
    arguments = parser.parse_args(argv)
    settings = PluginSettings(
        answer=arguments.answer,
        notices_kubelet_restart=not arguments.ignore_kubelet_restart,
        driver_timeout_s=arguments.driver_timeout,
    )

    async def run() -> int:
        return await PluginProcess(arguments.root, settings).run()

    return asyncio.run(run())


if __name__ == "__main__":
    raise SystemExit(main())
