"""A kubelet with a model runtime, an API in memory and model plugins, all in virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

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
from fake_kubelet.kubelet import Kubelet, Settings
from fake_kubelet.messages import (
    Allocate,
    AllocateResponse,
    Answer,
    Ask,
    CallFailed,
    Device,
    PluginOptions,
    Preferred,
    RegisterRequest,
)
from fake_kubelet.model import ModelApi, ModelRuntime
from fake_kubelet.personality import personality
from fake_kubelet.status import NodeIdentity
from fake_kubelet.wiring import Wiring
from simulator.kernel.clock import VirtualClock

R = "example.com/resource"
UNAVAILABLE = "rpc error: code = Unavailable desc = error reading from server: EOF"


class Plugin:
    """One plugin process: its devices, its streams and what it was asked."""

    def __init__(self, world: World, resource: str, endpoint: str, ids: Iterable[str]) -> None:
        self.world = world
        self.resource = resource
        self.endpoint = endpoint
        self.devices = dict.fromkeys(ids, "Healthy")
        self.numa: dict[str, tuple[int, ...]] = {}
        self.options = PluginOptions()
        self.options_error: str | None = None
        self.fails_stream = False
        self.hangs = False
        self.is_serving = True
        self.streams: list[int] = []
        self.asked: list[Ask] = []
        self.options_calls = 0
        self.stream_calls = 0
        self.register_answers: list[str | None] = []

    def register(self, resource: str | None = None, version: str = "v1beta1") -> int | None:
        """Call Register; the client number, None when it cannot be reached or is refused."""
        world = self.world
        if not world.is_listening or not world.has_socket:
            self.register_answers.append("no such file")
            return None
        request = RegisterRequest(
            version=version,
            endpoint=self.endpoint,
            resource_name=resource or self.resource,
            options=self.options,
        )
        try:
            client = world.wiring.register(request)
        except RegistrationError as error:
            self.register_answers.append(str(error))
            return None
        world.plugins[client] = self
        return client

    def send(self, **health: str) -> None:
        """A new list on every stream."""
        self.devices.update({name.replace("_", "-"): state for name, state in health.items()})
        for client in list(self.streams):
            self.world.wiring.devices_reported(client, self.listed())

    def listed(self) -> list[Device]:
        return [
            Device(id=one, health=health, numa_nodes=self.numa.get(one))
            for one, health in self.devices.items()
        ]

    def stop(self) -> None:
        """The process ends."""
        self.is_serving = False
        for client in list(self.streams):
            self.end_stream(client)

    def end_stream(self, client: int) -> None:
        self.streams.remove(client)
        self.world.wiring.stream_ended(client)

    def answer(self, ask: Ask) -> Answer:
        self.asked.append(ask)
        if isinstance(ask, Allocate):
            return AllocateResponse(envs={"IDS": ",".join(sorted(ask.device_ids))})
        if isinstance(ask, Preferred):
            return tuple(sorted(ask.available)[: ask.size])
        return None


class World:
    """Runs until it is told to stop; times are seconds of virtual time."""

    def __init__(self, version: str = "1.28", *, seed: int = 1, **options: Any) -> None:
        self.clock = VirtualClock()
        switches = options.pop("switches", None)
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.kubelet = Kubelet(
            NodeIdentity(name="n1"),
            rng=random.Random(seed),
            handler_of=lambda name: name or "",
            settings=Settings(node_status_update_s=10, **options),
            behaves_like=personality(version, switches),
        )
        self.wiring = Wiring(
            self.kubelet, self.clock, lambda kind, fields: self.records.append((kind, dict(fields)))
        )
        self.api = ModelApi(self.wiring)
        self.runtime = ModelRuntime(self.wiring, self.clock)
        self.wiring.attach(self, self.runtime, self.api)
        self.plugins: dict[int, Plugin] = {}
        self.served: list[Plugin] = []
        self.calls: set[int] = set()
        self.checkpoint: bytes | None = None
        self.is_listening = self.has_socket = False
        self.cancelled: list[int] = []
        self.uids = 0
        self.wiring.boot()

    # --- what a test does

    def plugin(self, *ids: str, resource: str = R, endpoint: str = "x.sock") -> Plugin:
        """A plugin that serves, registered at once."""
        made = self.serve(*ids, resource=resource, endpoint=endpoint)
        made.register()
        self.run(0)
        return made

    def serve(self, *ids: str, resource: str = R, endpoint: str = "x.sock") -> Plugin:
        made = Plugin(self, resource, endpoint, ids or ("Dev-1", "Dev-2"))
        self.served.append(made)
        return made

    def run(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now() + seconds)

    def pod(self, name: str, count: int | None = 1, **more: Any) -> str:
        """Create a pod; its uid."""
        self.uids += 1
        limits = {} if count is None else {more.pop("resource", R): str(count)}
        containers = more.pop("containers", [{"name": "main", "resources": {"limits": limits}}])
        annotations = more.pop("annotations", {})
        uid = f"uid-{self.uids}"
        self.api.create(
            {
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"containers": containers, "restartPolicy": "Never", **more},
            },
            uid,
        )
        self.run(0)
        return uid

    def do(self, verb: str, *words: str) -> None:
        actions.perform(actions.parse(verb, list(words)), self.wiring, self.api.force_delete)
        self.run(0)

    # --- what a test looks at

    def counts(self, resource: str = R) -> tuple[str, str] | None:
        """Capacity and allocatable after the next look at the node."""
        self.run(10.5)
        status = self.api.node["status"]
        if resource not in status["capacity"]:
            return None
        return status["capacity"][resource], status["allocatable"][resource]

    def phase(self, name: str) -> str:
        return str(self.api.pods["default", name]["status"]["phase"])

    def message(self, name: str) -> str:
        return str(self.api.pods["default", name]["status"].get("message", ""))

    def ids(self, name: str, container: str = "main", resource: str = R) -> set[str]:
        uid = self.api.pods["default", name]["metadata"]["uid"]
        held = self.kubelet.devices.holdings(uid).get(container, {})
        return set(held[resource].ids) if resource in held else set()

    def env(self, name: str, container: str = "main") -> dict[str, str]:
        uid = self.api.pods["default", name]["metadata"]["uid"]
        return dict(self.runtime.options[uid, container].envs)

    def listed(self, version: str = "v1") -> dict[str, dict[str, list[str]]]:
        """pod -> container -> ids, as pod-resources tells."""
        answer = self.wiring.list_pod_resources(version)
        return {
            pod.name: {
                container.name: sorted(i for d in container.devices for i in d.device_ids)
                for container in pod.containers
            }
            for pod in answer.pod_resources
        }

    # --- the port of the wiring

    def carry_out(self, effect: PluginEffect) -> None:
        match effect:
            case Connect():
                self.clock.call_later(0, lambda: self._dial(effect))
            case AnswerRegister(client, error):
                if client in self.plugins:
                    self.plugins[client].register_answers.append(error)
            case Watch(client):
                self.clock.call_later(0, lambda: self._watch(client))
            case Disconnect(client):
                self.clock.call_later(0, lambda: self._hang_up(client))
            case CallPlugin(call, client, ask):
                self.calls.add(call)
                self.clock.call_later(0, lambda: self._call(call, client, ask))
            case CancelCall(call):
                self.cancelled.append(call)
                self.calls.discard(call)
            case OpenSockets():
                self.is_listening = self.has_socket = True
            case CloseSockets():
                self.is_listening = False

    def read_checkpoint(self) -> bytes | None:
        return self.checkpoint

    def replace_checkpoint(self, data: bytes | None) -> None:
        self.checkpoint = data

    def has_files(self) -> bool:
        return self.checkpoint is not None or self.has_socket

    def remove_socket(self) -> None:
        self.has_socket = False

    def _dial(self, connect: Connect) -> None:
        client = connect.client
        there = [p for p in self.served if p.is_serving and p.endpoint == connect.endpoint]
        if not there:
            self.clock.call_later(
                10,
                lambda: self.wiring.connect_failed(
                    client, "failed to dial device plugin: context deadline exceeded"
                ),
            )
            return
        plugin = self.plugins[client] = there[-1]
        if not connect.asks_options:
            self.wiring.plugin_connected(client, None)
            return
        plugin.options_calls += 1
        if plugin.options_error is not None:
            text = f"failed to get device plugin options: {plugin.options_error}"
            self.wiring.connect_failed(client, text)
            return
        self.wiring.plugin_connected(client, plugin.options)

    def _watch(self, client: int) -> None:
        plugin = self.plugins[client]
        plugin.stream_calls += 1
        if plugin.fails_stream or not plugin.is_serving:
            self.wiring.stream_ended(client)
            return
        plugin.streams.append(client)
        self.wiring.devices_reported(client, plugin.listed())

    def _hang_up(self, client: int) -> None:
        plugin = self.plugins.get(client)
        if plugin is not None and client in plugin.streams:
            plugin.end_stream(client)

    def _call(self, call: int, client: int, ask: Ask) -> None:
        plugin = self.plugins[client]
        if call not in self.calls or plugin.hangs:
            return
        self.calls.discard(call)
        answer: Answer = plugin.answer(ask) if plugin.is_serving else CallFailed(UNAVAILABLE)
        self.wiring.call_answered(call, answer)
