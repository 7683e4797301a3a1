"""How fast kubelets are: many in one process, a plugin each, both ends real gRPC on Unix sockets.

A process of its own, so that its memory is only theirs; prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from fake_kubelet import api
from fake_kubelet.kubelet import Settings
from fake_kubelet.server import DIRECTORY
from fake_kubelet.service import KubeletService

RESOURCE = "example.com/resource"
CHANGES = 500
ALLOCATES = 200
IDLE_S = 10.0  # seconds without any change
LARGE = 64
MEMORY = "/dev/shm"  # noqa: S108 - a file system in memory


class _Plugin:
    """Serves and registers as a plugin does; its devices change when told."""

    def __init__(self, root: Path, count: int) -> None:
        self._directory = root / DIRECTORY
        self._message = api.ListAndWatchResponse()
        for number in range(count):
            self._message.devices.add(ID=f"d{number}", health="Healthy")
        self._changed = asyncio.Event()
        self._server: Any = None

    async def start(self) -> None:
        self._server = grpc.aio.server()
        unary = grpc.unary_unary_rpc_method_handler
        methods = {
            "GetDevicePluginOptions": unary(self._options, response_serializer=api.encode),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._watch, response_serializer=api.encode
            ),
            "Allocate": unary(
                self._allocate,
                request_deserializer=api.AllocateRequest.FromString,
                response_serializer=api.encode,
            ),
        }
        handler = grpc.method_handlers_generic_handler(f"{api.PACKAGE}.DevicePlugin", methods)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self._directory}/p.sock")
        await self._server.start()
        request = api.RegisterRequest(
            version=api.VERSION, endpoint="p.sock", resource_name=RESOURCE
        )
        options = (("grpc.use_local_subchannel_pool", 1),)
        target = f"unix:{self._directory}/kubelet.sock"
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            call = channel.unary_unary(
                api.REGISTER,
                request_serializer=api.encode,
                response_deserializer=api.Empty.FromString,
            )
            await call(request)

    def change(self, health: str) -> None:
        self._message.devices[0].health = health
        self._changed.set()

    async def stop(self) -> None:
        await self._server.stop(0)

    async def _options(self, request: bytes, context: Any) -> Any:
        return api.DevicePluginOptions()

    async def _watch(self, request: bytes, context: Any) -> AsyncIterator[Any]:
        while True:
            yield self._message
            await self._changed.wait()
            self._changed.clear()

    async def _allocate(self, request: Any, context: Any) -> Any:
        answer = api.AllocateResponse()
        answer.container_responses.add()
        return answer


def _pod(name: str, count: int) -> dict[str, Any]:
    limits = {"limits": {RESOURCE: str(count)}}
    spec = {"containers": [{"name": "main", "resources": limits}], "restartPolicy": "Never"}
    return {"metadata": {"name": name}, "spec": spec}


def _has_healthy(kubelet: KubeletService, count: int | None = None) -> bool:
    healthy = len(kubelet.kubelet.devices.healthy(RESOURCE))
    return healthy > 0 if count is None else healthy == count


def _is_running(kubelet: KubeletService, pod: str) -> bool:
    return kubelet.phase(pod) == "Running"


def _is_gone(kubelet: KubeletService, pod: str) -> bool:
    return kubelet.pod(pod) is None


async def _measure(count: int, root: Path) -> dict[str, float]:
    began = time.perf_counter()
    kubelets, plugins = [], []
    allocated_at: list[float] = []

    def record(kind: str, fields: Any) -> None:
        if kind in ("plugin.call", "plugin.answer"):
            allocated_at.append(time.perf_counter())

    for number in range(count):
        place = root / str(number)
        # A real kubelet looks at its node every 10 s.
        settings = Settings(node_status_update_s=10.0)
        kubelets.append(KubeletService(place, settings=settings, on_record=record))
        plugins.append(_Plugin(place, 8 if number else LARGE))
    await asyncio.gather(*(kubelet.start() for kubelet in kubelets))
    await asyncio.gather(*(plugin.start() for plugin in plugins))
    for kubelet in kubelets:
        assert await kubelet.until(partial(_has_healthy, kubelet), 60)
    up_s = time.perf_counter() - began
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    await asyncio.sleep(1.0)
    cpu = time.process_time()
    await asyncio.sleep(IDLE_S)
    idle = (time.process_time() - cpu) / IDLE_S * 100

    changes = []
    for number in range(CHANGES):
        at = number % (count - 1) + 1 if count > 1 else 0
        health = "Unhealthy" if number // max(1, count - 1) % 2 == 0 else "Healthy"
        wanted = 7 if health == "Unhealthy" else 8
        sent = time.perf_counter()
        plugins[at].change(health)
        assert await kubelets[at].until(partial(_has_healthy, kubelets[at], wanted), 10)
        changes.append((time.perf_counter() - sent) * 1000)

    allocates = []
    first = kubelets[0]
    for number in range(ALLOCATES):
        allocated_at.clear()
        name = f"p{number}"
        first.create_pod(_pod(name, LARGE))
        assert await first.until(partial(_is_running, first, name), 10)
        asked, answered = allocated_at
        allocates.append((answered - asked) * 1000)
        first.delete_pod(name, grace_s=0)
        assert await first.until(partial(_is_gone, first, name), 10)

    for plugin in plugins:
        await plugin.stop()
    for kubelet in kubelets:
        await kubelet.close()
    changes.sort()
    return {
        "up_s": up_s,
        "rss_mb": rss_mb,
        "idle_percent": idle,
        "change_p50_ms": statistics.median(changes),
        "change_p99_ms": changes[int(len(changes) * 0.99)],
        "allocate_p50_ms": statistics.median(allocates),
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    # Thousands of directories and sockets: on a slow disk that is all that would be measured.
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fk", dir=memory) as place:
        print(json.dumps(asyncio.run(_measure(count, Path(place)))))


if __name__ == "__main__":
    main()
