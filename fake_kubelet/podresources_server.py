"""The pod-resources socket, `v1` and `v1alpha1` on one server, on asyncio and gRPC."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import grpc

from fake_kubelet import api
from fake_kubelet.podresources import CallRefused
from fake_kubelet.server import SOCKET, UnixServer, check_socket_path, status_of

DIRECTORY = "var/lib/kubelet/pod-resources"


class Source(Protocol):
    """Who answers; all raise CallRefused."""

    def list_pod_resources(self, version: str) -> Any: ...
    def get_pod_resources(self, name: str, namespace: str) -> Any: ...
    def allocatable_resources(self) -> Any: ...


class PodResourcesServer:
    """Serves below `root`. Every method must be called on the event loop."""

    def __init__(self, root: Path, source: Source) -> None:
        self.socket = root / DIRECTORY / SOCKET
        check_socket_path(self.socket)
        self._source = source
        self._server = UnixServer(
            self.socket,
            {
                "v1.PodResourcesLister": {
                    "List": _method("v1", "ListPodResources", lambda _: self._list("v1")),
                    "Get": _method("v1", "GetPodResources", self._get),
                    "GetAllocatableResources": _method(
                        "v1", "AllocatableResources", lambda _: source.allocatable_resources()
                    ),
                },
                "v1alpha1.PodResourcesLister": {
                    "List": _method(
                        "v1alpha1", "ListPodResources", lambda _: self._list("v1alpha1")
                    ),
                },
            },
        )

    async def open(self) -> None:
        os.makedirs(self.socket.parent, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        await self._server.open()

    async def close(self) -> None:
        """Stop, and leave the socket's file, as a kubelet that is gone does."""
        await self._server.close()

    def _list(self, version: str) -> Any:
        return self._source.list_pod_resources(version)

    def _get(self, request: Any) -> Any:
        return self._source.get_pod_resources(request.pod_name, request.pod_namespace)


def _method(version: str, name: str, answer: Callable[[Any], Any]) -> Any:
    async def serve(request: Any, context: Any) -> Any:
        try:
            return answer(request)
        except CallRefused as error:
            await context.abort(status_of(error.code), str(error))

    request = f"{name}Request"
    return grpc.unary_unary_rpc_method_handler(
        serve,
        request_deserializer=api.message(version, request).FromString,
        response_serializer=api.encode,
    )
