"""The kubelet's sockets towards device plugins, on asyncio and gRPC.

Owns the plugin directory, the Registration server, the checkpoint file and one connection per
plugin. Decides nothing: what arrives goes to the sink, what the core wants done comes in as
effects. Every method must be called on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, Protocol

import grpc

from fake_kubelet import api, wire
from fake_kubelet.device_manager import RegistrationError
from fake_kubelet.effects import (
    AnswerRegister,
    CallPlugin,
    CancelCall,
    CloseSockets,
    Connect,
    Disconnect,
    OpenSockets,
    PluginEffect,
    Watch,
)
from fake_kubelet.messages import Answer, Ask, CallFailed, Device, PluginOptions, RegisterRequest

DIRECTORY = "var/lib/kubelet/device-plugins"
SOCKET = "kubelet.sock"
CHECKPOINT = "kubelet_internal_checkpoint"
DIAL_S = 10.0
# What a message from a plugin may have, in bytes: the default of the real kubelet's client.
MAX_MESSAGE = 4_194_304
# What a Unix socket address can hold (sun_path, less the final NUL).
MAX_SOCKET_PATH = 107
_CLOSING = "rpc error: code = Canceled desc = grpc: the client connection is closing"
_NOT_DIALLED = "failed to dial device plugin: context deadline exceeded"
_CLIENT_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    # Connections of two kubelets in one process must not be shared, and none is tried again.
    ("grpc.use_local_subchannel_pool", 1),
)


class SocketPathTooLong(Exception):
    """The node's root lies too deep for Unix sockets."""


class Sink(Protocol):
    """Who hears what plugins do."""

    def register(self, request: RegisterRequest) -> int: ...
    def plugin_connected(self, client: int, options: PluginOptions | None) -> None: ...
    def connect_failed(self, client: int, text: str) -> None: ...
    def devices_reported(self, client: int, devices: Iterable[Device]) -> None: ...
    def stream_ended(self, client: int) -> None: ...
    def call_answered(self, call: int, answer: Answer) -> None: ...


def describe(error: grpc.RpcError) -> str:
    """An RPC error as Go prints it."""
    code, details = error.code().name, error.details() or ""
    if code == "RESOURCE_EXHAUSTED" and details.startswith("CLIENT: Received message larger"):
        # The C core's words for what Go's client says differently.
        size = details.split("(")[-1].split(" ")[0]
        details = f"grpc: received message larger than max ({size} vs. {MAX_MESSAGE})"
    name = "".join(part.title() for part in code.split("_"))
    return f"rpc error: code = {name} desc = {details}"


def status_of(code: str) -> grpc.StatusCode:
    """A status by the name Go gives it: `DeadlineExceeded`, also `Canceled`."""
    spelled = "".join(f"_{c}" if c.isupper() else c for c in code).strip("_").upper()
    return grpc.StatusCode["CANCELLED" if spelled == "CANCELED" else spelled]


