"""Containers without processes, for virtual time: the same decisions, modelled outcomes.

Handler, image, OCI config and Ascend edit are the very code the live runner uses; only the program
inside the container is a model. Host programs (the device plugin) are started through a callback.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from simulator.runtime import containerd_config, edit, images, oci, workload

SANDBOX_S = 0.1
START_S = 0.1
RUN_S = 0.05
STOP_S = 0.05

Later = Callable[[float, Callable[[], None]], object]


class Sink(Protocol):
    """Who is told what became of a request."""

    def sandbox_started(self, uid: str) -> None: ...
    def sandbox_failed(self, uid: str, text: str) -> None: ...
    def container_started(self, uid: str, name: str, container_id: str) -> None: ...
    def container_failed(self, uid: str, name: str, reason: str, text: str) -> None: ...
    def container_exited(self, uid: str, name: str, code: int, reason: str) -> None: ...
    def pod_stopped(self, uid: str) -> None: ...


class HostPrograms(Protocol):
    """Programs of the host that a pod stands for."""

    def start(self, uid: str, container: str, exited: Callable[[int], None]) -> None: ...
    def stop(self, uid: str, container: str) -> None: ...


class Machine(Protocol):
    """The node as the runtime finds it."""

    platform: str

    def config_text(self) -> str: ...
    def program_state(self, path: str) -> str: ...
    def host(self) -> edit.Host: ...
    def surroundings(
        self, image: images.Image, devices: tuple[int, ...], *, has_driver: bool
    ) -> workload.Surroundings: ...


@dataclass(slots=True)
class _Container:
    is_running: bool = True
    is_host_program: bool = False


@dataclass(slots=True)
class _Sandbox:
    binary: str
    containers: dict[str, _Container] = field(default_factory=dict)


def start_failure(binary: str, state: str, bundle: str) -> str:
    """What containerd says when the handler's program cannot do its work."""
    head = (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    )
    if state == "missing":
        cause = f"fork/exec {binary}: no such file or directory"
    elif state == "not-executable":
        cause = f"fork/exec {binary}: permission denied"
    else:
        cause = f"{binary} did not terminate successfully: exit status 1"
    return (
        f"{head}unable to retrieve OCI runtime error (open {bundle}/log.json: no such file or "
        f"directory): {cause}: unknown"
    )


def bundle_path(container_id: str) -> str:
    """Where containerd keeps a container's bundle, seen from inside the node."""
    return f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{container_id}"


NO_COMMAND = "failed to generate container spec: failed to generate spec: no command specified"


def command_line(container: Mapping[str, Any], image: images.Image, program: str) -> list[str]:
    """What a container runs: a shell is an image's default arguments, a workload its entrypoint."""
    if image.program == "shell":
        return oci.argv_of(container, entrypoint=(), arguments=("/bin/sh",))
    return oci.argv_of(container, entrypoint=(program,))


