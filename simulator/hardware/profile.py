"""Products: what one server's cards are, from the shipped catalogue or built from values.

Data: `data/profiles.toml` and `data/vnpu_templates.toml`, with their sources. A profile is checked
when it is made: an impossible one raises ValueError that names the field.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

FAMILIES = ("310", "310P", "910A", "910B", "910A3", "950")
MAX_CARDS = 64
MAX_CHIPS_PER_CARD = 4
MAX_CHIPS = 192  # each card may carry an MCU besides, and the image holds 256 of both


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A vNPU template; memory in MB, media units in eighths of the chip's."""

    name: str
    aicores: int
    aicpus: int
    memory_mb: int
    media: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one product's cards are; sizes in MB, power in W (of a card), clocks in MHz, times in
    seconds, temperature in degrees C, link speed in Mb/s (0: no RoCE port)."""

    name: str
    family: str
    product: str
    chip_name: str
    board_id: int
    aicore_count: int
    hbm_mb: int
    rated_power_w: float
    npu_name: str = ""
    chip_type: str = "Ascend"
    chip_version: str = "V1"
    pcb_id: int = 1
    bom_id: int = 1
    mainboard_id: int = 0
    cards: int = 8
    chips_per_card: int = 1
    has_mcu: bool = True
    aicpu_count: int = 7
    ddr_mb: int = 0
    driver_version: str = "25.2.0"
    dcmi_version: str = "25.2.0"
    pci_vendor: int = 0x19E5
    pci_device: int = 0xD802
    first_bus: int = 0xC1
    aicore_mhz: int = 1800
    hbm_mhz: int = 1600
    ddr_mhz: int = 0
    ctrlcpu_mhz: int = 2000
    idle_power_w: float = 93.4
    idle_temp_c: int = 41
    idle_hbm_mb: int = 3391
    boot_s: float = 30
    reset_ring: int = 8
    link_mbps: int = 200000
    has_hccs: bool = True
    fans: int = 0
    product_type: str = ""
    super_pod_size: int = 0
    vnpu_templates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        def wrong(field: str, wanted: str) -> ValueError:
            return ValueError(f"{field} is {getattr(self, field)!r}, wanted {wanted}")

        if self.family not in FAMILIES:
            raise wrong("family", f"one of {', '.join(FAMILIES)}")
        if not 1 <= self.cards <= MAX_CARDS:
            raise wrong("cards", f"1 to {MAX_CARDS}")
        if not 1 <= self.chips_per_card <= MAX_CHIPS_PER_CARD:
            raise wrong("chips_per_card", f"1 to {MAX_CHIPS_PER_CARD}")
        if not 1 <= self.reset_ring <= MAX_CHIPS:
            raise wrong("reset_ring", "the number of chips that reset together, 1 or more")
        if not 0 < self.idle_power_w <= self.rated_power_w:
            raise wrong("idle_power_w", "more than 0 and at most rated_power_w")
        if self.idle_hbm_mb > self.hbm_mb:
            raise wrong("idle_hbm_mb", f"at most hbm_mb, {self.hbm_mb}")
        for field in ("chip_name", "chip_type", "chip_version", "npu_name"):
            if len(getattr(self, field).encode()) > 31:
                raise wrong(field, "at most 31 bytes")
        known = templates(self.family)
        if any(name not in known for name in self.vnpu_templates):
            raise wrong("vnpu_templates", f"some of {', '.join(known)}")


@functools.cache
def _data(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(f"data/{name}").read_text())


def names() -> tuple[str, ...]:
    """The shipped products."""
    return tuple(sorted(name for name in _data("profiles.toml") if name != "defaults"))


@functools.cache
def load_profile(name: str) -> Profile:
    """A shipped product by name."""
    if name not in names():
        raise LookupError(f"profile {name!r} is unknown, allowed: {', '.join(names())}")
    table = _data("profiles.toml")
    return build(name, {**table["defaults"], **table[name]})


def derive(base: str, name: str, changes: Mapping[str, Any]) -> Profile:
    """A shipped product with some values changed."""
    return dataclasses.replace(load_profile(base), name=name, **changes)


def build(name: str, values: Mapping[str, Any]) -> Profile:
    known = {field.name for field in dataclasses.fields(Profile)}
    unknown = set(values) - known
    if unknown:
        raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
    values = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    return Profile(name=name, **values)


@functools.cache
def templates(family: str) -> dict[str, Template]:
    """Every vNPU template by name, as a family's products have it."""
    table = _data("vnpu_templates.toml")
    rows = {name: row for name, row in table.items() if name not in FAMILIES}
    rows |= table.get(family, {})
    return {name: Template(name=name, **row) for name, row in rows.items()}


def c_table() -> str:
    """`smi/templates.h`: the templates of each chip, for npu-smi's table."""
    chips = {load_profile(name).chip_name: load_profile(name) for name in names()}
    lines = [
        "/* Generated by `python -m simulator.hardware.profile`; do not edit. */",
        "static const struct vnpu_template {",
        "    const char *chip;",
        "    const char *name;",
        "    unsigned int cores;",
        "    unsigned int memory_gb;",
        "    unsigned int cpus;",
        "    int media;",
        "} vnpu_templates[] = {",
    ]
    for chip, profile in sorted(chips.items()):
        for name in profile.vnpu_templates:
            found = templates(profile.family)[name]
            lines.append(
                f'    {{"{chip}", "{name}", {found.aicores}, {found.memory_mb // 1024},'
                f" {found.aicpus}, {found.media}}},"
            )
    return "\n".join([*lines, "};", ""])


if __name__ == "__main__":
    print(c_table(), end="")
