"""Reading the driver: the calls a plugin makes on its way to a card list, in order.

Works on anything that answers DCMI calls (the real library through ctypes, or the model), because
every answer is a return code and a value. Makes no decision about health.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Dcmi(Protocol):
    """The calls needed here; each answers (return code, value)."""

    def init(self) -> int: ...
    def card_list(self) -> tuple[int, tuple[int, ...]]: ...
    def device_num_in_card(self, card: int) -> tuple[int, int]: ...
    def device_logic_id(self, card: int, device: int) -> tuple[int, int]: ...
    def phy_id(self, logic: int) -> tuple[int, int]: ...
    def chip_info(self, card: int, device: int) -> tuple[int, Any]: ...
    def health(self, card: int, device: int) -> tuple[int, int]: ...
    def error_codes(self, card: int, device: int) -> tuple[int, tuple[int, ...]]: ...
    def dcmi_version(self) -> tuple[int, str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReading:
    """One device: its ids, and what health and error list answered (code and value)."""

    card_id: int
    device_id: int
    logic_id: int
    phy_id: int
    health_status: int
    health: int
    codes_status: int
    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A complete reading of the driver."""

    chip_name: str
    driver_version: str
    cards: tuple[CardReading, ...]


@dataclass(frozen=True, slots=True)
class DriverFailure:
    """The driver could not be read: which step, and its answer."""

    step: str
    detail: str

    def __str__(self) -> str:
        return f"{self.step}: {self.detail}"


def survey(dcmi: Dcmi) -> Survey | DriverFailure:
    """Init, list, translate and read every device; one failing id query fails the whole."""
    if ret := dcmi.init():
        return DriverFailure("dcmi_init", f"returned {ret}")
    ret, cards = dcmi.card_list()
    if ret:
        return DriverFailure("dcmi_get_card_list", f"returned {ret}")
    readings: list[CardReading] = []
    chip_name = ""
    for card in cards:
        ret, count = dcmi.device_num_in_card(card)
        if ret:
            return DriverFailure("dcmi_get_device_num_in_card", f"card {card} returned {ret}")
        for device in range(count):
            reading = _read(dcmi, card, device)
            if isinstance(reading, DriverFailure):
                return reading
            readings.append(reading)
            if not chip_name:
                ret, info = dcmi.chip_info(card, device)
                chip_name = info.chip_name if not ret else ""
    if readings and not chip_name:
        return DriverFailure("dcmi_get_device_chip_info_v2", "no card gave its chip name")
    ret, version = dcmi.dcmi_version()
    return Survey(
        chip_name=chip_name, driver_version=version if not ret else "", cards=tuple(readings)
    )


def _read(dcmi: Dcmi, card: int, device: int) -> CardReading | DriverFailure:
    ret, logic = dcmi.device_logic_id(card, device)
    if ret:
        return DriverFailure("dcmi_get_device_logic_id", f"card {card} returned {ret}")
    ret, phy = dcmi.phy_id(logic)
    if ret:
        return DriverFailure(
            "dcmi_get_device_phyid_from_logicid", f"logic id {logic} returned {ret}"
        )
    health_status, health = dcmi.health(card, device)
    codes_status, codes = dcmi.error_codes(card, device)
    return CardReading(
        card_id=card,
        device_id=device,
        logic_id=logic,
        phy_id=phy,
        health_status=health_status,
        health=health,
        codes_status=codes_status,
        codes=tuple(codes),
    )
