"""The kubelet's links to plugins: registration, streams, calls and their rules. Pure.

Owns who is connected and which calls are under way; the device manager decides what they mean.
After `kubernetes:pkg/kubelet/cm/devicemanager/plugin/v1beta1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fake_kubelet import wire
from fake_kubelet.device_manager import (
    PRE_START_S,
    AllocationError,
    DeviceManager,
    RegistrationError,
    Steps,
    check_registration,
)
from fake_kubelet.effects import (
    AnswerRegister,
    CallPlugin,
    CancelCall,
    Connect,
    Disconnect,
    Effect,
    Record,
    SetTimer,
    Watch,
)
from fake_kubelet.messages import (
    Allocate,
    Answer,
    Ask,
    CallFailed,
    Device,
    PluginOptions,
    Preferred,
    RegisterRequest,
)
from fake_kubelet.metrics import Metrics
from fake_kubelet.personality import Personality
from fake_kubelet.rules import CallRule, CallRules

DEADLINE = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
_METHODS: dict[type[Ask], str] = {Allocate: "Allocate", Preferred: "GetPreferredAllocation"}

Done = Callable[[AllocationError | None, float], list[Effect]]


@dataclass(slots=True, kw_only=True)
class _Client:
    request: RegisterRequest
    is_watching: bool = False
    loses_answer: bool = False  # of Register
    loses_options: bool = False
    loses_devices: bool = False

    @property
    def resource(self) -> str:
        return self.request.resource_name

    @property
    def socket(self) -> str:
        return self.request.endpoint


@dataclass(slots=True)
class _Flow:
    """Work of the device manager that waits for a plugin; `done` hears how it ended."""

    steps: Steps
    done: Done


@dataclass(slots=True)
class _Call:
    flow: _Flow
    ask: Ask
    began_s: float
    loses_answer: bool = False


class PluginLinks:
    """Links of one run of a kubelet; a restart makes new ones. Numbers of clients and calls go on
    from `first`, so that answers to an earlier run are told apart."""

    def __init__(
        self,
        devices: DeviceManager,
        personality: Personality,
        *,
        rules: CallRules,
        metrics: Metrics,
        first: int = 1,
    ) -> None:
        self._devices = devices
        self._personality = personality
        self._rules = rules
        self._metrics = metrics
        self.next_number = first
        self._clients: dict[int, _Client] = {}
        self._calls: dict[int, _Call] = {}
        # What a rule holds until `release`, and what waits for a timer.
        self._held: list[Callable[[float], list[Effect]]] = []
        self._delayed: dict[str, Callable[[float], list[Effect]]] = {}

    # --- plugins

    def register(self, request: RegisterRequest, now: float) -> tuple[int, list[Effect]]:
        """A plugin called Register: its client number, under which `AnswerRegister` will come.
        Raises RegistrationError when it is refused at once."""
        self._metrics.registered(request.resource_name)
        check_registration(request)
        rule = self._rules.take("Register", request.resource_name)
        if rule is not None and rule.action == "fail":
            raise RegistrationError(rule.message, rule.code)
        number = self._number()
        client = _Client(request=request)
        client.loses_answer = rule is not None and rule.action == "drop"
        self._clients[number] = client
        fields = {
            "client": number,
            "version": request.version,
            "resource": request.resource_name,
            "endpoint": request.endpoint,
        }
        told = Record("plugin.register", fields)
        begin = lambda then: self._begin(number, then)  # noqa: E731 - a name for two uses
        return number, [told, *self._paced(rule, f"register:{number}", begin, now)]

    def plugin_connected(
        self, number: int, options: PluginOptions | None, now: float
    ) -> list[Effect]:
        """The dial worked; `options` as the plugin told them, None where it was not asked."""
        client = self._clients.get(number)
        if client is None:
            return [Disconnect(number)]
        if client.loses_options:
            return []
        client.is_watching = True
        chosen = client.request.options if options is None else options
        self._devices.connected(client.resource, client.socket, number, chosen)
        fields = {
            "client": number,
            "pre_start_required": chosen.pre_start_required,
            "preferred_allocation": chosen.preferred_allocation,
        }
        rule = self._rules.take("ListAndWatch", client.resource)
        answers: list[Effect] = [Record("plugin.connected", fields)]
        if self._personality.register_mode == "sync":
            answers += self._answer(number, None)
        if rule is not None and rule.action == "fail":
            return [*answers, *self.stream_ended(number, now)]
        client.loses_devices = rule is not None and rule.action == "drop"
        return [*answers, *self._paced(rule, f"watch:{number}", lambda _: [Watch(number)], now)]

    def connect_failed(self, number: int, text: str, now: float) -> list[Effect]:
        client = self._clients.get(number)
        if client is None:
            return []
        is_sync = self._personality.register_mode == "sync"
        answers = self._answer(number, text) if is_sync else []
        del self._clients[number]
        self._devices.dial_failed(client.resource, client.socket)
        return [Record("plugin.unreachable", {"client": number, "why": text}), *answers]

    def devices_reported(
        self, number: int, devices: Iterable[Device]
    ) -> tuple[list[Effect], list[str]]:
        """A message of a stream; also the uids of pods whose device health has to be told."""
        client = self._clients.get(number)
        if client is None or client.loses_devices:
            return [], []
        listed = tuple(devices)
        owners = self._devices.reported(client.resource, listed)
        shown = {device.id: device.health for device in listed}
        fields = {"client": number, "resource": client.resource, "devices": shown}
        return [Record("plugin.devices", fields)], owners

    def stream_ended(self, number: int, now: float) -> list[Effect]:
        """Raises KubeletPanic in versions that crash here."""
        client = self._clients.pop(number, None)
        if client is None:
            return []
        told = Record("plugin.stream-ended", {"client": number, "resource": client.resource})
        if not client.is_watching:
            return [told]
        victim = self._devices.stream_ended(client.resource, client.socket, number, now)
        return [told] if victim is None else [told, Disconnect(victim)]

    def removed(self, number: int, now: float) -> list[Effect]:
        """The plugin watcher no longer finds the socket of a client. Raises KubeletPanic."""
        if number not in self._clients:
            return []
        return [*self.stream_ended(number, now), Disconnect(number)]

    def cut(self, resource: str) -> list[Effect]:
        """Break the connections of a resource from the kubelet's side."""
        return [Disconnect(n) for n, c in self._clients.items() if c.resource == resource]

    def close(self) -> list[Effect]:
        """The kubelet is gone: every connection and call with it."""
        cancelled: list[Effect] = [CancelCall(number) for number in self._calls]
        return [*cancelled, *(Disconnect(number) for number in self._clients)]

    def open_streams(self) -> dict[str, int]:
        """resource -> connections with a stream, the forgotten ones included."""
        found: dict[str, int] = {}
        for client in self._clients.values():
            if client.is_watching:
                found[client.resource] = found.get(client.resource, 0) + 1
        return found

    # --- calls

    def run(self, steps: Steps, done: Done, now: float) -> list[Effect]:
        """Start work that may have to ask plugins; `done` hears how it ended."""
        return self._go_on(_Flow(steps, done), None, now)

    def call_answered(self, number: int, answer: Answer, now: float) -> list[Effect]:
        call = self._calls.get(number)
        if call is None or call.loses_answer:
            return []
        del self._calls[number]
        if isinstance(call.ask, Allocate):
            self._metrics.allocated(call.ask.resource, now - call.began_s)
        told = Record("plugin.answer", {"call": number, **wire.shown_answer(answer)})
        return [told, *self._go_on(call.flow, answer, now)]

    def release(self, now: float) -> list[Effect]:
        """Let go of everything that a rule holds."""
        held, self._held = self._held, []
        return [effect for go in held for effect in go(now)]

    def timer(self, key: str, now: float) -> list[Effect] | None:
        """A timer of ours; None when it is not."""
        kind, _, rest = key.partition(":")
        if kind == "deadline":
            number = int(rest)
            if number not in self._calls:
                return []
            self._calls[number].loses_answer = False
            return [CancelCall(number), *self.call_answered(number, CallFailed(DEADLINE), now)]
        if kind not in ("register", "watch", "options", "call"):
            return None
        go = self._delayed.pop(key, None)
        return [] if go is None else go(now)

    # --- inside

    def _number(self) -> int:
        self.next_number += 1
        return self.next_number - 1

    def _begin(self, number: int, now: float) -> list[Effect]:
        client = self._clients.get(number)
        if client is None:
            return []
        if self._personality.duplicate_register == "no_op":
            known = self._devices.client_of(client.resource, client.socket)
            if known is not None and known in self._clients:
                answers = self._answer(number, None)
                del self._clients[number]
                return answers
        is_async = self._personality.register_mode == "async"
        answers = self._answer(number, None) if is_async else []
        self._devices.dialling(client.resource, client.socket, number)
        asks_options = self._personality.options_source == "rpc"
        authority = "localhost" if self._personality.authority == "localhost" else None
        connect = Connect(
            number,
            client.resource,
            client.socket,
            is_path=client.request.is_path,
            asks_options=asks_options,
            authority=authority,
        )
        rule = self._rules.take("GetDevicePluginOptions", client.resource) if asks_options else None
        if rule is not None and rule.action == "fail":
            text = f"failed to get device plugin options: {rule.error}"
            return [*answers, *self.connect_failed(number, text, now)]
        client.loses_options = rule is not None and rule.action == "drop"
        return [*answers, *self._paced(rule, f"options:{number}", lambda _: [connect], now)]

    def _answer(self, number: int, error: str | None) -> list[Effect]:
        client = self._clients[number]
        told = Record("plugin.registered", {"client": number, "error": error})
        return [told] if client.loses_answer else [told, AnswerRegister(number, error)]

    def _paced(
        self,
        rule: CallRule | None,
        key: str,
        go: Callable[[float], list[Effect]],
        now: float,
    ) -> list[Effect]:
        """Do it now, later, or when released."""
        if rule is not None and rule.action == "hold":
            self._held.append(go)
            return []
        if rule is not None and rule.action == "delay":
            self._delayed[key] = go
            return [SetTimer(key, now + rule.delay_s)]
        return go(now)

    def _go_on(self, flow: _Flow, answer: Answer, now: float) -> list[Effect]:
        try:
            client, ask = flow.steps.send(answer)
        except StopIteration:
            return flow.done(None, now)
        except AllocationError as error:
            return flow.done(error, now)
        return self._call(flow, client, ask, now)

    def _call(self, flow: _Flow, client: int, ask: Ask, now: float) -> list[Effect]:
        number = self._number()
        method = _METHODS.get(type(ask), "PreStartContainer")
        rule = self._rules.take(method, ask.resource)
        call = _Call(flow, ask, now, rule is not None and rule.action == "drop")
        self._calls[number] = call
        fields = {"call": number, "client": client, "method": method, **wire.shown_ask(ask)}
        told: list[Effect] = [Record("plugin.call", fields)]
        if rule is not None and rule.action == "fail":
            return [*told, *self.call_answered(number, CallFailed(rule.error), now)]
        if method == "PreStartContainer":
            told.append(SetTimer(f"deadline:{number}", now + PRE_START_S))

        def go(_: float) -> list[Effect]:
            return [CallPlugin(number, client, ask)] if number in self._calls else []

        return [*told, *self._paced(rule, f"call:{number}", go, now)]
