"""vNPU slices of one chip: create, destroy, occupy; what is left. A pure state machine.

Rules: a slice takes a template's AI cores, AI CPUs and memory; ids come from a range of their own
per chip and are not given again while the slice lives; a slice that a container uses cannot be
destroyed; a leaking one stays "in use" after its container is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simulator.hardware.profile import Profile, Template, templates

FIRST_ID = 100
IDS_PER_CHIP = 16
MAX_SLICES = 16
CHOOSE = 0xFFFFFFFF

OK = 0
UNKNOWN_TEMPLATE = -8001
BUSY = -8013
NO_RESOURCES = -8005
NOT_SUPPORTED = -8255


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One vNPU; `container` is the hash of the container that uses it, 0 when it is free."""

    vdev_id: int
    template: Template
    container: int = 0
    leaks: bool = False

    @property
    def is_used(self) -> bool:
        return self.container != 0


class Slices:
    """The slices of the chip with physical id `phy_id`."""

    def __init__(self, profile: Profile, phy_id: int) -> None:
        self._profile = profile
        self._first = FIRST_ID + phy_id * IDS_PER_CHIP
        self._slices: dict[int, Slice] = {}

    def __iter__(self) -> Iterator[Slice]:
        return iter(self._slices.values())

    def __len__(self) -> int:
        return len(self._slices)

    def get(self, vdev_id: int) -> Slice | None:
        return self._slices.get(vdev_id)

    def free(self) -> Template:
        """What is not taken yet, in the shape of a template."""
        taken = [one.template for one in self._slices.values()]
        memory = self._profile.hbm_mb or self._profile.ddr_mb
        return Template(
            name="free",
            aicores=self._profile.aicore_count - sum(t.aicores for t in taken),
            aicpus=max(0, self._profile.aicpu_count - sum(t.aicpus for t in taken)),
            memory_mb=memory - sum(t.memory_mb for t in taken),
            media=max(0, 8 - sum(t.media for t in taken)),
        )

    def create(self, template: str, vdev_id: int = CHOOSE) -> tuple[int, int]:
        """(code, id of the new slice)."""
        if not self._profile.vnpu_templates:
            return NOT_SUPPORTED, 0
        if template not in self._profile.vnpu_templates:
            return UNKNOWN_TEMPLATE, 0
        wanted, left = templates(self._profile.family)[template], self.free()
        ids = range(self._first, self._first + MAX_SLICES)
        if vdev_id == CHOOSE:
            vdev_id = next((n for n in ids if n not in self._slices), 0)
        elif vdev_id not in ids or vdev_id in self._slices:
            return UNKNOWN_TEMPLATE, 0
        if vdev_id == 0 or wanted.aicores > left.aicores or wanted.memory_mb > left.memory_mb:
            return NO_RESOURCES, 0
        self._slices[vdev_id] = Slice(vdev_id=vdev_id, template=wanted)
        return OK, vdev_id

    def destroy(self, vdev_id: int) -> int:
        found = self._slices.get(vdev_id)
        if found is None:
            return UNKNOWN_TEMPLATE
        if found.is_used:
            return BUSY
        del self._slices[vdev_id]
        return OK

    def occupy(self, vdev_id: int, container: int) -> None:
        self._slices[vdev_id] = replace(self._slices[vdev_id], container=container)

    def release(self, container: int) -> None:
        """The container is gone; a leaking slice does not notice."""
        for one in list(self._slices.values()):
            if one.container == container and not one.leaks:
                self._slices[one.vdev_id] = replace(one, container=0)

    def set_leaking(self, vdev_id: int, leaks: bool) -> None:
        self._slices[vdev_id] = replace(self._slices[vdev_id], leaks=leaks)

    def clear(self) -> None:
        self._slices.clear()

    def snapshot(self) -> list[tuple[int, str]]:
        """What outlives a restart of the node: ids and templates."""
        return [(one.vdev_id, one.template.name) for one in self._slices.values()]

    def restore(self, kept: list[tuple[int, str]]) -> None:
        for vdev_id, template in kept:
            self.create(template, vdev_id)
