"""The kubelet's sockets towards device plugins, on asyncio and gRPC.

Owns the plugin directory, the Registration server and one connection per plugin. Decides nothing:
what arrives goes to the sink, what the core wants done comes in as calls. Follows the synchronous
registration of Kubernetes 1.25 and later: Register answers once the plugin was dialled and asked
for its options.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, Protocol

import grpc

from fake_kubelet import api
from fake_kubelet.device_manager import (
    Device,
    PluginOptions,
    RegisterRequest,
    RegistrationError,
)
from fake_kubelet.effects import AllocateResponse, DeviceSpec, Mount

DIRECTORY = "var/lib/kubelet/device-plugins"
SOCKET = "kubelet.sock"
CHECKPOINT = "kubelet_internal_checkpoint"
DIAL_S = 10.0
# What a Unix socket address can hold (sun_path, less the final NUL).
MAX_SOCKET_PATH = 107


class SocketPathTooLong(Exception):
    """The node's root lies too deep for Unix sockets."""


class Sink(Protocol):
    """Who hears what plugins do."""

    def register(self, request: RegisterRequest) -> int: ...
    def plugin_connected(self, client: int, options: PluginOptions) -> None: ...
    def connect_failed(self, client: int, text: str) -> None: ...
    def devices_reported(self, client: int, devices: Iterable[Device]) -> None: ...
    def stream_ended(self, client: int) -> None: ...
    def allocate_answered(self, call: int, outcome: AllocateResponse | str) -> None: ...


def describe(error: grpc.RpcError) -> str:
    """An RPC error as Go prints it."""
    name = "".join(part.title() for part in error.code().name.split("_"))
    return f"rpc error: code = {name} desc = {error.details()}"


