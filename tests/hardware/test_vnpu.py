"""vNPU slices: they fit, they have ids of their own, and a used one stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simulator.hardware.profile import load_profile, names, templates
from simulator.hardware.vnpu import BUSY, NO_RESOURCES, NOT_SUPPORTED, UNKNOWN_TEMPLATE, Slices

PROFILE = load_profile("atlas-800i-a2-910b4")


@pytest.mark.parametrize("name", names())
def test_every_template_of_a_product_fits_it(name: str) -> None:
    profile = load_profile(name)
    for template in profile.vnpu_templates:
        code, vdev_id = Slices(profile, 3).create(template)
        assert (code, vdev_id) == (0, 148)
        assert vdev_id in range(100, 1124)


def test_other_templates_and_products_refuse() -> None:
    slices = Slices(PROFILE, 0)
    assert slices.create("vir99") == (UNKNOWN_TEMPLATE, 0)
    assert slices.create("vir06_1c_16g") == (UNKNOWN_TEMPLATE, 0)  # another product's
    assert Slices(load_profile("atlas-950-server"), 0).create("vir01") == (NOT_SUPPORTED, 0)


def test_wanted_ids_are_given_once() -> None:
    slices = Slices(PROFILE, 1)
    assert slices.create("vir05_1c_8g", 120) == (0, 120)
    assert slices.create("vir05_1c_8g", 120)[0] == UNKNOWN_TEMPLATE
    assert slices.create("vir05_1c_8g", 99)[0] == UNKNOWN_TEMPLATE


def test_used_slices_stay_and_leaking_ones_do_not_notice_the_end() -> None:
    slices = Slices(PROFILE, 0)
    _, vdev_id = slices.create("vir05_1c_8g")
    slices.occupy(vdev_id, 42)
    assert slices.destroy(vdev_id) == BUSY
    slices.set_leaking(vdev_id, True)
    slices.release(42)
    assert slices.destroy(vdev_id) == BUSY
    slices.set_leaking(vdev_id, False)
    slices.release(42)
    assert slices.destroy(vdev_id) == 0
    assert slices.destroy(vdev_id) == UNKNOWN_TEMPLATE


class Slicing(RuleBasedStateMachine):
    """Any order of creating, using, leaving and destroying."""

    def __init__(self) -> None:
        super().__init__()
        self.slices = Slices(PROFILE, 2)

    @rule(template=st.sampled_from(sorted(templates("910B"))))
    def create(self, template: str) -> None:
        before = self.slices.free()
        code, _ = self.slices.create(template)
        wanted = templates("910B")[template]
        if code == NO_RESOURCES:
            assert wanted.aicores > before.aicores or wanted.memory_mb > before.memory_mb
        else:
            assert (code == 0) == (template in PROFILE.vnpu_templates)

    @precondition(lambda self: len(self.slices) > 0)
    @rule(data=st.data(), container=st.integers(0, 3))
    def use(self, data: st.DataObject, container: int) -> None:
        one = data.draw(st.sampled_from(list(self.slices)))
        self.slices.occupy(one.vdev_id, container)

    @rule(container=st.integers(1, 3))
    def leave(self, container: int) -> None:
        self.slices.release(container)
        assert all(one.container != container for one in self.slices)

    @precondition(lambda self: len(self.slices) > 0)
    @rule(data=st.data())
    def destroy(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(list(self.slices)))
        assert self.slices.destroy(one.vdev_id) == (BUSY if one.is_used else 0)

    @invariant()
    def nothing_is_given_twice(self) -> None:
        left = self.slices.free()
        assert left.aicores >= 0
        assert left.memory_mb >= 0
        assert len({one.vdev_id for one in self.slices}) == len(self.slices)


TestSlicing = Slicing.TestCase


@given(st.lists(st.sampled_from(PROFILE.vnpu_templates), max_size=6))
def test_snapshot_brings_the_same_slices_back(wanted: list[str]) -> None:
    slices = Slices(PROFILE, 5)
    for template in wanted:
        slices.create(template)
    other = Slices(PROFILE, 5)
    other.restore(slices.snapshot())
    assert list(other) == list(slices)
