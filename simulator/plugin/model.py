"""The reference plugin in virtual time: its core wired to a model driver and a model kubelet.

Carries out the core's effects on the event queue; decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from simulator.plugin.core import (
    AllocateAnswer,
    AllocateError,
    Effect,
    Exit,
    Log,
    PluginCore,
    PluginDevice,
    Probe,
    Register,
    SendDevices,
    Serve,
    SetTimer,
    StopServing,
)
from simulator.plugin.survey import DriverFailure, Survey


class KubeletPort(Protocol):
    """The kubelet as a plugin meets it."""

    def register(self, resource: str, endpoint: str, done: Callable[[str | None], None]) -> None:
        """Calls `done` with None, or with the reason of the refusal."""

    def devices_reported(self, client: int, devices: tuple[PluginDevice, ...]) -> None: ...
    def stream_ended(self, client: int) -> None: ...


class Pending(Protocol):
    def cancel(self) -> None: ...


class PluginModel:
    """One plugin process. `read_driver` answers a probe; `exited` hears of its end."""

    def __init__(
        self,
        core: PluginCore,
        *,
        kubelet: KubeletPort,
        read_driver: Callable[[], Survey | DriverFailure],
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], Pending],
        log: Callable[[str], None],
        exited: Callable[[int], None],
    ) -> None:
        self._core = core
        self._kubelet = kubelet
        self._read_driver = read_driver
        self._now = now
        self._later = later
        self._log = log
        self._exited = exited
        self._timers: dict[str, Pending] = {}
        self._streams: list[int] = []
        self.serving: str | None = None

    def start(self) -> None:
        self._apply(self._core.start(self._now()))

    def stop(self) -> None:
        """The process is killed: no goodbye, its streams just break."""
        self._core.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._close()

    def open_stream(self, client: int) -> None:
        self._streams.append(client)
        self._apply(self._core.stream_opened(self._now()))

    def close_stream(self, client: int) -> None:
        """The kubelet closed the connection."""
        if client in self._streams:
            self._streams.remove(client)
            self._apply(self._core.stream_closed(self._now()))

    def allocate(self, device_ids: tuple[str, ...]) -> AllocateAnswer | AllocateError:
        try:
            return self._core.allocate(device_ids, self._read_driver())
        except AllocateError as error:
            return error

    def fault_event(self, code: int, severity: int) -> None:
        self._apply(self._core.fault_event(code, severity))

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Probe():
                    outcome = self._read_driver()
                    self._apply(self._core.probed(outcome, self._now()))
                case Serve(endpoint):
                    self.serving = endpoint
                case StopServing():
                    self._close()
                case Register(resource, endpoint):
                    self._later(0, partial(self._register, resource, endpoint))
                case SendDevices(devices):
                    for client in list(self._streams):
                        self._kubelet.devices_reported(client, devices)
                case SetTimer(key, at_s):
                    if key in self._timers:
                        self._timers[key].cancel()
                    delay = max(0.0, at_s - self._now())
                    self._timers[key] = self._later(delay, partial(self._timer, key))
                case Log(text):
                    self._log(text)
                case Exit(status, text):
                    self._log(text)
                    self._exited(status)

    def _timer(self, key: str) -> None:
        self._apply(self._core.timer(key, self._now()))

    def _register(self, resource: str, endpoint: str) -> None:
        def done(refusal: str | None) -> None:
            if refusal is None:
                self._apply(self._core.registered(self._now()))
            else:
                self._apply(self._core.register_failed(refusal, self._now()))

        self._kubelet.register(resource, endpoint, done)

    def _close(self) -> None:
        self.serving = None
        for client in list(self._streams):
            self.close_stream(client)
            self._kubelet.stream_ended(client)