class PluginSockets:
    """Serves below `root`; every method must be called on the event loop."""

    def __init__(self, root: Path, sink: Sink) -> None:
        self.directory = root / DIRECTORY
        longest = self.directory / SOCKET
        if len(os.fsencode(longest)) > MAX_SOCKET_PATH:
            raise SocketPathTooLong(
                f"{longest}: {len(os.fsencode(longest))} bytes, a Unix socket's path may have "
                f"{MAX_SOCKET_PATH}"
            )
        self._sink = sink
        self._server: Any = None
        self._channels: dict[int, Any] = {}
        self._dialled: dict[int, asyncio.Future[str | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._client_tasks: dict[int, asyncio.Task[None]] = {}
        self._listening = asyncio.Lock()
        self.listens_again = True

    @property
    def socket(self) -> Path:
        return self.directory / SOCKET

    def wipe(self) -> None:
        """What a starting kubelet does: clear the directory, listen."""
        self._spawn(self._listen())

    async def _listen(self) -> None:
        async with self._listening:
            if self._server is not None:
                await self._server.stop(0)
            self.directory.mkdir(parents=True, exist_ok=True)
            os.chmod(self.directory, 0o750)  # noqa: S103 - as a kubelet makes it
            for entry in self.directory.iterdir():
                if entry.name != CHECKPOINT and not entry.is_dir():
                    entry.unlink(missing_ok=True)
            self._server = grpc.aio.server()
            handler = grpc.unary_unary_rpc_method_handler(
                self._register,
                request_deserializer=api.RegisterRequest.FromString,
                response_serializer=api.encode,
            )
            self._server.add_generic_rpc_handlers(
                (
                    grpc.method_handlers_generic_handler(
                        f"{api.PACKAGE}.Registration", {"Register": handler}
                    ),
                )
            )
            self._server.add_insecure_port(f"unix:{self.socket}")
            await self._server.start()
            os.chmod(self.socket, 0o600)
            if not self.listens_again:
                self.socket.unlink(missing_ok=True)

    async def close(self) -> None:
        """Close everything; the directory is left without sockets of ours."""
        for client in list(self._channels):
            self.disconnect(client)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0)
        self.socket.unlink(missing_ok=True)

    def connect(self, client: int, endpoint: str) -> None:
        self._dialled[client] = asyncio.get_running_loop().create_future()
        self._spawn(self._dial(client, endpoint))

    def watch(self, client: int) -> None:
        self._client_tasks[client] = self._spawn(self._watch(client))

    def disconnect(self, client: int) -> None:
        channel = self._channels.pop(client, None)
        if channel is not None:
            self._spawn(channel.close())

    def allocate(self, call: int, client: int, device_ids: tuple[str, ...]) -> None:
        self._spawn(self._allocate(call, client, device_ids))

    async def _register(self, request: Any, context: Any) -> Any:
        asked = RegisterRequest(
            version=request.version,
            endpoint=request.endpoint,
            resource_name=request.resource_name,
        )
        try:
            client = self._sink.register(asked)
        except RegistrationError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        refusal = await self._dialled[client]
        del self._dialled[client]
        if refusal is not None:
            await context.abort(grpc.StatusCode.UNKNOWN, refusal)
        return api.Empty()

    async def _dial(self, client: int, endpoint: str) -> None:
        path = os.path.normpath(f"{self.directory}/{endpoint}")
        channel = grpc.aio.insecure_channel(
            f"unix:{path}", options=(("grpc.default_authority", "localhost"),)
        )
        refusal: str | None = None
        try:
            await asyncio.wait_for(channel.channel_ready(), DIAL_S)
            ask = channel.unary_unary(
                api.GET_OPTIONS,
                request_serializer=api.encode,
                response_deserializer=api.DevicePluginOptions.FromString,
            )
            options = await ask(api.Empty())
        except TimeoutError:
            refusal = "failed to dial device plugin: context deadline exceeded"
        except grpc.RpcError as error:
            refusal = f"failed to get device plugin options: {describe(error)}"
        if refusal is not None:
            await channel.close()
            self._sink.connect_failed(client, refusal)
        else:
            self._channels[client] = channel
            self._sink.plugin_connected(
                client,
                PluginOptions(
                    pre_start_required=options.pre_start_required,
                    preferred_allocation=options.get_preferred_allocation_available,
                ),
            )
        self._dialled[client].set_result(refusal)

    async def _watch(self, client: int) -> None:
        channel = self._channels[client]
        watch = channel.unary_stream(
            api.LIST_AND_WATCH,
            request_serializer=api.encode,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )
        try:
            async for answer in watch(api.Empty()):
                self._sink.devices_reported(
                    client,
                    [
                        Device(
                            id=device.ID,
                            health=device.health,
                            numa_nodes=tuple(node.ID for node in device.topology.nodes),
                        )
                        for device in answer.devices
                    ],
                )
        except (grpc.RpcError, asyncio.CancelledError, grpc.aio.UsageError):
            pass
        self._sink.stream_ended(client)

    async def _allocate(self, call: int, client: int, device_ids: tuple[str, ...]) -> None:
        channel = self._channels.get(client)
        request = api.AllocateRequest()
        request.container_requests.add().devices_ids.extend(device_ids)
        outcome: AllocateResponse | str
        try:
            if channel is None:
                raise grpc.aio.UsageError("closed")
            allocate = channel.unary_unary(
                api.ALLOCATE,
                request_serializer=api.encode,
                response_deserializer=api.AllocateResponse.FromString,
            )
            answer = await allocate(request)
        except grpc.RpcError as error:
            outcome = describe(error)
        except (asyncio.CancelledError, grpc.aio.UsageError):
            outcome = "rpc error: code = Canceled desc = grpc: the client connection is closing"
        else:
            outcome = _response(answer)
        self._sink.allocate_answered(call, outcome)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        with contextlib.suppress(asyncio.CancelledError):
            error = task.exception()
            if error is not None:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "plugin socket work failed", "exception": error, "task": task}
                )


def _response(answer: Any) -> AllocateResponse | str:
    if not answer.container_responses:
        return f"no containers return in allocation response {answer}".strip()
    first = answer.container_responses[0]
    return AllocateResponse(
        envs=dict(first.envs),
        devices=tuple(
            DeviceSpec(
                host_path=device.host_path,
                container_path=device.container_path,
                permissions=device.permissions,
            )
            for device in first.devices
        ),
        mounts=tuple(
            Mount(
                host_path=mount.host_path,
                container_path=mount.container_path,
                read_only=mount.read_only,
            )
            for mount in first.mounts
        ),
        annotations=dict(first.annotations),
        cdi_devices=tuple(device.name for device in first.cdi_devices),
    )