class ModelRuntime:
    """`later` runs an action after some seconds of scenario time."""

    def __init__(self, machine: Machine, programs: HostPrograms, sink: Sink, later: Later) -> None:
        self._machine = machine
        self._programs = programs
        self._sink = sink
        self._later = later
        self._sandboxes: dict[str, _Sandbox] = {}
        self._logs: dict[tuple[str, str], str] = {}
        self._runtime_log: list[str] = []

    def run_sandbox(self, pod: Mapping[str, Any], handler: str) -> None:
        uid = str(pod["metadata"]["uid"])
        try:
            config = containerd_config.parse(self._machine.config_text())
            found = config.resolve(handler)
        except containerd_config.UnknownHandler as error:
            text = f"failed to get sandbox runtime: {error}"
            self._later(SANDBOX_S, lambda: self._sink.sandbox_failed(uid, text))
            return
        state = self._machine.program_state(found.binary)
        if state != "ok":
            text = start_failure(found.binary, state, bundle_path(uid))
            self._later(SANDBOX_S, lambda: self._sink.sandbox_failed(uid, text))
            return
        self._sandboxes[uid] = _Sandbox(binary=found.binary)
        self._later(SANDBOX_S, lambda: self._sink.sandbox_started(uid))

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
        sandbox = self._sandboxes[uid]
        container = next(
            c
            for group in ("initContainers", "containers")
            for c in pod["spec"].get(group) or ()
            if c["name"] == name
        )
        container_id = f"{uid}-{name}-{attempt}"
        try:
            image = images.find(str(container["image"]), self._machine.platform)
        except images.ImageError as error:
            text = str(error)
            self._later(
                START_S, lambda: self._sink.container_failed(uid, name, "ErrImagePull", text)
            )
            return
        argv = command_line(container, image, image.program)
        if not argv:
            failed = self._sink.container_failed
            self._later(START_S, lambda: failed(uid, name, "CreateContainerError", NO_COMMAND))
            return
        spec = oci.container_spec(
            pod,
            container,
            argv=argv,
            rootfs="rootfs",
            envs=envs,
            image_env={},
            container_id=container_id,
        )
        try:
            for source, target in devices:
                edit.add_node(spec, source, target, self._machine.host(), "")
        except edit.EditError as error:
            reason, text = "CreateContainerError", str(error)
            self._later(START_S, lambda: self._sink.container_failed(uid, name, reason, text))
            return
        if sandbox.binary != containerd_config.DEFAULT_BINARY:
            try:
                spec = edit.edit(spec, self._machine.host())
            except edit.EditError as error:
                self._runtime_log.append(f"failed to modify spec file: {error}")
                text = start_failure(sandbox.binary, "ok", bundle_path(container_id))
                self._later(
                    START_S, lambda: self._sink.container_failed(uid, name, "StartError", text)
                )
                return
        sandbox.containers[name] = _Container(is_host_program=image.program == "host")
        self._later(START_S, lambda: self._started(uid, name, container_id, image, spec))

    def kill_container(self, uid: str, name: str) -> None:
        self._later(STOP_S, lambda: self._ended(uid, name, 137))

    def kill_pod(self, uid: str) -> None:
        self._later(STOP_S, lambda: self._stopped(uid))

    def log(self, uid: str, name: str) -> str:
        return self._logs.get((uid, name), "")

    def add_log(self, uid: str, name: str, text: str) -> None:
        """Output of a host program."""
        self._logs[uid, name] = self._logs.get((uid, name), "") + text

    def _started(
        self, uid: str, name: str, container_id: str, image: images.Image, spec: dict[str, Any]
    ) -> None:
        sandbox = self._sandboxes.get(uid)
        if sandbox is None or name not in sandbox.containers:
            return
        self._logs[uid, name] = ""
        self._sink.container_started(uid, name, f"containerd://{container_id}")
        if image.program == "host":
            self._programs.start(uid, name, lambda code: self._ended(uid, name, code))
            return
        outcome = self._outcome(image, spec)
        self.add_log(uid, name, outcome.output)
        container = sandbox.containers[name]

        def end() -> None:
            if sandbox.containers.get(name) is container:  # not one that came after it
                self._ended(uid, name, outcome.exit_code)

        if outcome.runs_s < math.inf:
            self._later(RUN_S + outcome.runs_s, end)

    def _outcome(self, image: images.Image, spec: dict[str, Any]) -> workload.Outcome:
        argv = spec["process"]["args"]
        if image.program == "shell":
            return _shell(argv)
        devices = tuple(
            dict.fromkeys(
                int(device["path"].removeprefix("/dev/davinci"))
                for device in spec["linux"]["devices"]
                if device["path"].removeprefix("/dev/davinci").isdecimal()
            )
        )
        has_driver = any(m["destination"] == edit.DRIVER_PATHS[0] for m in spec["mounts"])
        around = self._machine.surroundings(image, devices, has_driver=has_driver)
        return workload.run(argv[1:], around)

    def _ended(self, uid: str, name: str, code: int) -> None:
        sandbox = self._sandboxes.get(uid)
        container = sandbox.containers.get(name) if sandbox else None
        if container is None or not container.is_running:
            return
        container.is_running = False
        if container.is_host_program:
            self._programs.stop(uid, name)
        self._sink.container_exited(uid, name, code, "Completed" if code == 0 else "Error")

    def _stopped(self, uid: str) -> None:
        sandbox = self._sandboxes.get(uid)
        if sandbox is not None:
            for name in list(sandbox.containers):
                self._ended(uid, name, 137)
            self._sandboxes.pop(uid, None)
        self._sink.pod_stopped(uid)


def _shell(argv: list[str]) -> workload.Outcome:
    """Just enough of a shell for a model: `echo TEXT`, `sleep N` and `exit N`, in a row or bare."""
    is_script = len(argv) > 2 and argv[0].rpartition("/")[2] == "sh" and argv[1] == "-c"
    script = argv[2] if is_script else " ".join(argv)
    output, code, runs_s = "", 0, 0.0
    for command in script.split(";"):
        word, _, rest = command.strip().removeprefix("exec ").partition(" ")
        if word == "echo":
            output += rest.strip("'\"") + "\n"
        elif word == "exit":
            code = int(rest) if rest.isdecimal() else 2
            break
        elif word == "sleep":
            try:
                runs_s += float(rest)
            except ValueError:
                output += f"sleep: invalid time interval '{rest}'\n"
                code = 1
    return workload.Outcome(exit_code=code, output=output, runs_s=max(0.0, runs_s))
