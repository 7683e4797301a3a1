"""A node in virtual time: every core wired directly, no socket, file, thread or process.

Owns the model of the host (driver package, containerd's files) and the adapters between rooms that
only exist here. The same seed and scenario give the same journal, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fake_dcmi.host_files import FOREIGN_UID, SHARED_DEVICES
from fake_kubelet import actions
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
from fake_kubelet.messages import (
    Allocate,
    AllocateResponse,
    Ask,
    CallFailed,
    Device,
    DeviceSpec,
    PluginOptions,
    RegisterRequest,
)
from fake_kubelet.messages import Answer as PluginAnswer
from fake_kubelet.status import NodeIdentity
from simulator import deployment
from simulator.cluster.cluster import Cluster
from simulator.cluster.errors import ApiError
from simulator.errors import ScenarioError
from simulator.gates import Answer, ApiRefused, CardState, ConfiguredRuntime, Object
from simulator.hardware import faults
from simulator.hardware.dcmi import ModelDcmi
from simulator.hardware.faults import HEALTH_WORDS
from simulator.hardware.model import FaultEvent, Hardware, Process
from simulator.hardware.script import CallScript
from simulator.kernel.chance import Chance
from simulator.kernel.clock import Timer, VirtualClock
from simulator.kernel.journal import Journal
from simulator.node import Node
from simulator.plugin import library
from simulator.plugin.core import AllocateError, PluginCore, PluginDevice, PluginSettings
from simulator.plugin.model import PluginModel
from simulator.plugin.survey import DriverFailure, Survey, survey
from simulator.runtime import containerd_config, edit, images, workload
from simulator.runtime.model import ModelRuntime
from simulator.scenario import verbs
from simulator.scenario.host import host_breaks, make_hardware
from simulator.scenario.kubelet import kubelet_personality, kubelet_settings
from simulator.scenario.schema import InjectFault, Scenario
from simulator.testbed import Change

NODE_NAME = "n1"
LIBRARY_PLACE = f"{library.DRIVER_DIRECTORIES[1]}/{library.LIBRARY}"
KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
FIRST_PID = 10_000
CONTAINER_MEMORY_MB = 1024  # what a container is taken to use of each chip's memory
CONFIG_PATH = "/etc/containerd/config.toml"


_LOST = "rpc error: code = Unavailable desc = error reading from server: EOF"


class SimHost:
    """The host's files, as far as anyone looks at them."""

    def __init__(self, scenario: Scenario, hardware: Hardware, now: Callable[[], float]) -> None:
        self._now = now
        self.platform = "linux/amd64"
        self._breaks = host_breaks(scenario)
        self.has_kubelet_socket = False
        self._hardware = hardware
        self._binary = scenario.runtime.binary
        text = containerd_config.default_config()
        if scenario.runtime.handler == "present":
            text = containerd_config.add_handler(
                text,
                deployment.HANDLER,
                deployment.RUNTIME_BINARY,
                make_default=scenario.runtime.default == "ascend",
            )
        self._config = text

    def config_text(self) -> str:
        return self._config

    def program_state(self, path: str) -> str:
        if path != deployment.RUNTIME_BINARY:
            return "ok"
        return "ok" if self._binary == "present" else self._binary

    def file(self, path: str) -> library.FileFact | None:
        """Owner and mode of a path of the driver package."""
        breaks = self._breaks
        if path == LIBRARY_PLACE:
            if "library-missing" in breaks:
                return None
            mode = 0o100664 if "library-group-writable" in breaks else 0o100644
            return library.FileFact(mode=mode, uid=FOREIGN_UID if "library-owner" in breaks else 0)
        if path == LIBRARY_PLACE.rsplit("/", 1)[0] and "directory-group-writable" in breaks:
            return library.FileFact(mode=0o40775, uid=0)
        is_parent = not path or LIBRARY_PLACE.startswith(f"{path}/")
        return library.FileFact(mode=0o40755, uid=0) if is_parent else None

    def library_refusal(self) -> library.LibraryRefused | None:
        owners = frozenset({0})
        try:
            library.choose(self.file, owners=owners, directories=library.DRIVER_DIRECTORIES)
        except library.LibraryRefused as refusal:
            return refusal
        return None

    def host(self) -> edit.Host:
        return edit.Host(
            device=self._device,
            exists=lambda path: self._has_driver() and path in edit.DRIVER_PATHS,
            source=lambda path: path,
            has_manager=self.library_refusal() is None,
        )

    def surroundings(
        self, image: images.Image, devices: tuple[int, ...], *, has_driver: bool
    ) -> workload.Surroundings:
        dcmi = self.dcmi()
        dcmi.init()
        health = {n: dcmi.health(*dcmi.card_device(dcmi.logic_id(n)[1])[1]) for n in devices}
        return workload.Surroundings(
            devices=devices,
            driver=dcmi.driver_version()[1] if has_driver else None,
            health=health,
            cann=image.cann,
            needs_driver=image.needs_driver,
        )

    def dcmi(self, script: CallScript | None = None) -> ModelDcmi:
        """One process's driver; `script` is its count of scripted calls."""
        return ModelDcmi(
            self._hardware, now=self._now, rules=lambda: self._hardware.rules, script=script
        )

    def _has_driver(self) -> bool:
        return "library-missing" not in self._breaks

    def _device(self, path: str) -> edit.HostNode | None:
        names = {f"/dev/{name}" for name in SHARED_DEVICES}
        if "manager-missing" in self._breaks:
            names.remove("/dev/davinci_manager")
        if not self._breaks & {"devices-missing", "devices-plain"}:
            names |= {f"/dev/davinci{chip.phy_id}" for chip in self._hardware}
        return edit.HostNode(kind="c", major=1, minor=3, mode=0o660) if path in names else None


