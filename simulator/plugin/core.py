"""The reference device plugin's decisions, without I/O.

Owns: when to look for the driver, when to serve and register, what each card's health is for the
kubelet, when to send the list, and what Allocate answers. Its surroundings carry out the effects
and report back. Follows what the vendor's plugin does where that is visible from outside
(Ascend/mind-cluster:component/ascend-device-plugin/pkg/{server,device,common}).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from simulator.plugin.survey import CardReading, DriverFailure, Survey

# Synthetic code for a card whose health call answers -8012 (dcmi.md 6.2).
CARD_DROP_CODE = 0x40F84E00
NOT_READY = -8012

# Levels from harmless to severe; these keep a device Healthy for the kubelet, all others do not.
HARMLESS_LEVELS = frozenset({"NotHandleFault", "SubHealthFault"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """Knobs of the plugin; times in seconds, defaults as the vendor's plugin has them."""

    resource: str = "huawei.com/Ascend910"
    device_type: str = "Ascend910"
    poll_s: float = 5.0
    driver_retry_s: float = 10.0
    driver_timeout_s: float = 600.0
    retry_register_s: float = 5.0
    answer: Literal["runtime", "devices"] = "runtime"
    notices_kubelet_restart: bool = True

    @property
    def endpoint(self) -> str:
        return f"{self.device_type}.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDevice:
    """One device as the kubelet sees it."""

    device_id: str
    is_healthy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device file to hand into a container."""

    host_path: str
    container_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateAnswer:
    """What Allocate says for one container."""

    envs: Mapping[str, str]
    devices: tuple[DeviceNode, ...]


class AllocateError(Exception):
    """Allocate cannot be answered; the text goes to the kubelet."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Read the driver and report with `probed`."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Open the plugin's socket (a stale file is removed first)."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class StopServing:
    """Close the plugin's socket and its streams."""


@dataclass(frozen=True, slots=True)
class Register:
    """Call the kubelet; report with `registered` or `register_failed`."""

    resource: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class SendDevices:
    """Send the full list on every open ListAndWatch stream."""

    devices: tuple[PluginDevice, ...]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call `timer(key)` at `at_s`; a later SetTimer with the same key replaces it."""

    key: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Log:
    """One line for the plugin's log."""

    text: str


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process. The vendor's plugin ends with status 0 even on failure."""

    status: int
    text: str


Effect = Probe | Serve | StopServing | Register | SendDevices | SetTimer | Log | Exit


class Phase(Enum):
    WAITING_FOR_DRIVER = "waiting for driver"
    REGISTERING = "registering"
    REGISTERED = "registered"
    ENDED = "ended"


