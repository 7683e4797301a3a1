"""A kubelet core, wired: who carries its effects out, its timers, and what observers hear.

The wiring is the same on the wall clock and in virtual time; only the ports differ. What plugins
do comes in here as well: it is the sink of whatever carries their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from fake_kubelet import checkpoint
from fake_kubelet.effects import (
    ApiEffect,
    Boot,
    Effect,
    PluginEffect,
    Record,
    RuntimeEffect,
    SetTimer,
    UpdateNodeStatus,
    WriteCheckpoint,
)
from fake_kubelet.kubelet import Kubelet
from fake_kubelet.messages import Answer, Device, PluginOptions, RegisterRequest
from fake_kubelet.podresources import PodResources


class Timer(Protocol):
    """A pending action."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Seconds since the run began, and actions to come."""

    def now(self) -> float: ...
    def call_later(self, delay_s: float, action: Callable[[], None]) -> Timer: ...


class PluginPort(Protocol):
    """The plugin directory and the connections to plugins; reports to the wiring."""

    def carry_out(self, effect: PluginEffect) -> None: ...
    def read_checkpoint(self) -> bytes | None: ...
    def has_files(self) -> bool:
        """Whether the plugin directory holds any file whose name begins with no dot."""

    def remove_socket(self) -> None:
        """Delete kubelet.sock, as an operator would."""

    def replace_checkpoint(self, data: bytes | None) -> None:
        """Put bytes into the checkpoint's place; None deletes it."""


class RuntimePort(Protocol):
    """What starts and stops containers; reports to the kubelet."""

    def carry_out(self, effect: RuntimeEffect) -> None: ...


class ApiPort(Protocol):
    """The Kubernetes API."""

    def carry_out(self, effect: ApiEffect) -> None: ...


Listener = Callable[[str, Mapping[str, Any]], None]


class Wiring:
    """`attach` gives it its ports before anything happens; `listener` hears every record."""

    def __init__(self, kubelet: Kubelet, clock: Clock, listener: Listener) -> None:
        self.kubelet = kubelet
        self.pod_resources = PodResources(kubelet)
        self._clock = clock
        self._listener = listener
        self._timers: dict[str, Timer] = {}
        self._plugins: PluginPort
        self._runtime: RuntimePort
        self._api: ApiPort

    def attach(self, plugins: PluginPort, runtime: RuntimePort, api: ApiPort) -> None:
        self._plugins, self._runtime, self._api = plugins, runtime, api

    @property
    def plugins(self) -> PluginPort:
        return self._plugins

    def now(self) -> float:
        return self._clock.now()

    def boot(self, *, is_runtime_down: bool = False) -> None:
        """Start the kubelet from what lies in its directory."""
        self.apply(
            self.kubelet.start(
                self.now(),
                self._plugins.read_checkpoint(),
                has_files=self._plugins.has_files(),
                is_runtime_down=is_runtime_down,
            )
        )

    def close(self) -> None:
        """No timer fires any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def apply(self, effects: Iterable[Effect]) -> None:
        """Carry out what the core asks for, in order."""
        for effect in effects:
            self._carry_out(effect)

    # --- what plugins do

    def register(self, request: RegisterRequest) -> int:
        """A plugin registers; returns its client number, or raises RegistrationError."""
        client, effects = self.kubelet.register(request, self.now())
        self.apply(effects)
        return client

    def plugin_connected(self, client: int, options: PluginOptions | None) -> None:
        self.apply(self.kubelet.plugin_connected(client, options, self.now()))

    def connect_failed(self, client: int, text: str) -> None:
        self.apply(self.kubelet.connect_failed(client, text, self.now()))

    def devices_reported(self, client: int, devices: Iterable[Device]) -> None:
        self.apply(self.kubelet.devices_reported(client, devices, self.now()))

    def stream_ended(self, client: int) -> None:
        self.apply(self.kubelet.stream_ended(client, self.now()))

    def plugin_removed(self, client: int) -> None:
        self.apply(self.kubelet.plugin_removed(client, self.now()))

    def call_answered(self, call: int, answer: Answer) -> None:
        self.apply(self.kubelet.call_answered(call, answer, self.now()))

    # --- what clients of the pod-resources API do

    def list_pod_resources(self, version: str) -> Any:
        """Raises CallRefused."""
        self._listener("podresources.call", {"method": "List", "version": version})
        return self.pod_resources.list(version, self.now())

    def get_pod_resources(self, name: str, namespace: str) -> Any:
        """Raises CallRefused."""
        fields = {"method": "Get", "version": "v1", "pod": name, "namespace": namespace}
        self._listener("podresources.call", fields)
        return self.pod_resources.get(name, namespace, self.now())

    def allocatable_resources(self) -> Any:
        """Raises CallRefused."""
        fields = {"method": "GetAllocatableResources", "version": "v1"}
        self._listener("podresources.call", fields)
        return self.pod_resources.allocatable(self.now())

    # --- inside

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Record):
            self._listener(effect.kind, effect.fields)
        elif isinstance(effect, SetTimer):
            self._set_timer(effect)
        elif isinstance(effect, Boot):
            self.boot(is_runtime_down=self.kubelet.is_runtime_down)
        elif isinstance(effect, WriteCheckpoint):
            data = checkpoint.encode(effect.content, effect.version)
            self._listener("checkpoint.write", {"bytes": len(data)})
            self._plugins.replace_checkpoint(data)
        elif isinstance(effect, PluginEffect):
            self._plugins.carry_out(effect)
        elif isinstance(effect, RuntimeEffect):
            self._runtime.carry_out(effect)
        else:
            if isinstance(effect, UpdateNodeStatus):
                self._listener("node.status", _extended(effect.status))
            self._api.carry_out(effect)

    def _set_timer(self, effect: SetTimer) -> None:
        key = effect.key
        if key in self._timers:
            self._timers[key].cancel()
        delay = max(0.0, effect.at_s - self.now())
        self._timers[key] = self._clock.call_later(delay, lambda: self._timer(key))

    def _timer(self, key: str) -> None:
        self._timers.pop(key, None)
        self.apply(self.kubelet.timer(key, self.now()))


def _extended(status: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    return {
        part: {name: count for name, count in status[part].items() if "/" in name}
        for part in ("capacity", "allocatable")
    }