class SimTestbed:
    """A testbed of one node in virtual time."""

    def __init__(self, scenario: Scenario, *, seed: int | None = None) -> None:
        self._scenario = scenario
        self.clock = VirtualClock()
        self.chance = Chance(scenario.seed if seed is None else seed)
        self.journal = Journal(self.clock.now)
        self.hardware = make_hardware(scenario, self.chance.seed)
        self.host = SimHost(scenario, self.hardware, self.clock.now)
        self._hardware_timer: Timer | None = None
        self._processes = 0
        self._occupants: dict[tuple[str, str], int] = {}
        self.cluster = Cluster(
            now=self.clock.epoch,
            uid=lambda: self.chance.uid("objects"),
            defer=self._defer,
        )
        self.node = Node(
            NodeIdentity(name=NODE_NAME),
            cluster=self.cluster,
            clock=self.clock,
            chance=self.chance,
            journal=self.journal,
            settings=kubelet_settings(scenario),
            behaves_like=kubelet_personality(scenario),
        )
        self._levels = {code: kind.level for code, kind in faults.catalogue().items()}
        self._plugins: dict[tuple[str, str], PluginModel] = {}
        self._clients: dict[int, PluginModel] = {}
        self._calls: set[int] = set()
        self._registering: dict[int, Callable[[str | None], None]] = {}
        self._checkpoint: bytes | None = None
        self._is_listening = False
        self.runtime = ModelRuntime(self.host, self, self.node, self.clock.call_later)
        self.node.attach(_RuntimeAdapter(self.runtime), self, self)
        self._start()

    # --- verbs

    def wait(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now() + seconds)

    def wait_until(self, claim: Callable[[], bool], within_s: float) -> bool:
        return self.clock.run_until(claim, within_s=within_s)

    def change_hardware(self, kind: str, fields: Mapping[str, Any], change: Change) -> None:
        self.journal.record(kind, **fields)
        self._tell(change(self.hardware, self.clock.now()))

    def stop_plugin(self) -> None:
        self.journal.record("plugin.stop")
        for uid, _ in list(self._plugins):
            self.node.hold_pod(uid)

    def start_plugin(self) -> None:
        self.journal.record("plugin.start")
        for uid, _ in list(self._plugins):
            self.node.release_pod(uid)

    def act_on_kubelet(self, action: actions.Action) -> None:
        self.journal.record("kubelet.action", **actions.shown(action))
        try:
            self.node.perform(action)
        except actions.BadAction as error:
            raise ScenarioError(f"{self._scenario.name}: {error}.") from None

    def probe(self) -> SimProbe:
        return SimProbe(self)

    def close(self) -> None:
        """Nothing outside this object was touched."""

    # --- the kubelet's way to plugins

    def carry_out(self, effect: PluginEffect) -> None:
        match effect:
            case Connect(client, _, endpoint):
                self.clock.call_later(0, lambda: self._dial(client, endpoint))
            case AnswerRegister(client, error):
                self.clock.call_later(0, lambda: self._answer(client, error))
            case Watch(client):
                self._clients[client].open_stream(client)
            case Disconnect(client):
                plugin = self._clients.pop(client, None)
                if plugin is not None:
                    plugin.close_stream(client)
                    self.clock.call_later(0, lambda: self.node.wiring.stream_ended(client))
            case CallPlugin(call, client, ask):
                self._calls.add(call)
                self.clock.call_later(0, lambda: self._call(call, client, ask))
            case CancelCall(call):
                self._calls.discard(call)
            case OpenSockets():
                self.host.has_kubelet_socket = self._scenario.kubelet.socket == "present"
                self._is_listening = True
            case CloseSockets():
                self._is_listening = False

    def read_checkpoint(self) -> bytes | None:
        return self._checkpoint

    def replace_checkpoint(self, data: bytes | None) -> None:
        self._checkpoint = data

    def has_files(self) -> bool:
        return self._checkpoint is not None or self.host.has_kubelet_socket

    def remove_socket(self) -> None:
        self.host.has_kubelet_socket = False

    def _dial(self, client: int, endpoint: str) -> None:
        for plugin in self._plugins.values():
            if plugin.serving == endpoint:
                self._clients[client] = plugin
                self.node.wiring.plugin_connected(client, PluginOptions())
                return
        text = "failed to dial device plugin: context deadline exceeded"
        self.node.wiring.connect_failed(client, text)

    def _answer(self, client: int, error: str | None) -> None:
        done = self._registering.pop(client, None)
        if done is not None:
            text = None if error is None else f"rpc error: code = Unknown desc = {error}"
            done(text)

    def _call(self, call: int, client: int, ask: Ask) -> None:
        if call not in self._calls:
            return
        self._calls.discard(call)
        plugin = self._clients.get(client)
        answer: PluginAnswer
        if plugin is None:
            answer = CallFailed(_LOST)
        elif isinstance(ask, Allocate):
            answer = _allocate(plugin, ask.device_ids)
        else:
            answer = CallFailed("rpc error: code = Unknown desc = not support")
        self.node.wiring.call_answered(call, answer)

    # --- the cards, told who computes on them

    def occupy(self, uid: str, container: str, phy_ids: tuple[int, ...]) -> None:
        self._processes += 1
        process = Process(
            pid=FIRST_PID + self._processes, name=container, memory_mb=CONTAINER_MEMORY_MB
        )
        self._occupants[uid, container] = process.pid
        for chip in filter(None, map(self.hardware.by_phy, phy_ids)):
            self.hardware.start_process(chip, process, self.clock.now())

    def vacate(self, uid: str, container: str) -> None:
        pid = self._occupants.pop((uid, container), 0)
        for chip in self.hardware:
            self.hardware.end_process(chip, pid, self.clock.now())

    # --- host programs: the plugin's process

    def start(self, uid: str, container: str, exited: Callable[[int], None]) -> None:
        core = PluginCore(
            PluginSettings(
                answer=self._scenario.plugin.answer,
                notices_kubelet_restart=self._scenario.plugin.notices_kubelet_restart,
            ),
            self._levels,
        )

        def log(text: str) -> None:
            self.journal.record("plugin.log", text=text)
            self.runtime.add_log(uid, container, text + "\n")

        script = CallScript()  # a process of its own counts its driver calls
        plugin = PluginModel(
            core,
            kubelet=self,
            read_driver=lambda: self._read_driver(script),
            now=self.clock.now,
            later=self.clock.call_later,
            log=log,
            exited=exited,
        )
        self._plugins[uid, container] = plugin
        plugin.start()

    def stop(self, uid: str, container: str) -> None:
        plugin = self._plugins[uid, container]
        plugin.stop()
        self._clients = {c: p for c, p in self._clients.items() if p is not plugin}

    # --- the kubelet as a plugin meets it

    def register(self, resource: str, endpoint: str, done: Callable[[str | None], None]) -> None:
        if not self.host.has_kubelet_socket:
            done(f"dial unix {KUBELET_SOCKET}: connect: no such file or directory")
            return
        if not self._is_listening:
            done(f"dial unix {KUBELET_SOCKET}: connect: connection refused")
            return
        request = RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
        try:
            client = self.node.wiring.register(request)
        except RegistrationError as error:
            done(f"rpc error: code = {error.code} desc = {error}")
            return
        self._registering[client] = done

    def devices_reported(self, client: int, devices: tuple[PluginDevice, ...]) -> None:
        self.node.wiring.devices_reported(
            client,
            [
                Device(id=d.device_id, health="Healthy" if d.is_healthy else "Unhealthy")
                for d in devices
            ],
        )

    def stream_ended(self, client: int) -> None:
        self.node.wiring.stream_ended(client)

    # --- inside

    def _start(self) -> None:
        store = self.cluster.store
        for fault in self._scenario.node.faults:
            verbs.act(self, InjectFault(card=fault.card, code=fault.code, chip=fault.chip))
        if self._scenario.runtime.runtime_class == "present":
            store.create("runtimeclasses", deployment.runtime_class())
        if self._scenario.plugin.deployed:
            store.create("daemonsets", deployment.plugin_daemon_set(), "kube-system")
        self.node.start()

    def _defer(self, action: Callable[[], None]) -> None:
        self.clock.call_later(0, action)

    def _read_driver(self, script: CallScript) -> Survey | DriverFailure:
        refusal = self.host.library_refusal()
        if refusal is not None:
            return DriverFailure("load libdcmi.so", str(refusal))
        return survey(self.host.dcmi(script))

    def _tell(self, events: Sequence[FaultEvent]) -> None:
        for event in events:
            for plugin in self._plugins.values():
                plugin.fault_event(event.code, event.severity)
        self._await_hardware()

    def _await_hardware(self) -> None:
        """Wake when a boot ends or a fault comes back."""
        if self._hardware_timer is not None:
            self._hardware_timer.cancel()
            self._hardware_timer = None
        due = self.hardware.next_change(self.clock.now())
        if due is not None:
            delay = max(0.0, due - self.clock.now())
            self._hardware_timer = self.clock.call_later(delay, self._advance_hardware)

    def _advance_hardware(self) -> None:
        self._hardware_timer = None
        events = self.hardware.advance(self.clock.now())
        for event in events:
            self.journal.record(
                "driver.event",
                code=f"{event.code:08X}",
                device=event.logic_id,
                assertion=event.assertion,
            )
        self._tell(events)


