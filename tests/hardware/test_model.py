"""Cards, faults and what the driver answers about them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from simulator.hardware.dcmi import (
    INNER_ERROR,
    INVALID_PARAMETER,
    NOT_READY,
    NOT_SUPPORTED,
    ModelDcmi,
)
from simulator.hardware.faults import (
    FaultKind,
    Severity,
    catalogue,
    fault_levels,
    parse,
    plugin_codes,
)
from simulator.hardware.model import OCCURRED, RECOVERED, Hardware, load_profile

PROFILE = load_profile("atlas-800t-a2-910b3")
kinds = st.sampled_from(sorted(catalogue().values(), key=lambda kind: kind.code))
cards = st.integers(min_value=0, max_value=7)


def test_catalogue_holds_every_code_a_device_can_raise() -> None:
    assert len(catalogue()) == 797
    assert sum(map(len, fault_levels().values())) == 797
    assert parse("0x80E24E00") == parse("80e24e00") == catalogue()[0x80E24E00]
    assert catalogue()[0x80E24E00].level == "RestartNPU"


@pytest.mark.parametrize("text", ["", "xyz", "80E24E0F", "-1", "0x1FFFFFFFFF"])
def test_unknown_code_is_named_with_a_hint(text: str) -> None:
    with pytest.raises(LookupError, match="not one of the 797"):
        parse(text)


def test_codes_that_only_a_plugin_makes_are_told_apart() -> None:
    assert len(plugin_codes()) == 5
    assert len(catalogue()) + len(plugin_codes()) == 802
    for code in plugin_codes():
        with pytest.raises(LookupError, match="made by the device plugin itself"):
            parse(f"{code:X}")


def test_unknown_profile_and_card_name_the_choices() -> None:
    with pytest.raises(LookupError, match="atlas-800t-a2-910b3"):
        load_profile("atlas-900")
    with pytest.raises(LookupError, match="0, 1"):
        Hardware(PROFILE, cards=2).chip(2)


def test_before_init_and_without_image_the_driver_refuses() -> None:
    closed = ModelDcmi(Hardware(PROFILE))
    assert closed.card_list() == (INNER_ERROR, ())
    assert closed.device_logic_id(0, 0) == (NOT_READY, 0)
    assert ModelDcmi(Hardware(PROFILE), has_image=False).init() == INNER_ERROR


@given(st.integers(min_value=-5, max_value=300), st.integers(min_value=-2, max_value=4))
def test_unknown_ids_are_invalid_parameters_everywhere(card: int, device: int) -> None:
    dcmi = ModelDcmi(Hardware(PROFILE))
    dcmi.init()
    expected = 0 if card in range(8) and device == 0 else INVALID_PARAMETER
    if card in range(8) and device == 1:  # the card's controller, which most calls do not take
        assert dcmi.device_type(card, device) == (0, 1)
        assert dcmi.hbm(card, device)[0] == NOT_SUPPORTED
        return
    for call in (dcmi.health, dcmi.chip_info, dcmi.device_type, dcmi.power, dcmi.hbm):
        assert call(card, device)[0] == expected


class Faults(RuleBasedStateMachine):
    """Any order of faults, recoveries, drops and returns."""

    def __init__(self) -> None:
        super().__init__()
        self.hardware = Hardware(PROFILE)
        self.dcmi = ModelDcmi(self.hardware)
        self.dcmi.init()
        self.active: dict[int, dict[int, Severity]] = {card: {} for card in range(8)}
        self.dropped: set[int] = set()

    @rule(card=cards, kind=kinds)
    def inject(self, card: int, kind: FaultKind) -> None:
        is_new = kind.code not in self.active[card]
        events = self.hardware.inject(card, kind)
        assert [event.assertion for event in events] == ([OCCURRED] if is_new else [])
        self.active[card][kind.code] = kind.severity

    @rule(card=cards, data=st.data())
    def recover(self, card: int, data: st.DataObject) -> None:
        code = data.draw(st.sampled_from([*self.active[card], 0x1234]))
        events = self.hardware.recover(card, code)
        was_active = self.active[card].pop(code, None) is not None
        assert [event.assertion for event in events] == ([RECOVERED] if was_active else [])

    @rule(card=cards)
    def drop(self, card: int) -> None:
        self.hardware.drop(card)
        self.dropped.add(card)

    @rule(card=cards)
    def restore(self, card: int) -> None:
        self.hardware.restore(card)
        self.dropped.discard(card)

    @invariant()
    def answers_follow_the_state_and_ids_never_move(self) -> None:
        assert self.dcmi.card_list() == (0, tuple(range(8)))
        for card in range(8):
            assert self.dcmi.phy_id(self.dcmi.device_logic_id(card, 0)[1]) == (0, card)
            health, codes = self.dcmi.health(card, 0), self.dcmi.error_codes(card, 0)
            if card in self.dropped:
                assert health == (NOT_READY, 0)
                assert codes == (NOT_READY, ())
            else:
                assert health == (0, max(map(int, self.active[card].values()), default=0))
                assert codes == (0, tuple(self.active[card]))


TestFaults = Faults.TestCase