class PluginCore:
    """One plugin process's state machine. Inputs carry `now` in seconds; outputs are effects."""

    def __init__(self, settings: PluginSettings, levels: Mapping[int, str]) -> None:
        self.settings = settings
        self.phase = Phase.WAITING_FOR_DRIVER
        self._levels = levels
        self._severities: dict[int, int] = {}
        self._cards: dict[str, CardReading] = {}
        self._health: dict[str, bool] = {}
        self._gives_up_at = 0.0
        self._streams = 0

    def start(self, now: float) -> list[Effect]:
        self._gives_up_at = now + self.settings.driver_timeout_s
        return [Probe()]

    def timer(self, key: str, now: float) -> list[Effect]:
        if self.phase is Phase.ENDED:
            return []
        if key == "register" and self.phase is Phase.REGISTERING:
            return self._serve_and_register()
        if key == "probe":
            return [Probe()]
        return []

    def probed(self, outcome: Survey | DriverFailure, now: float) -> list[Effect]:
        """The driver was read: cards found, or why not."""
        if self.phase is Phase.ENDED:
            return []
        if self.phase is Phase.WAITING_FOR_DRIVER:
            return self._driver_answered(outcome, now)
        effects: list[Effect] = [SetTimer("probe", now + self.settings.poll_s)]
        if isinstance(outcome, DriverFailure):
            return [*effects, Log(f"driver cannot be read, keeping the last list: {outcome}")]
        if self._take(outcome):
            effects.append(SendDevices(self.devices()))
        return effects

    def fault_event(self, code: int, severity: int) -> list[Effect]:
        """A driver callback: remember how severe the code is and look at the cards at once."""
        self._severities[code] = severity
        return [Probe()] if self.phase in (Phase.REGISTERING, Phase.REGISTERED) else []

    def registered(self, now: float) -> list[Effect]:
        if self.phase is Phase.REGISTERING:
            self.phase = Phase.REGISTERED
        return [Log(f"registered {self.settings.resource} with the kubelet")]

    def register_failed(self, text: str, now: float) -> list[Effect]:
        if self.phase is not Phase.REGISTERING:
            return []
        return [
            StopServing(),
            Log(f"could not contact the kubelet: {text}"),
            SetTimer("register", now + self.settings.retry_register_s),
        ]

    def stream_opened(self, now: float) -> list[Effect]:
        self._streams += 1
        return [SendDevices(self.devices())]

    def stream_closed(self, now: float) -> list[Effect]:
        """The kubelet went away: serve and register anew, unless told not to notice."""
        self._streams = max(0, self._streams - 1)
        if self.phase is not Phase.REGISTERED or self._streams:
            return []
        if not self.settings.notices_kubelet_restart:
            return [Log("ListAndWatch stream closed; not registering again")]
        self.phase = Phase.REGISTERING
        return [
            StopServing(),
            Log("ListAndWatch stream closed, registering again"),
            SetTimer("register", now + self.settings.retry_register_s),
        ]

    def stop(self) -> list[Effect]:
        self.phase = Phase.ENDED
        return [StopServing(), Exit(0, "stopped")]

    def devices(self) -> tuple[PluginDevice, ...]:
        """Every known device with its health, in physical-id order."""
        return tuple(
            PluginDevice(device_id=name, is_healthy=self._health[name]) for name in self._cards
        )

    def allocate(
        self, device_ids: tuple[str, ...], survey: Survey | DriverFailure
    ) -> AllocateAnswer:
        """Answer for one container; the driver was read anew just before, as the vendor does."""
        unknown = [name for name in device_ids if name not in self._cards]
        if unknown:
            raise AllocateError(f"plugin doesn't have device {unknown[0]}")
        if isinstance(survey, DriverFailure):
            raise AllocateError(f"get npus failed: {survey}")
        phys = [self._cards[name].phy_id for name in device_ids]
        if self.settings.answer == "runtime":
            envs = {
                "ASCEND_VISIBLE_DEVICES": ",".join(str(phy) for phy in sorted(phys)),
                "ASCEND_RUNTIME_OPTIONS": "",
            }
            return AllocateAnswer(envs=envs, devices=())
        paths = [
            "/dev/davinci_manager",
            "/dev/hisi_hdc",
            "/dev/devmm_svm",
            *(f"/dev/davinci{phy}" for phy in sorted(phys)),
        ]
        nodes = tuple(DeviceNode(host_path=path, container_path=path) for path in paths)
        return AllocateAnswer(envs={}, devices=nodes)

    def level(self, code: int) -> str:
        """Fault level of a code; an unlisted one isolates the card unless known to be mild."""
        if code in self._levels:
            return self._levels[code]
        severity = self._severities.get(code)
        return "SeparateNPU" if severity is None or severity > 1 else "NotHandleFault"

    def _driver_answered(self, outcome: Survey | DriverFailure, now: float) -> list[Effect]:
        if isinstance(outcome, Survey) and outcome.cards:
            self._take(outcome)
            self.phase = Phase.REGISTERING
            found = Log(
                f"driver {outcome.driver_version}: {len(outcome.cards)} x {outcome.chip_name}"
            )
            poll = SetTimer("probe", now + self.settings.poll_s)
            return [found, *self._serve_and_register(), poll]
        why = str(outcome) if isinstance(outcome, DriverFailure) else "the driver lists no card"
        retry_at = now + self.settings.driver_retry_s
        if retry_at > self._gives_up_at:
            self.phase = Phase.ENDED
            return [Exit(0, f"driver not ready in {self.settings.driver_timeout_s:g} s: {why}")]
        wait = f"driver not ready, next try in {self.settings.driver_retry_s:g} s: {why}"
        return [Log(wait), SetTimer("probe", retry_at)]

    def _serve_and_register(self) -> list[Effect]:
        return [
            Serve(self.settings.endpoint),
            Register(self.settings.resource, self.settings.endpoint),
        ]

    def _take(self, survey: Survey) -> bool:
        """Store new readings; says whether any device's health changed for the kubelet."""
        before = dict(self._health)
        for card in sorted(survey.cards, key=lambda card: card.phy_id):
            name = f"{self.settings.device_type}-{card.phy_id}"
            codes = set(card.codes)
            if card.health_status == NOT_READY:
                codes.add(CARD_DROP_CODE)
            elif card.codes_status != 0:
                self._cards.setdefault(name, card)
                self._health.setdefault(name, True)
                continue
            self._cards[name] = card
            self._health[name] = all(self.level(code) in HARMLESS_LEVELS for code in codes)
        return before != self._health
