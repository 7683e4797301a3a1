"""Products: the identity values clients look at, and what cannot be."""

from __future__ import annotations

import re

import pytest

from simulator.hardware.model import Hardware
from simulator.hardware.profile import build, derive, load_profile, names

# What the vendor's device manager makes of chip name and board id
# (Ascend/mind-cluster:component/ascend-common/devmanager/common, in this order).
A3_BOARDS = {0xB0, 0xB1, 0xB2, 0xB3, 0xB4, 0x81, 0x83, 0xD1, 0xD3}


def device_type(name: str, board_id: int) -> str:
    if board_id in A3_BOARDS:
        return "910A3"
    if name.startswith("Ascend950"):
        return "950"
    if re.match(r"(310P|I2)\d?", name):
        return "310P"
    if "310" in name:
        return "310"
    if re.match(r"(910B|A2G)\d", name):
        return "910B"
    return "910A" if name.startswith("910") else "?"


@pytest.mark.parametrize("name", names())
def test_clients_recognise_every_product(name: str) -> None:
    profile = load_profile(name)
    assert device_type(profile.chip_name, profile.board_id) == profile.family
    hardware = Hardware(profile)
    assert len(hardware) == profile.cards * profile.chips_per_card
    assert sorted(chip.logic_id for chip in hardware) == list(range(len(hardware)))


def test_the_products_the_field_has_are_there() -> None:
    chips = {load_profile(name).chip_name for name in names()}
    assert chips >= {
        "910B1",
        "910B2",
        "910B2C",
        "910B3",
        "910B4",
        "910B4-1",
        "910A",
        "310P3",
        "310",
    }
    a3 = load_profile("atlas-900-a3-superpod")
    assert (a3.cards, a3.chips_per_card, a3.super_pod_size) == (8, 2, 384)
    assert load_profile("atlas-200t-a2-box16").cards == 16
    assert load_profile("atlas-300i-duo-310p3").chips_per_card == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"family": "910C"}, "family"),
        ({"cards": 0}, "cards"),
        ({"cards": 65}, "cards"),
        ({"chips_per_card": 5}, "chips_per_card"),
        ({"reset_ring": 0}, "reset_ring"),
        ({"idle_power_w": 500.0}, "idle_power_w"),
        ({"idle_hbm_mb": 70000}, "idle_hbm_mb"),
        ({"chip_name": "x" * 32}, "chip_name"),
        ({"vnpu_templates": ("vir77",)}, "vnpu_templates"),
    ],
)
def test_impossible_products_name_the_field(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} is "):
        derive("atlas-800t-a2-910b3", "x", changes)


def test_unknown_fields_are_named() -> None:
    with pytest.raises(ValueError, match="colour"):
        build("x", {"colour": "red"})


def test_sixty_four_cards_with_other_physical_ids() -> None:
    profile = load_profile("atlas-800t-a2-910b3")
    phy_ids = tuple(range(100, 164))
    hardware = Hardware(profile, cards=64, phy_ids=phy_ids)
    assert [chip.phy_id for chip in hardware] == list(phy_ids)
    found = hardware.by_phy(163)
    assert found is not None
    assert found.logic_id == 63
    with pytest.raises(ValueError, match="64 different"):
        Hardware(profile, cards=64, phy_ids=(1, 1))