def check_socket_path(path: Path) -> None:
    """Raises SocketPathTooLong."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise SocketPathTooLong(
            f"{path}: {length} bytes, a Unix socket's path may have {MAX_SOCKET_PATH}"
        )


class UnixServer:
    """A gRPC server on a Unix socket that outlives it, as a file of a process that is gone does.

    The socket is made one directory up and moved into place when it serves: nobody can meet it
    with wider permissions, and a watcher sees one new file."""

    def __init__(self, path: Path, services: dict[str, dict[str, Any]]) -> None:
        self._path = path
        self._services = services
        self._server: Any = None

    @property
    def is_open(self) -> bool:
        return self._server is not None

    async def open(self) -> None:
        """Raises OSError when the socket cannot be made."""
        made = self._path.parent.parent / f".{self._path.parent.name[:1]}{SOCKET}"
        made.unlink(missing_ok=True)
        server = grpc.aio.server()
        for name, methods in self._services.items():
            handler = grpc.method_handlers_generic_handler(name, methods)
            server.add_generic_rpc_handlers((handler,))
        try:
            server.add_insecure_port(f"unix:{made}")
        except RuntimeError as error:
            raise OSError(f"{made}: cannot listen ({error})") from None
        self._server = server
        await server.start()
        os.chmod(made, 0o600)
        os.rename(made, self._path)

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)


class PluginSockets:
    """Serves below `root`. `keeps_socket` False deletes kubelet.sock whenever it was made."""

    def __init__(self, root: Path, sink: Sink, *, keeps_socket: bool = True) -> None:
        self.directory = root / DIRECTORY
        self.socket = self.directory / SOCKET
        check_socket_path(self.socket)
        self.keeps_socket = keeps_socket
        self.failure: str | None = None  # why registration is not served
        self._sink = sink
        handler = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=api.RegisterRequest.FromString,
            response_serializer=api.encode,
        )
        self._server = UnixServer(
            self.socket, {f"{api.PACKAGE}.Registration": {"Register": handler}}
        )
        self._channels: dict[int, Any] = {}
        self._dials: dict[int, asyncio.Task[None]] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._answers: dict[int, asyncio.Future[str | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()
        self._turn: asyncio.Task[None] | None = None  # the last opening or closing

    # --- the port of the wiring

    def carry_out(self, effect: PluginEffect) -> None:
        match effect:
            case Connect():
                self._dials[effect.client] = self._spawn(self._dial(effect))
            case AnswerRegister(client, error):
                future = self.answer(client)
                if future.cancelled():  # the plugin did not wait for it
                    del self._answers[client]
                else:
                    future.set_result(error)
            case Watch(client):
                self._spawn(self._watch(client))
            case Disconnect(client):
                self._disconnect(client)
            case CallPlugin(call, client, ask):
                self._calls[call] = self._spawn(self._call(call, client, ask))
            case CancelCall(call):
                if call in self._calls:
                    self._calls.pop(call).cancel()
            case OpenSockets(removes, is_strict):
                self._turn = self._spawn(self._open(removes, is_strict=is_strict))
            case CloseSockets():
                self._turn = self._spawn(self._close())

    def read_checkpoint(self) -> bytes | None:
        try:
            return (self.directory / CHECKPOINT).read_bytes()
        except OSError:
            return None

    def replace_checkpoint(self, data: bytes | None) -> None:
        path = self.directory / CHECKPOINT
        if data is None:
            path.unlink(missing_ok=True)
            return
        made = self.directory / f".{CHECKPOINT}.tmp"
        os.makedirs(self.directory, exist_ok=True)
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        os.rename(made, path)

    def has_files(self) -> bool:
        with contextlib.suppress(OSError):
            return any(not name.startswith(".") for name in os.listdir(self.directory))
        return False

    def remove_socket(self) -> None:
        self.socket.unlink(missing_ok=True)

    async def opened(self) -> None:
        """Wait until what was asked of the server so far is done."""
        if self._turn is not None:
            await asyncio.wait([self._turn])

    async def close(self) -> None:
        """Close everything and delete the socket."""
        self._calls.clear()
        for client in list(self._channels):
            self._disconnect(client)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.close()
        self.remove_socket()

    def answer(self, client: int) -> asyncio.Future[str | None]:
        """The answer to a client's registration: a refusal, or None."""
        if client not in self._answers:
            self._answers[client] = asyncio.get_running_loop().create_future()
        return self._answers[client]

    # --- inside

    async def _open(self, removes: str, *, is_strict: bool) -> None:
        async with self._opening:
            await self._server.close()
            os.makedirs(self.directory, exist_ok=True)
            os.chmod(self.directory, 0o750)  # noqa: S103 - as a kubelet makes it
            self.failure = self._clear(removes) if is_strict else None
            if not is_strict:
                self._clear(removes)
            if self.failure is not None:
                return
            try:
                await self._server.open()
            except OSError as error:
                self.failure = str(error)
            if not self.keeps_socket:
                self.remove_socket()

    async def _close(self) -> None:
        async with self._opening:
            await self._server.close()

    def _clear(self, removes: str) -> str | None:
        """Clear the directory; says what could not be removed."""
        failures = []
        for entry in self.directory.iterdir():
            try:
                if entry.name == CHECKPOINT or (entry.is_dir() and not entry.is_symlink()):
                    continue
                if removes == "sockets" and not stat.S_ISSOCK(entry.stat().st_mode):
                    continue
                entry.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                failures.append(f"{entry}: {error.strerror}")
        return ", ".join(failures) or None

    async def _register(self, request: Any, context: Any) -> Any:
        asked = RegisterRequest(
            version=request.version,
            endpoint=request.endpoint,
            resource_name=request.resource_name,
            options=wire.options_of(request.options),
        )
        try:
            client = self._sink.register(asked)
        except RegistrationError as error:
            await context.abort(status_of(error.code), str(error))
        refusal = await self.answer(client)
        del self._answers[client]
        if refusal is not None:
            await context.abort(grpc.StatusCode.UNKNOWN, refusal)
        return api.Empty()

    def _place(self, connect: Connect) -> str:
        if connect.is_path:
            return connect.endpoint
        return os.path.normpath(f"{self.directory}/{connect.endpoint}")

    async def _dial(self, connect: Connect) -> None:
        client = connect.client
        options: tuple[tuple[str, Any], ...] = _CLIENT_OPTIONS
        if connect.authority is not None:
            options = (*options, ("grpc.default_authority", connect.authority))
        channel = grpc.aio.insecure_channel(f"unix:{self._place(connect)}", options=options)
        self._channels[client] = channel
        told: PluginOptions | None = None
        try:
            await asyncio.wait_for(channel.channel_ready(), DIAL_S)
            if connect.asks_options:
                ask = channel.unary_unary(
                    api.GET_OPTIONS,
                    request_serializer=api.encode,
                    response_deserializer=api.DevicePluginOptions.FromString,
                )
                told = wire.options_of(await ask(api.Empty()))
        except TimeoutError:
            await self._not_dialled(client, _NOT_DIALLED)
            return
        except grpc.RpcError as error:
            text = f"failed to get device plugin options: {describe(error)}"
            await self._not_dialled(client, text)
            return
        except asyncio.CancelledError:
            await channel.close()
            raise
        finally:
            self._dials.pop(client, None)
        self._sink.plugin_connected(client, told)

    async def _not_dialled(self, client: int, text: str) -> None:
        channel = self._channels.pop(client, None)
        if channel is not None:
            await channel.close()
            self._sink.connect_failed(client, text)

    async def _watch(self, client: int) -> None:
        channel = self._channels.get(client)
        try:
            if channel is None:
                return
            watch = channel.unary_stream(
                api.LIST_AND_WATCH,
                request_serializer=api.encode,
                response_deserializer=api.ListAndWatchResponse.FromString,
            )
            async for answer in watch(api.Empty()):
                self._sink.devices_reported(client, wire.devices_of(answer))
        except (grpc.RpcError, grpc.aio.UsageError, grpc.aio.InternalError):
            pass
        finally:
            self._sink.stream_ended(client)

    def _disconnect(self, client: int) -> None:
        dial = self._dials.pop(client, None)
        if dial is not None:
            dial.cancel()
        channel = self._channels.pop(client, None)
        if channel is not None:
            self._spawn(channel.close())

    async def _call(self, call: int, client: int, ask: Ask) -> None:
        channel = self._channels.get(client)
        path, request, response = wire.request_of(ask)
        answer: Answer
        try:
            if channel is None:
                raise grpc.aio.UsageError("closed")
            ask_plugin = channel.unary_unary(
                path,
                request_serializer=api.encode,
                response_deserializer=response.FromString,
            )
            answer = wire.answer_of(ask, await ask_plugin(request))
        except grpc.RpcError as error:
            answer = CallFailed(describe(error))
        except (grpc.aio.UsageError, grpc.aio.InternalError):
            answer = CallFailed(_CLOSING)
        except asyncio.CancelledError:
            if self._calls.pop(call, None) is None:
                raise  # nobody waits any more
            answer = CallFailed(_CLOSING)  # the connection was closed below it
        self._calls.pop(call, None)
        self._sink.call_answered(call, answer)

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
