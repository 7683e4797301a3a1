"""Containers as processes: handler -> BinaryName -> OCI bundle -> runc, or no isolation at all.

Owns every process, bundle and log it makes; `close` ends and removes them all. Where root and runc
are there, containers are real ones. Elsewhere the handler's program still edits a real bundle, and
the command runs as a plain process that is shown the granted device files only; it says so. The
testbed becomes the reaper of containers' processes, as containerd's shim is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fake_dcmi import native
from simulator.runtime import containerd_config, cri_log, edit, images, oci, rootfs
from simulator.runtime.model import (
    NO_COMMAND,
    Sink,
    bundle_path,
    command_line,
    start_failure,
)
from simulator.runtime.program import host

Isolation = Literal["runc", "none"]

_PR_SET_CHILD_SUBREAPER = 36
_DRAIN_S = 1.0
_HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONFIG = "etc/containerd/config.toml"
CGROUP = "npu-testbed"
# Environment variable that marks every plain process of a node, so that a later start finds them.
RUN_MARK = "NPU_TESTBED_RUN"


def detect() -> tuple[Isolation, str]:
    """What this machine can do, and why."""
    if os.geteuid() != 0:
        return "none", "not root: commands run without isolation (runc needs root)"
    runc = shutil.which("runc", path=_HOST_PATH)
    if runc is None:
        return "none", "no runc: commands run without isolation (apt-get install runc)"
    return "runc", f"containers run in {runc}"


@dataclass(slots=True, kw_only=True)
class _Container:
    container_id: str
    pid: int = 0
    is_runc: bool = False
    bundle: Path | None = None
    exited: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, kw_only=True)
class _Sandbox:
    pod: Mapping[str, Any]
    handler: containerd_config.Handler
    containers: dict[str, _Container] = field(default_factory=dict)


# Tells the driver's library that it is in a container, where it shows the container's cards only.
CONTAINER_MARK = "NPU_TESTBED_CONTAINER"


class LiveRuntime:
    """Below `root`, the node's root directory. Methods must be called on the event loop."""

    def __init__(
        self,
        root: Path,
        sink: Sink,
        *,
        now: Callable[[], float],
        isolation: Isolation,
        platform: str,
        config: Path,
    ) -> None:
        self._root = root
        self._sink = sink
        self._now = now
        self.isolation = isolation
        self._platform = platform
        self._config = config
        self._sandboxes: dict[str, _Sandbox] = {}
        self._attempts: dict[tuple[str, str], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Children that asyncio itself waits for, by pid.
        self._plain: dict[int, asyncio.subprocess.Process] = {}
        self._state = root / "run/runc"
        self._rootfs = root / "var/lib/npu-testbed/rootfs"
        self._tools = root / "var/lib/npu-testbed/bin"
        if isolation == "runc":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def prepare(self) -> None:
        """Make what containers are made from."""
        self._tools.mkdir(parents=True, exist_ok=True)
        if self.isolation == "runc":
            rootfs.build(self._rootfs)
            return
        # The handler's program ends by becoming the low-level runtime: here one that does nothing.
        stub = self._tools / "runc"
        stub.write_text("#!/bin/sh\nexit 0\n")
        stub.chmod(0o755)

    # --- the node's port

    def run_sandbox(self, pod: Mapping[str, Any], handler: str) -> None:
        uid = str(pod["metadata"]["uid"])
        try:
            found = containerd_config.parse(self._config.read_text()).resolve(handler)
        except (containerd_config.UnknownHandler, containerd_config.BadConfig, OSError) as error:
            self._soon(self._sink.sandbox_failed, uid, f"failed to get sandbox runtime: {error}")
            return
        state = program_state(self._root, found.binary)
        if state != "ok":
            text = start_failure(found.binary, state, bundle_path(uid))
            self._soon(self._sink.sandbox_failed, uid, text)
            return
        self._sandboxes[uid] = _Sandbox(pod=pod, handler=found)
        self._soon(self._sink.sandbox_started, uid)

    def start_container(
        self,
        pod: Mapping[str, Any],
        name: str,
        attempt: int,
        *,
        envs: Mapping[str, str],
        devices: Sequence[tuple[str, str]],
    ) -> None:
        """`devices` are (host path, container path) pairs that the plugin named itself."""
        uid = str(pod["metadata"]["uid"])
        self._attempts[uid, name] = attempt
        self._spawn(self._start(pod, uid, name, attempt, envs, devices))

    def kill_container(self, uid: str, name: str, grace_s: float) -> None:
        sandbox = self._sandboxes.get(uid)
        if sandbox is not None and name in sandbox.containers:
            self._spawn(self._kill(sandbox.containers[name], grace_s))

    def kill_pod(self, uid: str, grace_s: float) -> None:
        self._spawn(self._stop_pod(uid, grace_s))

    def log(self, pod: Mapping[str, Any], name: str) -> str | None:
        """What the container's present attempt has written so far."""
        return cri_log.read(self._log_path(pod, name))

    def pid_of(self, uid: str, name: str) -> int:
        """The process of a running container, 0 when there is none."""
        sandbox = self._sandboxes.get(uid)
        made = sandbox.containers.get(name) if sandbox is not None else None
        return made.pid if made is not None else 0

    def pids(self) -> list[int]:
        """Every container process now running."""
        return [
            container.pid
            for sandbox in self._sandboxes.values()
            for container in sandbox.containers.values()
            if container.pid and not container.exited.is_set()
        ]

    async def close(self) -> None:
        """End every container and remove what it left."""
        await asyncio.gather(
            *(self._stop_pod(uid, 2.0) for uid in list(self._sandboxes)), return_exceptions=True
        )
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.isolation == "runc":
            remove_cgroups()

    # --- inside

    async def _start(
        self,
        pod: Mapping[str, Any],
        uid: str,
        name: str,
        attempt: int,
        envs: Mapping[str, str],
        devices: Sequence[tuple[str, str]],
    ) -> None:
        sandbox = self._sandboxes.get(uid)
        if sandbox is None:
            return
        container = next(
            c
            for group in ("initContainers", "containers")
            for c in pod["spec"].get(group) or ()
            if c["name"] == name
        )
        try:
            image = images.find(str(container["image"]), self._platform)
        except images.ImageError as error:
            self._sink.container_failed(uid, name, "ErrImagePull", str(error))
            return
        made = _Container(container_id=f"{uid}-{name}-{attempt}")
        sandbox.containers[name] = made
        writer = cri_log.Writer(self._log_path(pod, name), self._now)
        try:
            if image.program == "host":
                read_end = await self._run_host_program(made, container)
            else:
                read_end = await self._run(made, sandbox, container, image, envs, devices)
        except _StartFailed as failure:
            writer.close()
            made.exited.set()
            self._remove(made)
            self._sink.container_failed(uid, name, failure.reason, str(failure))
            return
        self._sink.container_started(uid, name, f"containerd://{made.container_id}")
        code = await self._wait(made, read_end, writer)
        await self._delete(made)
        made.exited.set()
        self._sink.container_exited(uid, name, code, "")

    async def _run(
        self,
        made: _Container,
        sandbox: _Sandbox,
        container: Mapping[str, Any],
        image: images.Image,
        envs: Mapping[str, str],
        devices: Sequence[tuple[str, str]],
    ) -> int:
        """Bundle, edit, process; returns the read end of the container's output."""
        bundle = self._root / bundle_path(made.container_id).lstrip("/")
        made.bundle = bundle
        program = rootfs.WORKLOAD if image.program == "vector-add" else "/bin/sh"
        if self.isolation == "none" and image.program == "vector-add":
            program = str(native.find("simulator.runtime", "npu-vector-add"))
        argv = command_line(container, image, program)
        if not argv:
            raise _StartFailed("CreateContainerError", NO_COMMAND)
        spec = oci.container_spec(
            sandbox.pod,
            container,
            argv=argv,
            rootfs="rootfs",
            envs=envs,
            image_env={"NPU_IMAGE_CANN": image.cann, "NPU_IMAGE_NEEDS_DRIVER": image.needs_driver}
            | {CONTAINER_MARK: made.container_id}
            if image.cann
            else {},
            container_id=made.container_id,
        )
        try:
            for source, target in devices:
                edit.add_node(spec, source, target, host(str(self._root)), "")
        except edit.EditError as error:
            raise _StartFailed("CreateContainerError", str(error)) from None
        await asyncio.to_thread(self._write_bundle, bundle, spec)
        made.is_runc = self.isolation == "runc"
        read_end, write_end = os.pipe()
        try:
            await self._create(made, sandbox.handler, bundle, write_end)
            if self.isolation == "none":
                edited = json.loads((bundle / "config.json").read_text())
                made.pid = await self._spawn_plain(edited, bundle, write_end)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        return read_end

    def _write_bundle(self, bundle: Path, spec: Mapping[str, Any]) -> None:
        bundle.mkdir(parents=True)
        if self.isolation == "runc":
            shutil.copytree(self._rootfs, bundle / "rootfs", symlinks=True)
        descriptor = os.open(bundle / "config.json", os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(spec, file)

    async def _create(
        self, made: _Container, handler: containerd_config.Handler, bundle: Path, output: int
    ) -> None:
        """Call BinaryName as containerd's shim does: create, then start."""
        is_runc_itself = "/" not in handler.binary
        if is_runc_itself and self.isolation == "none":
            return
        binary = handler.binary
        command = binary if is_runc_itself else str(self._root / binary.lstrip("/"))
        log = bundle / "log.json"
        common = ["--root", str(self._state), "--log", str(log), "--log-format", "json"]
        path = f"{self._tools}:{_HOST_PATH}" if self.isolation == "none" else _HOST_PATH
        driver = self._root / "usr/local/Ascend/driver/lib64/driver"
        environment = {
            "PATH": path,
            "LD_LIBRARY_PATH": str(driver),
            "NPU_TESTBED_ROOT": str(self._root),
        }
        pid_file = bundle / "init.pid"
        verbs = [["create", "--bundle", str(bundle), "--pid-file", str(pid_file)]]
        if self.isolation == "runc":
            verbs.append(["start"])
        for words in verbs:
            try:
                process = await asyncio.create_subprocess_exec(
                    command,
                    *common,
                    *words,
                    made.container_id,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output if words[0] == "create" else asyncio.subprocess.DEVNULL,
                    env=environment,
                )
            except OSError as error:
                state = "missing" if isinstance(error, FileNotFoundError) else "not-executable"
                text = start_failure(binary, state, bundle_path(made.container_id))
                raise _StartFailed("StartError", text) from None
            if await process.wait() != 0:
                raise _StartFailed("StartError", _runtime_error(log, binary, made.container_id))
        if self.isolation == "runc":
            made.pid = int(pid_file.read_text())

    async def _spawn_plain(self, spec: Mapping[str, Any], bundle: Path, output: int) -> int:
        """The command without isolation: host paths instead of mounts, a /dev of its own."""
        devices = bundle / "dev"
        devices.mkdir()
        for device in spec["linux"]["devices"]:
            source = device.get("source") or str(self._root / device["path"].lstrip("/"))
            link = devices / Path(device["path"]).name
            link.unlink(missing_ok=True)
            link.symlink_to(source)
        sources = {mount["destination"]: mount["source"] for mount in spec["mounts"]}
        environment = dict(entry.split("=", 1) for entry in spec["process"]["env"])
        search = environment.get("LD_LIBRARY_PATH", "")
        environment["LD_LIBRARY_PATH"] = ":".join(
            _outside(path, sources) for path in search.split(":") if path
        )
        environment["NPU_TESTBED_DEV"] = str(devices)
        environment["NPU_TESTBED_PRIVILEGED"] = "0"
        environment[RUN_MARK] = str(self._root)
        argv = spec["process"]["args"]
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=str(bundle),
                start_new_session=True,
            )
        except OSError as error:
            text = (
                "failed to create containerd task: failed to create shim task: OCI runtime create "
                "failed: runc create failed: unable to start container process: exec: "
                f'"{argv[0]}": {(error.strerror or "").lower()}: unknown'
            )
            raise _StartFailed("StartError", text) from None
        self._plain[process.pid] = process
        return process.pid

    async def _run_host_program(self, made: _Container, container: Mapping[str, Any]) -> int:
        """The device plugin: a program of the node itself, in a session of its own."""
        read_end, write_end = os.pipe()
        arguments = [str(word) for word in container.get("args") or ()]
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "simulator.plugin.process", "--root", str(self._root)),
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                env=os.environ | {"PYTHONUNBUFFERED": "1", RUN_MARK: str(self._root)},
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        made.pid = process.pid
        self._plain[process.pid] = process
        return read_end

    async def _wait(self, made: _Container, read_end: int, writer: cri_log.Writer) -> int:
        """Copy the output, wait for the process; returns the exit code."""
        loop = asyncio.get_running_loop()
        is_drained = asyncio.Event()

        def copy() -> None:
            data = b""
            with contextlib.suppress(BlockingIOError, OSError):
                data = os.read(read_end, 65536)
            if data:
                writer.feed(data)
            else:
                loop.remove_reader(read_end)
                is_drained.set()

        os.set_blocking(read_end, False)
        loop.add_reader(read_end, copy)
        try:
            process = self._plain.pop(made.pid, None)
            code = await (process.wait() if process is not None else _reap(made.pid))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(is_drained.wait(), _DRAIN_S)
        finally:
            loop.remove_reader(read_end)
            os.close(read_end)
            writer.close()
        return 128 - code if code < 0 else code

    async def _kill(self, made: _Container, grace_s: float) -> None:
        if made.exited.is_set():
            return
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
            if made.pid:
                _signal(made, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(made.exited.wait(), wait_s)
                return

    async def _stop_pod(self, uid: str, grace_s: float) -> None:
        sandbox = self._sandboxes.get(uid)
        if sandbox is not None:
            await asyncio.gather(
                *(self._kill(made, grace_s) for made in sandbox.containers.values())
            )
            self._sandboxes.pop(uid, None)
        self._sink.pod_stopped(uid)

    async def _delete(self, made: _Container) -> None:
        if made.is_runc:
            process = await asyncio.create_subprocess_exec(
                *("runc", "--root", str(self._state), "delete", "--force", made.container_id),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={"PATH": _HOST_PATH},
            )
            await process.wait()
        await asyncio.to_thread(self._remove, made)

    @staticmethod
    def _remove(made: _Container) -> None:
        if made.bundle is not None:
            shutil.rmtree(made.bundle, ignore_errors=True)

    def _log_path(self, pod: Mapping[str, Any], name: str) -> Path:
        metadata = pod["metadata"]
        attempt = self._attempts.get((str(metadata["uid"]), name), 0)
        place = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        return self._root / "var/log/pods" / place / name / f"{attempt}.log"

    def _soon(self, function: Callable[..., None], *arguments: Any) -> None:
        asyncio.get_running_loop().call_soon(function, *arguments)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "container work failed", "exception": task.exception(), "task": task}
            )


