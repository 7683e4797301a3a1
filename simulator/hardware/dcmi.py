"""What libdcmi.so answers, computed from the hardware model: the Python twin of the C library.

Each call answers (return code, value); a failed call's value is zero or empty. The codes are those
of the published driver (hicann/driver:src/custom/dev_prod/user/dcmi) as its clients see them.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.hardware.model import Card, Hardware

OK = 0
INVALID_PARAMETER = -8001
INNER_ERROR = -8005
NOT_READY = -8012
NOT_SUPPORTED = -8255
TYPE_NPU = 0
BOOTED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipInfo:
    """Identity of one chip."""

    chip_type: str = ""
    chip_name: str = ""
    chip_version: str = ""
    aicore_count: int = 0
    npu_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardInfo:
    """The board a chip sits on."""

    board_id: int = 0
    pcb_id: int = 0
    bom_id: int = 0
    slot_id: int = 0


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

    def __init__(self, hardware: Hardware, *, has_image: bool = True) -> None:
        self._hardware = hardware
        self._has_image = has_image
        self._is_open = False

    def init(self) -> int:
        self._is_open = self._has_image
        return OK if self._has_image else INNER_ERROR

    def card_list(self) -> tuple[int, tuple[int, ...]]:
        if not self._is_open:
            return INNER_ERROR, ()
        return OK, self._hardware.listed_cards()

    def device_num_in_card(self, card: int) -> tuple[int, int]:
        return self._identity(card, 0, 1)

    def device_logic_id(self, card: int, device: int) -> tuple[int, int]:
        if not self._is_open:
            return NOT_READY, 0
        ret, found = self._find(card, device)
        return ret, found.logic_id if found else 0

    def phy_id(self, logic: int) -> tuple[int, int]:
        for card in self._hardware:
            if card.logic_id == logic and self._is_listed(card):
                return OK, card.phy_id
        return INVALID_PARAMETER, 0

    def logic_id(self, phy: int) -> tuple[int, int]:
        for card in self._hardware:
            if card.phy_id == phy and self._is_listed(card):
                return OK, card.logic_id
        return INVALID_PARAMETER, 0

    def card_device(self, logic: int) -> tuple[int, tuple[int, int]]:
        for card in self._hardware:
            if card.logic_id == logic and self._is_listed(card):
                return OK, (card.card_id, 0)
        return INVALID_PARAMETER, (0, 0)

    def device_type(self, card: int, device: int) -> tuple[int, int]:
        return self._identity(card, device, TYPE_NPU)

    def chip_info(self, card: int, device: int) -> tuple[int, ChipInfo]:
        ret, found = self._find(card, device)
        if found is None:
            return ret, ChipInfo()
        profile = self._hardware.profile
        return OK, ChipInfo(
            chip_type=profile.chip_type,
            chip_name=profile.chip_name,
            chip_version=profile.chip_version,
            aicore_count=profile.aicore_count,
            npu_name=profile.chip_name,
        )

    def board_info(self, card: int, device: int) -> tuple[int, BoardInfo]:
        ret, found = self._find(card, device)
        if found is None:
            return ret, BoardInfo()
        profile = self._hardware.profile
        return OK, BoardInfo(
            board_id=profile.board_id,
            pcb_id=profile.pcb_id,
            bom_id=profile.bom_id,
            slot_id=found.slot_id,
        )

    def health(self, card: int, device: int) -> tuple[int, int]:
        ret, found = self._alive(card, device)
        return ret, found.health if found else 0

    def error_codes(self, card: int, device: int) -> tuple[int, tuple[int, ...]]:
        ret, found = self._alive(card, device)
        return ret, tuple(found.faults) if found else ()

    def dcmi_version(self) -> tuple[int, str]:
        return OK, self._hardware.profile.dcmi_version

    def driver_version(self) -> tuple[int, str]:
        if not self._is_open:
            return INNER_ERROR, ""
        return OK, self._hardware.driver_version

    def power(self, card: int, device: int) -> tuple[int, int]:
        """Power in units of 0.1 W."""
        ret, found = self._alive(card, device)
        return ret, round(found.power_w * 10) if found else 0

    def temperature(self, card: int, device: int) -> tuple[int, int]:
        ret, found = self._alive(card, device)
        return ret, found.temp_c if found else 0

    def hbm(self, card: int, device: int) -> tuple[int, HbmInfo]:
        ret, found = self._alive(card, device)
        if found is None:
            return ret, HbmInfo()
        return OK, HbmInfo(
            size_mb=self._hardware.profile.hbm_mb,
            frequency_mhz=1600,
            used_mb=found.hbm_used_mb,
            temp_c=found.temp_c,
        )

    def boot_status(self, card: int, device: int) -> tuple[int, int]:
        ret, found = self._alive(card, device)
        return ret, BOOTED if found else 0

    def product_type(self, card: int, device: int) -> tuple[int, str]:
        ret, found = self._find(card, device)
        return (NOT_SUPPORTED if found else ret), ""

    def _is_listed(self, card: Card) -> bool:
        return self._is_open and card.card_id in self._hardware.listed_cards()

    def _find(self, card_id: int, device: int) -> tuple[int, Card | None]:
        for card in self._hardware:
            if card.card_id == card_id and device == 0 and self._is_listed(card):
                return OK, card
        return INVALID_PARAMETER, None

    def _alive(self, card_id: int, device: int) -> tuple[int, Card | None]:
        ret, card = self._find(card_id, device)
        if card is not None and card.is_dropped:
            return NOT_READY, None
        return ret, card

    def _identity(self, card_id: int, device: int, value: int) -> tuple[int, int]:
        ret, found = self._find(card_id, device)
        return ret, value if found else 0
