"""A kubelet of its own, with real sockets and nothing else around it.

`KubeletService` lives on a running event loop, any number of them in one process; `FakeKubelet`
runs one in a thread for tests that are not asynchronous. Records of everything that passes between
kubelet and plugin go to `on_record(kind, fields)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fake_kubelet import actions
from fake_kubelet.kubelet import Kubelet, Settings
from fake_kubelet.manifests import Manifests
from fake_kubelet.messages import AllocateResponse
from fake_kubelet.model import ModelApi, ModelRuntime
from fake_kubelet.personality import DEFAULT_VERSION, personality
from fake_kubelet.shell import KubeletShell
from fake_kubelet.status import NodeIdentity
from fake_kubelet.wiring import Listener, Wiring

CALL_S = 30.0

T = TypeVar("T")


class _LoopClock:
    """Seconds of the event loop since the service was made."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._began = loop.time()

    def now(self) -> float:
        return self._loop.time() - self._began

    def call_later(self, delay_s: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, action)


class KubeletService:
    """One kubelet below `root`. Made and used on a running event loop; raises UnknownPersonality,
    SocketPathTooLong and OSError. `seed` decides every choice a kubelet leaves to chance."""

    def __init__(
        self,
        root: Path,
        *,
        name: str = "n1",
        version: str = DEFAULT_VERSION,
        switches: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        seed: int = 1,
        on_record: Listener = lambda kind, fields: None,
    ) -> None:
        self.root = root
        self._clock = _LoopClock(asyncio.get_running_loop())
        self._rng = random.Random(seed)
        self._changes = asyncio.Event()
        self._on_record = on_record
        self.kubelet = Kubelet(
            NodeIdentity(name=name),
            rng=self._rng,
            handler_of=lambda runtime_class: runtime_class or "",
            epoch_s=time.time(),
            settings=settings,
            behaves_like=personality(version, switches),
        )
        self.wiring = Wiring(self.kubelet, self._clock, self._record)
        self.api = ModelApi(self.wiring, self._changes.set)
        self.runtime = ModelRuntime(self.wiring, self._clock)
        self.shell = KubeletShell(root, self.wiring)
        self.wiring.attach(self.shell, self.runtime, self.api)
        self._manifests = Manifests(
            root, self, lambda file, why: self._record("manifest.bad", {"file": file, "why": why})
        )

    async def start(self, *, https_port: int | None = None) -> None:
        """Listen; with `https_port` (0: any) also on HTTPS. Raises OSError."""
        if https_port is not None:
            await self.shell.serve_https(self._log, https_port)
        self.wiring.boot()
        await self.shell.opened()
        self._manifests.open()

    async def close(self) -> None:
        """Stop; no socket stays behind."""
        self._manifests.close()
        self.wiring.apply(self.kubelet.stop(self._clock.now()))
        self.wiring.close()
        await self.shell.close()

    # --- what can be done

    def create_pod(self, pod: Mapping[str, Any]) -> str:
        """Bind a pod to this node; returns its uid. Raises ValueError for one that is none."""
        try:
            named = {c["name"] for c in pod["spec"]["containers"]}
            name = str(pod["metadata"]["name"])
        except (KeyError, TypeError):
            raise ValueError(
                "not a pod: wanted metadata.name and spec.containers, each with a name"
            ) from None
        if not named:
            raise ValueError(f"pod {name} has no containers")
        uid = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        self.api.create(pod, uid)
        return uid

    def delete_pod(self, name: str, namespace: str = "default", *, grace_s: float = 30.0) -> None:
        """Raises KeyError for a pod that is not there."""
        self.api.delete(namespace, name, grace_s)

    def exit_container(
        self, name: str, container: str, code: int = 0, namespace: str = "default"
    ) -> bool:
        """End a running container; False when it does not run."""
        uid = str(self.api.pods[namespace, name]["metadata"]["uid"])
        return self.runtime.exit(uid, container, code)

    def perform(self, action: actions.Action) -> None:
        """Do one of `fake_kubelet.actions`. Raises BadAction."""
        self._record("action", actions.shown(action))
        actions.perform(action, self.wiring, self.api.force_delete)

    # --- what can be seen

    def counts(self, resource: str) -> tuple[int, int] | None:
        """Capacity and allocatable in the node object; None when the resource is not there."""
        status = self.api.node.get("status") or {}
        if resource not in status.get("capacity", {}):
            return None
        return int(status["capacity"][resource]), int(status["allocatable"][resource])

    def has_pod(self, name: str, namespace: str = "default") -> bool:
        return (namespace, name) in self.api.pods

    def pod(self, name: str, namespace: str = "default") -> Mapping[str, Any] | None:
        return self.api.pods.get((namespace, name))

    def phase(self, name: str, namespace: str = "default") -> str | None:
        pod = self.pod(name, namespace)
        return None if pod is None else str(pod["status"].get("phase"))

    def given(
        self, name: str, container: str, namespace: str = "default"
    ) -> AllocateResponse | None:
        """What a container was last started with."""
        pod = self.pod(name, namespace)
        uid = "" if pod is None else str(pod["metadata"]["uid"])
        return self.runtime.options.get((uid, container))

    def status(self) -> dict[str, Any]:
        """Everything of interest, as plain values."""
        node = self.api.node.get("status") or {}
        extended = {
            part: {name: int(n) for name, n in node.get(part, {}).items() if "/" in name}
            for part in ("capacity", "allocatable")
        }
        devices = self.kubelet.devices
        return {
            "version": self.kubelet.personality.version,
            "up": self.kubelet.is_up,
            **extended,
            "pods": {
                f"{namespace}/{name}": {
                    "phase": pod["status"].get("phase"),
                    "message": pod["status"].get("message", ""),
                    "devices": {
                        container: {r: list(h.ids) for r, h in resources.items()}
                        for container, resources in devices.holdings(
                            str(pod["metadata"]["uid"])
                        ).items()
                    },
                }
                for (namespace, name), pod in sorted(self.api.pods.items())
            },
            "waiting_for_admission": self.kubelet.queued,
            "open_streams": self.kubelet.links.open_streams(),
            "leaked": {name: sorted(ids) for name, ids in devices.leaked().items()},
            "held_twice": {
                f"{resource} {one}": list(uids)
                for (resource, one), uids in self.kubelet.held_twice().items()
            },
        }

    async def until(self, claim: Callable[[], bool], within_s: float = 10.0) -> bool:
        """Wait for a claim, looked at after every change; False when it never held."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not claim():
                    self._changes.clear()
                    await self._changes.wait()
                return True
        return claim()

    # --- inside

    def _record(self, kind: str, fields: Mapping[str, Any]) -> None:
        self._changes.set()
        self._on_record(kind, fields)

    def _log(self, namespace: str, name: str, container: str) -> str | None:
        pod = self.pod(name, namespace)
        return None if pod is None else self.runtime.log(str(pod["metadata"]["uid"]), container)


class FakeKubelet:
    """A kubelet in a thread, for tests that are not asynchronous: `with FakeKubelet(root) as k:`.

    Takes what `KubeletService` takes; `call` runs a function of the service on its loop."""

    def __init__(self, root: Path, *, https_port: int | None = None, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-kubelet")
        self._thread.start()

        async def make() -> KubeletService:
            service = KubeletService(root, **options)
            try:
                await service.start(https_port=https_port)
            except BaseException:
                await service.close()
                raise
            return service

        try:
            self._service = self._run(make())
        except BaseException:
            self._end_thread()
            raise

    def __enter__(self) -> FakeKubelet:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and leave no socket behind. Safe to call twice."""
        if self._thread.is_alive():
            self._run(self._service.close())
            self._end_thread()

    def call(self, work: Callable[[KubeletService], T]) -> T:
        """`kubelet.call(lambda k: k.counts("example.com/gpu"))`."""

        async def run() -> T:
            return work(self._service)

        return self._run(run())

    def until(self, claim: Callable[[KubeletService], bool], within_s: float = 10.0) -> bool:
        """Wait for a claim; False when it never held within so many seconds."""
        service = self._service
        return self._run(service.until(lambda: claim(service), within_s), within_s + CALL_S)

    def _run(self, work: Coroutine[Any, Any, T], limit_s: float = CALL_S) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(limit_s)

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
