"""What libdcmi.so answers, computed from the hardware model: the driver as virtual time has it.

Each call answers (return code, value); a failed call's value is zero or empty. The codes are those
of the published driver (hicann/driver:src/custom/dev_prod/user/dcmi) as its clients see them. Only
the calls that the testbed's own plugin and gates make are here; a test compares them with the C
library call by call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from simulator.hardware.model import Chip, Hardware
from simulator.hardware.script import CallScript, Rule

OK = 0
INVALID_PARAMETER = -8001
INNER_ERROR = -8005
TIME_OUT = -8006
NOT_READY = -8012
NOT_SUPPORTED = -8255
TYPE_NPU, TYPE_MCU = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipInfo:
    """Identity of one chip."""

    chip_type: str = ""
    chip_name: str = ""
    chip_version: str = ""
    aicore_count: int = 0
    npu_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HbmInfo:
    """High-bandwidth memory: sizes in MB, frequency in MHz, temperature in C, bandwidth in %."""

    size_mb: int = 0
    frequency_mhz: int = 0
    used_mb: int = 0
    temp_c: int = 0
    bandwidth_pct: int = 0


class ModelDcmi:
    """One process's view of the driver. `has_image` false: the library has nothing to show."""

    def __init__(
        self,
        hardware: Hardware,
        *,
        has_image: bool = True,
        now: Callable[[], float] = lambda: 0.0,
        rules: Callable[[], tuple[Rule, ...]] = tuple,
        script: CallScript | None = None,
    ) -> None:
        self._hardware = hardware
        self._has_image = has_image
        self._now = now
        self._rules = rules
        self._script = script or CallScript()
        self._is_open = False

    def init(self) -> int:
        self._is_open = self._has_image
        if not self._has_image:
            return INNER_ERROR
        if code := self._scripted("dcmi_init", None, None):
            return code
        return NOT_SUPPORTED if self._hardware.profile.family == "950" else OK

    def card_list(self) -> tuple[int, tuple[int, ...]]:
        if not self._is_open:
            return INNER_ERROR, ()
        if code := self._scripted("dcmi_get_card_list", None, None):
            return code, ()
        return OK, self._hardware.listed_cards()

    def device_num_in_card(self, card: int) -> tuple[int, int]:
        name = "dcmi_get_device_num_in_card"
        return self._identity(name, card, 0, self._hardware.profile.chips_per_card)

    def device_logic_id(self, card: int, device: int) -> tuple[int, int]:
        if not self._is_open:
            return NOT_READY, 0
        code, found = self._find("dcmi_get_device_logic_id", card, device)
        return code, found.logic_id if found else 0

    def phy_id(self, logic: int) -> tuple[int, int]:
        code, chip = self._by("dcmi_get_device_phyid_from_logicid", logic_id=logic)
        return code, chip.phy_id if chip else 0

    def logic_id(self, phy: int) -> tuple[int, int]:
        code, chip = self._by("dcmi_get_device_logicid_from_phyid", phy_id=phy)
        return code, chip.logic_id if chip else 0

    def card_device(self, logic: int) -> tuple[int, tuple[int, int]]:
        code, chip = self._by("dcmi_get_card_id_device_id_from_logicid", logic_id=logic)
        return code, (chip.card_id, chip.device_id) if chip else (0, 0)

    def device_type(self, card: int, device: int) -> tuple[int, int]:
        if self._is_mcu(card, device):
            return OK, TYPE_MCU
        return self._identity("dcmi_get_device_type", card, device, TYPE_NPU)

    def chip_info(self, card: int, device: int) -> tuple[int, ChipInfo]:
        code, found = self._find("dcmi_get_device_chip_info_v2", card, device)
        if found is None:
            return code, ChipInfo()
        profile = self._hardware.profile
        return OK, ChipInfo(
            chip_type=profile.chip_type,
            chip_name=profile.chip_name,
            chip_version=profile.chip_version,
            aicore_count=profile.aicore_count,
            npu_name=profile.npu_name or profile.chip_name,
        )

    def health(self, card: int, device: int) -> tuple[int, int]:
        if self._is_mcu(card, device):
            return self._mcu_code(card), 0
        code, found = self._alive("dcmi_get_device_health", card, device)
        return code, found.health if found else 0

    def error_codes(self, card: int, device: int) -> tuple[int, tuple[int, ...]]:
        if self._is_mcu(card, device):
            return self._mcu_code(card), ()
        code, found = self._alive("dcmi_get_device_errorcode_v2", card, device)
        return code, tuple(found.faults) if found else ()

    def dcmi_version(self) -> tuple[int, str]:
        if not self._is_open:
            return INNER_ERROR, ""
        return OK, self._hardware.profile.dcmi_version

    def driver_version(self) -> tuple[int, str]:
        if not self._is_open:
            return INNER_ERROR, ""
        return OK, self._hardware.driver_version

    def power(self, card: int, device: int) -> tuple[int, int]:
        """Power in units of 0.1 W."""
        code, found = self._alive("dcmi_get_device_power_info", card, device)
        return code, self._reading(found, "power_dw") if found else 0

    def temperature(self, card: int, device: int) -> tuple[int, int]:
        code, found = self._alive("dcmi_get_device_temperature", card, device)
        return code, self._reading(found, "temp_c") if found else 0

    def hbm(self, card: int, device: int) -> tuple[int, HbmInfo]:
        code, found = self._alive("dcmi_get_device_hbm_info", card, device)
        if found is None:
            return code, HbmInfo()
        return OK, HbmInfo(
            size_mb=found.pins.get("hbm_mb", self._hardware.profile.hbm_mb),
            frequency_mhz=found.pins.get("hbm_mhz", self._hardware.profile.hbm_mhz),
            used_mb=self._reading(found, "hbm_used_mb"),
            temp_c=self._reading(found, "hbm_temp_c"),
            bandwidth_pct=self._reading(found, "hbm_bandwidth_pct"),
        )

    def boot_status(self, card: int, device: int) -> tuple[int, int]:
        code, found = self._find("dcmi_get_device_boot_status", card, device)
        if found is None:
            return code, 0
        if found.alive and found.boot_started_s is None:
            return found.alive, 0
        return OK, self._hardware.boot_status(found, self._now())

    # --- inside

    def _reading(self, chip: Chip, name: str) -> int:
        value: int = getattr(self._hardware.readings(chip, self._now()), name)
        return chip.pins.get(name, value)

    def _scripted(self, function: str, card: int | None, device: int | None) -> int:
        """What the script answers, 0 when the call goes on. # deviates: in virtual time a call is
        an instant, so a delay shows nowhere and a hang answers -8006."""
        rules = self._rules()
        if not rules:
            return OK
        verdict = self._script.judge(rules, function, card, device)
        if verdict is None:
            return OK
        return TIME_OUT if verdict.hang and not verdict.code else verdict.code

    def _listed(self) -> Iterator[Chip]:
        listed = self._hardware.listed_cards() if self._is_open else ()
        return (chip for chip in self._hardware if chip.card_id in listed)

    def _by(self, function: str, **ids: int) -> tuple[int, Chip | None]:
        if not self._is_open:
            return INNER_ERROR, None
        if code := self._scripted(function, None, None):
            return code, None
        for chip in self._listed():
            if all(getattr(chip, name) == wanted for name, wanted in ids.items()):
                return OK, chip
        return INVALID_PARAMETER, None

    def _find(self, function: str, card_id: int, device: int) -> tuple[int, Chip | None]:
        if self._is_open and (code := self._scripted(function, card_id, device)):
            return code, None
        for chip in self._listed():
            if chip.card_id == card_id and chip.device_id == device:
                return OK, chip
        return NOT_SUPPORTED if self._is_mcu(card_id, device) else INVALID_PARAMETER, None

    def _is_mcu(self, card_id: int, device: int) -> bool:
        """A card's controller has the device id after its chips; most calls do not take it."""
        profile = self._hardware.profile
        is_listed = self._is_open and card_id in self._hardware.listed_cards()
        return profile.has_mcu and is_listed and device == profile.chips_per_card

    def _alive(self, function: str, card_id: int, device: int) -> tuple[int, Chip | None]:
        code, chip = self._find(function, card_id, device)
        return (chip.alive, None) if chip is not None and chip.alive else (code, chip)

    def _mcu_code(self, card: int) -> int:
        first = self._hardware.chip(card)
        return first.dropped_code if first.is_dropped else OK

    def _identity(self, function: str, card: int, device: int, value: int) -> tuple[int, int]:
        code, found = self._find(function, card, device)
        return code, value if found else 0
