"""From the hardware model to the image that vendor software reads. Pure."""

from __future__ import annotations

from fake_dcmi.image import ChipState, NodeState
from simulator.hardware.dcmi import BOOTED
from simulator.hardware.model import Card, Hardware

NETWORK_UNCONFIGURED = 6


def image_state(hardware: Hardware) -> NodeState:
    """Everything the driver shows now; cards that are not listed are left out."""
    profile = hardware.profile
    listed = hardware.listed_cards()
    return NodeState(
        driver_version=hardware.driver_version,
        dcmi_version=profile.dcmi_version,
        tool_version=hardware.driver_version,
        chips=tuple(_chip(hardware, card) for card in hardware if card.card_id in listed),
    )


def _chip(hardware: Hardware, card: Card) -> ChipState:
    profile = hardware.profile
    utilization = [0] * 16
    utilization[2] = card.aicore_pct
    utilization[6] = card.hbm_used_mb * 100 // profile.hbm_mb
    die = tuple(0x9E3779B9 * (card.card_id + 1) * (part + 1) & 0xFFFFFFFF for part in range(5))
    return ChipState(
        card_id=card.card_id,
        device_id=0,
        logic_id=card.logic_id,
        phy_id=card.phy_id,
        error_codes=tuple(card.faults),
        values={
            "is_dropped": int(card.is_dropped),
            "board_id": profile.board_id,
            "pcb_id": profile.pcb_id,
            "bom_id": profile.bom_id,
            "slot_id": card.slot_id,
            "mainboard_id": profile.mainboard_id,
            "aicore_count": profile.aicore_count,
            "health": card.health,
            "network_health": NETWORK_UNCONFIGURED,
            "boot_status": BOOTED,
            "power_dw": round(card.power_w * 10),
            "rated_power_w": int(profile.rated_power_w),
            "temp_c": card.temp_c,
            "voltage_cv": 85,
            "aicore_mhz": 1800,
            "hbm_mhz": 1600,
            "hbm_mb": profile.hbm_mb,
            "hbm_used_mb": card.hbm_used_mb,
            "pci_vendor": profile.pci_vendor,
            "pci_device": profile.pci_device,
            "pci_bus": card.bus,
            "utilization_pct": tuple(utilization),
            "vdie": die,
            "ndie": die[::-1],
            "ip": (10, 20, 0, 11 + card.card_id),
            "netmask": (255, 255, 0, 0),
            "chip_type": profile.chip_type,
            "chip_name": profile.chip_name,
            "chip_version": profile.chip_version,
            "npu_name": profile.chip_name,
            "affinity": f"{card.card_id * 24}-{card.card_id * 24 + 23}",
            "product": profile.product,
            "serial": f"TESTBED{card.card_id:05d}",
        },
    )