def _allocate(plugin: PluginModel, device_ids: tuple[str, ...]) -> PluginAnswer:
    outcome = plugin.allocate(device_ids)
    if isinstance(outcome, AllocateError):
        return CallFailed(f"rpc error: code = Unknown desc = {outcome}")
    return AllocateResponse(
        envs=outcome.envs,
        devices=tuple(
            DeviceSpec(
                host_path=node.host_path,
                container_path=node.container_path,
                permissions=node.permissions,
            )
            for node in outcome.devices
        ),
    )


class _RuntimeAdapter:
    """The model runtime behind the node's port."""

    def __init__(self, runtime: ModelRuntime) -> None:
        self._runtime = runtime

    def run_sandbox(self, pod: Mapping[str, Any], handler: str) -> None:
        self._runtime.run_sandbox(pod, handler)

    def start_container(
        self, pod: Mapping[str, Any], name: str, attempt: int, options: AllocateResponse
    ) -> None:
        devices = [(d.host_path, d.container_path) for d in options.devices]
        self._runtime.start_container(pod, name, attempt, envs=options.envs, devices=devices)

    def kill_container(self, uid: str, name: str, grace_s: float) -> None:
        self._runtime.kill_container(uid, name)

    def kill_pod(self, uid: str, grace_s: float) -> None:
        self._runtime.kill_pod(uid)


