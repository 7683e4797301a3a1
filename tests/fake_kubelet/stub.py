"""A small device plugin on real sockets, for any resource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc

from fake_kubelet import api

DIRECTORY = "var/lib/kubelet/device-plugins"


class StubPlugin:
    """Serves `socket` below a root. `allocate` and `options` may be replaced."""

    def __init__(self, root: Path, *ids: str, resource: str = "example.com/resource") -> None:
        self.root = root
        self.resource = resource
        self.socket = root / DIRECTORY / "stub.sock"
        self.ids = list(ids or ("Dev-1", "Dev-2"))
        self.health = dict.fromkeys(self.ids, "Healthy")
        self.raw_list: bytes | None = None  # sent instead of the devices
        self.options = api.DevicePluginOptions()
        self.allocate: Callable[[Any], Any] = answer
        self.calls: list[str] = []
        self.streams: set[asyncio.Queue[bool]] = set()
        self._server: Any = None

    async def start(self, *services: tuple[str, dict[str, Any]]) -> None:
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        unary = grpc.unary_unary_rpc_method_handler
        methods = {
            "GetDevicePluginOptions": unary(self._options, response_serializer=api.encode),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._watch),
            "Allocate": unary(
                self._allocate,
                request_deserializer=api.AllocateRequest.FromString,
                response_serializer=api.encode,
            ),
        }
        for name, handlers in ((f"{api.PACKAGE}.DevicePlugin", methods), *services):
            handler = grpc.method_handlers_generic_handler(name, handlers)
            self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        for stream in self.streams:
            stream.put_nowait(False)
        await self._server.stop(0)

    async def register(self, **fields: str) -> None:
        """Raises grpc.RpcError."""
        request = api.RegisterRequest(
            **{
                "version": "v1beta1",
                "endpoint": self.socket.name,
                "resource_name": self.resource,
                **fields,
            }
        )
        kubelet = self.root / DIRECTORY / "kubelet.sock"
        async with grpc.aio.insecure_channel(
            f"unix:{kubelet}", options=(("grpc.use_local_subchannel_pool", 1),)
        ) as channel:
            call = channel.unary_unary(
                api.REGISTER,
                request_serializer=api.encode,
                response_deserializer=api.Empty.FromString,
            )
            await call(request)

    def send(self, **health: str) -> None:
        self.health.update({name.replace("_", "-"): state for name, state in health.items()})
        for stream in self.streams:
            stream.put_nowait(True)

    async def _options(self, request: bytes, context: Any) -> Any:
        self.calls.append("GetDevicePluginOptions")
        return self.options

    async def _watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        self.calls.append("ListAndWatch")
        stream: asyncio.Queue[bool] = asyncio.Queue()
        self.streams.add(stream)
        try:
            yield self._list()
            while await stream.get():
                yield self._list()
        finally:
            self.streams.discard(stream)

    def _list(self) -> bytes:
        if self.raw_list is not None:
            return self.raw_list
        message = api.ListAndWatchResponse()
        for one, health in self.health.items():
            message.devices.add(ID=one, health=health)
        return bytes(message.SerializeToString())

    async def _allocate(self, request: Any, context: Any) -> Any:
        self.calls.append("Allocate")
        made = self.allocate(request)
        if asyncio.iscoroutine(made):
            made = await made
        return made


def answer(request: Any) -> Any:
    """The ids, as a variable."""
    response = api.AllocateResponse()
    for container in request.container_requests:
        one = response.container_responses.add()
        one.envs["IDS"] = ",".join(sorted(container.devices_ids))
    return response