class _StartFailed(Exception):
    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def program_state(root: Path, binary: str) -> str:
    """Whether a handler's program can be executed: ok, missing or not-executable."""
    if "/" not in binary:
        return "ok"
    path = root / binary.lstrip("/")
    if not path.is_file():
        return "missing"
    return "ok" if path.stat().st_mode & 0o111 and os.access(path, os.X_OK) else "not-executable"


def end_leftovers(root: Path) -> list[int]:
    """Kill what an earlier testbed at `root` left when it was killed; returns the pids."""
    mark = f"{RUN_MARK}={root}".encode()
    ended = []
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal() or int(place.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in (place / "environ").read_bytes().split(b"\0"):
                os.kill(int(place.name), signal.SIGKILL)
                ended.append(int(place.name))
    state = root / "run/runc"
    runc = shutil.which("runc", path=_HOST_PATH)
    if runc is not None and state.is_dir():
        for container in state.iterdir():
            command = [runc, "--root", str(state), "delete", "--force", container.name]
            subprocess.run(command, capture_output=True, check=False, timeout=20)
        remove_cgroups()
    return ended


def remove_cgroups() -> None:
    """The empty cgroup directories that runc leaves at our own prefix."""
    for place in (
        *Path("/sys/fs/cgroup").glob(CGROUP),
        *Path("/sys/fs/cgroup").glob(f"*/{CGROUP}"),
    ):
        for child in sorted(place.rglob("*"), reverse=True):
            if child.is_dir():
                with contextlib.suppress(OSError):
                    child.rmdir()
        with contextlib.suppress(OSError):
            place.rmdir()


def _runtime_error(log: Path, binary: str, container_id: str) -> str:
    """What containerd makes of a runtime that failed: its log's last error, else that it ended."""
    with contextlib.suppress(OSError, ValueError):
        messages = [json.loads(line) for line in log.read_text().splitlines()]
        errors = [entry["msg"] for entry in messages if entry.get("level") == "error"]
        if errors:
            return (
                "failed to create containerd task: failed to create shim task: OCI runtime create "
                f"failed: {errors[-1]}: unknown"
            )
    return start_failure(binary, "ok", bundle_path(container_id))


def _outside(path: str, sources: Mapping[str, str]) -> str:
    """A container path as the host path that is mounted there."""
    for inside, outside in sources.items():
        if path == inside or path.startswith(f"{inside}/"):
            return outside + path[len(inside) :]
    return path


def _signal(made: _Container, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if made.is_runc:
            os.kill(made.pid, number)
        else:
            os.killpg(made.pid, number)


async def _reap(pid: int) -> int:
    """Wait for a container's first process, which runc left to us."""
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(pid)
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