class SimProbe:
    """The gates' eyes on a simulated node."""

    def __init__(self, testbed: SimTestbed) -> None:
        self._bed = testbed
        self._store = testbed.cluster.store

    def library(self) -> Answer:
        call = f"examine /{LIBRARY_PLACE}"
        refusal = self._bed.host.library_refusal()
        if refusal is None:
            return Answer(call=call, got="root-owned, mode 0644")
        return Answer(call=call, got=str(refusal), kind=refusal.kind)

    def cards(self) -> tuple[Answer, tuple[CardState, ...]]:
        dcmi = self._bed.host.dcmi()
        dcmi.init()
        states = []
        for card in dcmi.card_list()[1]:
            for chip in range(dcmi.device_num_in_card(card)[1]):
                ret, health = dcmi.health(card, chip)
                word = "UNKNOWN" if ret else HEALTH_WORDS[health]
                codes = dcmi.error_codes(card, chip)[1]
                states.append(CardState(card_id=card, health=word, codes=codes))
        got = f"{len(states)} cards"
        return Answer(call="dcmi_get_card_list, dcmi_get_device_health", got=got), tuple(states)

    def daemon_set(self) -> Object | None:
        return self._store.find("daemonsets", deployment.PLUGIN, "kube-system")

    def plugin_log(self) -> str:
        return "".join(
            self._bed.runtime.log(pod["metadata"]["uid"], "device-plugin")
            for pod in self._store.list("pods", "kube-system")
        )

    def kubelet_socket(self) -> Answer:
        is_there = self._bed.host.has_kubelet_socket
        return Answer(
            call=f"look for {KUBELET_SOCKET}",
            got="a socket" if is_there else "no such file",
            kind="ok" if is_there else "missing",
        )

    def node(self) -> Object | None:
        return self._store.find("nodes", NODE_NAME)

    def runtime_class(self, name: str) -> Object | None:
        return self._store.find("runtimeclasses", name)

    def containerd(self) -> tuple[Answer, ConfiguredRuntime | None]:
        config = containerd_config.parse(self._bed.host.config_text())
        binaries = {name: handler.binary for name, handler in config.handlers.items()}
        states = {name: self._bed.host.program_state(path) for name, path in binaries.items()}
        got = f"default {config.default}, handlers {', '.join(sorted(binaries))}"
        return Answer(call=f"read {CONFIG_PATH}", got=got), ConfiguredRuntime(
            default=config.default, binaries=binaries, binary_state=states
        )

    def create_pod(self, pod: Object) -> Object:
        self._bed.journal.record("pod.create", pod=pod["metadata"]["name"])
        try:
            return self._store.create("pods", dict(pod), "default")
        except ApiError as error:
            self._bed.journal.record("pod.refused", pod=pod["metadata"]["name"], why=str(error))
            raise ApiRefused(str(error)) from None

    def pod(self, name: str) -> Object | None:
        return self._store.find("pods", name, "default")

    def pod_events(self, name: str) -> list[Object]:
        pod = self.pod(name)
        if pod is None:
            return []
        uid = pod["metadata"]["uid"]
        events = self._store.list("events", "default")
        return [event for event in events if event["involvedObject"].get("uid") == uid]

    def pod_log(self, name: str) -> str:
        pod = self.pod(name)
        return "" if pod is None else self._bed.runtime.log(pod["metadata"]["uid"], "main")

    def delete_pod(self, name: str) -> None:
        self._bed.journal.record("pod.delete", pod=name)
        try:
            self._store.delete("pods", name, "default")
        except ApiError as error:
            raise ApiRefused(str(error)) from None

    def wait_for(self, claim: Callable[[], bool], within_s: float) -> bool:
        return self._bed.wait_until(claim, within_s)
