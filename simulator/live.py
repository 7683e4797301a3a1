"""A node on the wall clock: real files, sockets, processes, and the API over TLS.

The same wiring and the same cores as in virtual time, on an event loop in a thread of its own, so
that a scenario can act from the calling thread. Owns one directory; everything made lives in it
and `close` removes it. An earlier testbed that was killed there is cleaned up first.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import platform
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from fake_dcmi import host_files, place
from fake_dcmi.asks import Ask
from fake_dcmi.image import FaultEvent, ImageWriter, NodeState
from fake_dcmi.native import NotBuilt
from fake_kubelet import actions
from fake_kubelet.messages import AllocateResponse
from fake_kubelet.server import SocketPathTooLong
from fake_kubelet.shell import KubeletShell
from fake_kubelet.status import NodeIdentity
from simulator import deployment, driver, faces
from simulator.cluster import pki
from simulator.cluster.cluster import Cluster
from simulator.cluster.server import ApiServer
from simulator.control import ControlServer, Handler
from simulator.directory import DESCRIPTION, base_directory
from simulator.driver_socket import DriverSocket
from simulator.errors import HostError, ScenarioError
from simulator.guard import refuse_real_npus
from simulator.hardware import faults
from simulator.hardware.model import FaultEvent as HardwareEvent
from simulator.hardware.model import Process
from simulator.kernel.chance import Chance
from simulator.kernel.clock import Timer, WallClock
from simulator.kernel.journal import Journal
from simulator.node import Node
from simulator.runtime import containerd_config
from simulator.runtime.live import CONFIG, LiveRuntime, detect, end_leftovers
from simulator.scenario.hardware_verbs import change_of
from simulator.scenario.host import host_breaks, make_hardware
from simulator.scenario.kubelet import kubelet_personality, kubelet_settings
from simulator.scenario.schema import InjectFault, Scenario
from simulator.testbed import Change

if TYPE_CHECKING:
    from simulator.kube import Kube
    from simulator.live_probe import LiveProbe

NODE_NAME = "n1"
START_S = 30.0
CALL_S = 30.0
RECHECK_S = 0.25
CONTAINER_MEMORY_MB = 1024  # what a container is taken to use of each chip's memory
READINGS_S = 1.0  # how often readings that move are shown anew
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

T = TypeVar("T")


class LiveTestbed:
    """One live node below `directory`, which must be empty, absent or an earlier testbed's."""

    journal: Journal

    def __init__(
        self, scenario: Scenario, directory: Path, *, seed: int | None = None, port: int = 0
    ) -> None:
        refuse_real_npus()
        self._scenario = scenario
        self._seed = scenario.seed if seed is None else seed
        self.directory = directory.absolute()
        self.root = self.directory / "node"
        self.kubeconfig = self.directory / "kubeconfig"
        self.hardware = make_hardware(scenario, self._seed)
        self.isolation, self.isolation_text = detect()
        self._changed = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="testbed")
        self._journal_file: TextIO | None = None
        self._writer: ImageWriter | None = None
        self._driver: DriverSocket | None = None
        self._hardware_timer: Timer | None = None
        self._released = 0
        self._occupants: dict[tuple[str, str], int] = {}
        self._api: ApiServer | None = None
        self._sockets: KubeletShell | None = None
        self._runtime: LiveRuntime | None = None
        self._kube: Kube | None = None
        self._control: ControlServer | None = None
        # From the directory's making to the `try` below, an interruption would leave it behind.
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            self._lock = _take_directory(self.directory)
        except BaseException:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
            self._loop.close()
            raise
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
            self._thread.start()
            self._call(self._start(port), START_S)
        except BaseException as error:
            self.close()
            if isinstance(error, SocketPathTooLong):
                raise HostError(f"{error}. Next: choose a shorter directory.") from None
            if isinstance(error, NotBuilt):
                raise HostError(str(error)) from None
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise HostError(_os_text(error, self.directory, port)) from None
            raise

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._api.port if self._api else 0}"

    # --- verbs

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait_until(self, claim: Callable[[], bool], within_s: float) -> bool:
        """Looks again at every change of the cluster, and now and then for the files' sake."""
        ends_at = time.monotonic() + within_s
        while True:
            self._changed.clear()
            if claim():
                return True
            left = ends_at - time.monotonic()
            if left <= 0:
                return False
            self._changed.wait(min(left, RECHECK_S))

    def change_hardware(self, kind: str, fields: Mapping[str, Any], change: Change) -> None:
        self._on_loop(lambda: self._change_hardware(kind, fields, change))

    def stop_plugin(self) -> None:
        self._record("plugin.stop")
        self._on_loop(lambda: self._for_plugins(self._node.hold_pod))

    def start_plugin(self) -> None:
        self._record("plugin.start")
        self._on_loop(lambda: self._for_plugins(self._node.release_pod))

    def act_on_kubelet(self, action: actions.Action) -> None:
        def act() -> None:
            self.journal.record("kubelet.action", **actions.shown(action))
            self._node.perform(action)

        try:
            self._on_loop(act)
        except actions.BadAction as error:
            raise ScenarioError(f"{self._scenario.name}: {error}.") from None

    def probe(self) -> LiveProbe:
        # The Kubernetes client takes longer to import than the node to start: only when needed.
        from simulator.kube import Kube
        from simulator.live_probe import LiveProbe

        if self._kube is None:
            self._kube = Kube(self.kubeconfig)
        return LiveProbe(self.root, self._kube, NODE_NAME, self.wait_until)

    def status(self) -> dict[str, Any]:
        """What the node looks like now, for people and programs."""

        def look() -> dict[str, Any]:
            node = self._cluster.store.find("nodes", NODE_NAME) or {}
            status = node.get("status") or {}
            return {
                "node": NODE_NAME,
                "capacity": (status.get("capacity") or {}).get(deployment.RESOURCE),
                "allocatable": (status.get("allocatable") or {}).get(deployment.RESOURCE),
                "cards": [
                    {
                        "card": card.card_id,
                        "chip": card.device_id,
                        "health": faults.HEALTH_WORDS[card.health],
                        "dropped": card.is_dropped,
                        "faults": [f"{code:08X}" for code in card.faults],
                    }
                    for card in self.hardware
                ],
                "pods": [
                    {
                        "namespace": pod["metadata"]["namespace"],
                        "name": pod["metadata"]["name"],
                        "phase": (pod.get("status") or {}).get("phase"),
                    }
                    for pod in self._cluster.store.list("pods")
                ],
                "runner": self.isolation_text,
            }

        return self._on_loop(look)

    def serve_control(self, handle: Handler) -> None:
        """Let other processes talk to this testbed."""
        self._control = ControlServer(self.directory, handle)
        self._call(self._control.start(), CALL_S)
        description = json.dumps(describe(self))
        pki.write_secret(self.directory / DESCRIPTION, description)

    def close(self) -> None:
        """End every process and remove the directory. Safe to call twice."""
        if self._kube is not None:
            self._kube.close()
            self._kube = None
        if self._thread.is_alive():
            try:
                self._call(self._stop(), START_S)
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
        if not self._loop.is_closed():
            self._loop.close()
        if self._journal_file is not None:
            self._journal_file.close()
            self._journal_file = None
        if not self._lock.closed:
            end_leftovers(self.root)
            _remove(self.directory)
            self._lock.close()

    # --- the runtime's port of the node

    def run_sandbox(self, pod: Mapping[str, Any], handler: str) -> None:
        assert self._runtime is not None
        self._runtime.run_sandbox(pod, handler)

    def start_container(
        self, pod: Mapping[str, Any], name: str, attempt: int, options: AllocateResponse
    ) -> None:
        assert self._runtime is not None
        devices = [(d.host_path, d.container_path) for d in options.devices]
        self._runtime.start_container(pod, name, attempt, envs=options.envs, devices=devices)

    def kill_container(self, uid: str, name: str, grace_s: float) -> None:
        assert self._runtime is not None
        self._runtime.kill_container(uid, name, grace_s)

    def kill_pod(self, uid: str, grace_s: float) -> None:
        assert self._runtime is not None
        self._runtime.kill_pod(uid, grace_s)

    # --- the cards, told who computes on them

    def occupy(self, uid: str, container: str, phy_ids: tuple[int, ...]) -> None:
        assert self._runtime is not None
        pid = self._runtime.pid_of(uid, container)
        process = Process(pid=pid, name=container, memory_mb=CONTAINER_MEMORY_MB)
        self._occupants[uid, container] = pid
        for chip in filter(None, map(self.hardware.by_phy, phy_ids)):
            self.hardware.start_process(chip, process, self._clock.now())
        self._tell([])

    def vacate(self, uid: str, container: str) -> None:
        pid = self._occupants.pop((uid, container), 0)
        for chip in self.hardware:
            self.hardware.end_process(chip, pid, self._clock.now())
        self._tell([])

    # --- inside

    async def _start(self, port: int) -> None:
        scenario, loop = self._scenario, asyncio.get_running_loop()
        clock, chance = WallClock(loop), Chance(self._seed)
        self._journal_file = (self.directory / "journal.jsonl").open("w")
        self.journal = Journal(clock.now, self._journal_file)
        self._clock = clock
        self._place_files()
        identity = pki.make()
        self._cluster = Cluster(
            now=clock.epoch,
            uid=lambda: chance.uid("objects"),
            defer=self._defer,
        )
        self._cluster.store.subscribe(lambda _: self._changed.set())
        behaves_like = kubelet_personality(scenario)
        self._api = ApiServer(
            self._cluster,
            identity,
            logs=self._log,
            now=clock.epoch,
            kubernetes=behaves_like.release,
        )
        await self._api.start(port)
        pki.write_secret(self.kubeconfig, pki.kubeconfig(self.server, identity))
        architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
        self._node = Node(
            NodeIdentity(name=NODE_NAME, architecture=architecture),
            cluster=self._cluster,
            clock=clock,
            chance=chance,
            journal=self.journal,
            settings=kubelet_settings(scenario),
            behaves_like=behaves_like,
        )
        keeps_socket = scenario.kubelet.socket == "present"
        self._sockets = KubeletShell(self.root, self._node.wiring, keeps_socket=keeps_socket)
        self._runtime = LiveRuntime(
            self.root,
            self._node,
            now=clock.epoch,
            isolation=self.isolation,
            platform=f"linux/{architecture}",
            config=self.root / CONFIG,
        )
        await asyncio.to_thread(self._runtime.prepare)
        await self._sockets.serve_https(self._log, accepts=self._api.accepts)
        self._node.attach(self, self._sockets, self)
        store = self._cluster.store
        if scenario.runtime.runtime_class == "present":
            store.create("runtimeclasses", deployment.runtime_class())
        if scenario.plugin.deployed:
            arguments = ["--answer", scenario.plugin.answer]
            if not scenario.plugin.notices_kubelet_restart:
                arguments.append("--ignore-kubelet-restart")
            store.create("daemonsets", deployment.plugin_daemon_set(arguments), "kube-system")
        self._node.start()
        self._driver = DriverSocket(self.root / host_files.IMAGE, self._asked)
        await self._driver.start()
        for fault in scenario.node.faults:
            found = change_of(InjectFault(card=fault.card, code=fault.code, chip=fault.chip))
            assert found is not None
            self._change_hardware(*found)

    def _defer(self, action: Callable[[], None]) -> None:
        self._loop.call_soon(action)

    async def _stop(self) -> None:
        if self._control is not None:
            await self._control.stop()
        if self._runtime is not None:
            await self._runtime.close()
        if self._sockets is not None:
            await self._sockets.close()
        if self._api is not None:
            await self._api.stop()
        if self._driver is not None:
            await self._driver.stop()
        if self._hardware_timer is not None:
            self._hardware_timer.cancel()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        current = asyncio.current_task()
        rest = [task for task in asyncio.all_tasks() if task is not current]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _place_files(self) -> None:
        files = host_files.plan(
            phy_ids=[chip.phy_id for chip in self.hardware],
            driver_version=self.hardware.driver_version,
            fault_levels=faults.fault_levels(),
            pci=faces.pci_cards(self.hardware),
            has_switch_library=self.hardware.profile.super_pod_size > 0,
            breaks=host_breaks(self._scenario),
        )
        self.device_files = place.materialize(files, self.root)
        boot_id = int(self._clock.epoch())
        self._writer = ImageWriter(
            self.root / host_files.IMAGE, self._image_state(), boot_id=boot_id
        )
        settings = self._scenario.runtime
        text = containerd_config.default_config()
        if settings.handler == "present":
            text = containerd_config.add_handler(
                text,
                deployment.HANDLER,
                deployment.RUNTIME_BINARY,
                make_default=settings.default == "ascend",
            )
        config = self.root / CONFIG
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(text)
        if settings.binary != "missing":
            binary = self.root / deployment.RUNTIME_BINARY.lstrip("/")
            binary.parent.mkdir(parents=True, exist_ok=True)
            interpreter = shlex.quote(sys.executable)
            binary.write_text(f'#!/bin/sh\nexec {interpreter} -m simulator.runtime.program "$@"\n')
            binary.chmod(0o755 if settings.binary == "present" else 0o644)

    def _for_plugins(self, action: Callable[[str], None]) -> None:
        for pod in self._cluster.store.list("pods", "kube-system"):
            if (pod["metadata"].get("labels") or {}).get("name") == deployment.PLUGIN:
                action(str(pod["metadata"]["uid"]))

    def _log(self, namespace: str, name: str, container: str) -> str | None:
        pod = self._cluster.store.find("pods", name, namespace)
        if pod is None or self._runtime is None:
            return None
        return self._runtime.log(pod, container)

    def _change_hardware(self, kind: str, fields: Mapping[str, Any], change: Change) -> None:
        self.journal.record(kind, **fields)
        self._tell(change(self.hardware, self._clock.now()))

    def _image_state(self) -> NodeState:
        now = self._clock.now()
        return faces.image_state(self.hardware, now=now, epoch_s=self._clock.epoch() - now)

    def _tell(self, events: list[HardwareEvent]) -> None:
        """Publish the state, then hand out the events that follow from it."""
        assert self._writer is not None
        self._writer.publish(self._image_state())
        if self._released != self.hardware.releases:
            self._released = self.hardware.releases
            self._writer.release_hanging()
        raised_ms = int(self._clock.epoch() * 1000)
        self._writer.emit(
            [
                FaultEvent(
                    code=event.code,
                    logic_id=event.logic_id,
                    severity=event.severity,
                    assertion=event.assertion,
                    raised_ms=raised_ms,
                )
                for event in events
            ]
        )
        self._await_hardware()

    def _await_hardware(self) -> None:
        """Look again when a boot ends or a fault comes back, and while readings move."""
        if self._hardware_timer is not None:
            self._hardware_timer.cancel()
            self._hardware_timer = None
        now = self._clock.now()
        due = self.hardware.next_change(now)
        delays = [max(0.0, due - now)] if due is not None else []
        if self.hardware.is_moving(now):
            delays.append(READINGS_S)
        if delays:
            self._hardware_timer = self._clock.call_later(min(delays), self._advance_hardware)

    def _advance_hardware(self) -> None:
        self._hardware_timer = None
        events = self.hardware.advance(self._clock.now())
        for event in events:
            self.journal.record(
                "driver.event",
                code=f"{event.code:08X}",
                device=event.logic_id,
                assertion=event.assertion,
            )
        self._tell(events)

    def _asked(self, ask: Ask) -> tuple[int, dict[str, Any]]:
        """A program asked the driver for a change."""
        outcome = driver.carry_out(self.hardware, ask, self._clock.now())
        self.journal.record(
            "driver.ask", function=ask.function, card=ask.card_id, answers=outcome.code
        )
        self._tell([])
        return outcome.code, dict(outcome.values)

    def _record(self, kind: str, **fields: Any) -> None:
        self._on_loop(lambda: self.journal.record(kind, **fields))

    def _on_loop(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return self._call(run(), CALL_S)

    def _call(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(limit_s)


def _take_directory(directory: Path) -> TextIO:
    """Lock the directory for this process, after cleaning up what a killed one left there."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        if directory.is_dir() and any(directory.iterdir()) and not (directory / "lock").exists():
            raise HostError(
                f"{directory}: is not empty and not a testbed's directory. Next: choose another."
            )
        directory.mkdir(mode=0o700, exist_ok=True)
        lock = (directory / "lock").open("a+")
    except OSError as error:
        raise HostError(
            f"{directory}: cannot be used ({error.strerror}). Next: choose a directory you may "
            "write to."
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        owner = lock.read().strip() or "another process"
        lock.close()
        raise HostError(
            f"{directory}: a testbed runs here already (pid {owner}). "
            "Next: npu-testbed down, or another directory."
        ) from None
    end_leftovers(directory / "node")
    for entry in directory.iterdir():
        if entry.name == "lock":
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def clean(directory: Path) -> None:
    """Remove what a killed testbed left in its directory."""
    lock = _take_directory(directory)
    _remove(directory)
    lock.close()


def _remove(directory: Path) -> None:
    """The directory, and the place for testbeds when this was the last one."""
    shutil.rmtree(directory, ignore_errors=True)
    if directory.parent == base_directory():
        with contextlib.suppress(OSError):
            directory.parent.rmdir()


def _os_text(error: OSError, directory: Path, port: int) -> str:
    if error.errno == 98:
        return f"port {port} on 127.0.0.1 is taken. Next: choose another with --port, or 0."
    return f"{directory}: {error.strerror or error}. Next: free the disk or choose another place."


def describe(testbed: LiveTestbed) -> dict[str, Any]:
    """What another process needs to work with a running testbed."""
    return {
        "pid": os.getpid(),
        "server": testbed.server,
        "kubeconfig": str(testbed.kubeconfig),
        "root": str(testbed.root),
        "node": NODE_NAME,
        "cards": len(testbed.hardware),
    }
