"""The plugin's decisions: driver wait, registration, health, allocation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.plugin.core import (
    AllocateError,
    Exit,
    Phase,
    PluginCore,
    PluginSettings,
    Probe,
    Register,
    SendDevices,
    Serve,
    SetTimer,
    StopServing,
)
from simulator.plugin.survey import CardReading, DriverFailure, Survey

HARMLESS, SEVERE = 0x81078603, 0x80E24E00
LEVELS = {HARMLESS: "NotHandleFault", SEVERE: "RestartNPU", 0x40F84E00: "RestartNPU"}


def reading(phy: int, *codes: int, health_status: int = 0, codes_status: int = 0) -> CardReading:
    return CardReading(
        card_id=phy,
        device_id=0,
        logic_id=phy,
        phy_id=phy,
        health_status=health_status,
        health=0,
        codes_status=codes_status,
        codes=codes,
    )


def survey_of(*cards: CardReading) -> Survey:
    return Survey(chip_name="910B3", driver_version="25.2.0", cards=cards)


def registered(**settings: object) -> PluginCore:
    core = PluginCore(PluginSettings(**settings), LEVELS)  # type: ignore[arg-type]
    core.start(0)
    core.probed(survey_of(*(reading(phy) for phy in range(8))), 0)
    core.registered(0)
    core.stream_opened(0)
    return core


def healthy(core: PluginCore) -> list[int]:
    return [int(d.device_id.split("-")[1]) for d in core.devices() if d.is_healthy]


def test_finds_cards_then_serves_before_it_registers() -> None:
    core = PluginCore(PluginSettings(), LEVELS)
    assert core.start(0) == [Probe()]
    effects = core.probed(survey_of(reading(0)), 0)
    kinds = [type(effect) for effect in effects]
    assert kinds.index(Serve) < kinds.index(Register)
    assert Register("huawei.com/Ascend910", "Ascend910.sock") in effects
    assert core.phase is Phase.REGISTERING


@pytest.mark.parametrize("outcome", [DriverFailure("dcmi_init", "returned -8005"), survey_of()])
def test_waits_for_the_driver_and_ends_with_status_zero(outcome: Survey | DriverFailure) -> None:
    core = PluginCore(PluginSettings(driver_timeout_s=25), LEVELS)
    core.start(0)
    assert SetTimer("probe", 10) in core.probed(outcome, 0)
    assert SetTimer("probe", 20) in core.probed(outcome, 10)
    (end,) = core.probed(outcome, 20)
    assert isinstance(end, Exit)
    assert end.status == 0
    assert "driver not ready in 25 s" in end.text
    assert core.phase is Phase.ENDED


def test_refused_registration_closes_the_socket_and_tries_again() -> None:
    core = PluginCore(PluginSettings(), LEVELS)
    core.start(0)
    core.probed(survey_of(reading(0)), 0)
    effects = core.register_failed("no such file", 1)
    assert StopServing() in effects
    assert SetTimer("register", 6) in effects
    assert Serve("Ascend910.sock") in core.timer("register", 6)


def test_severe_fault_takes_the_card_out_and_recovery_brings_it_back() -> None:
    core = registered()
    effects = core.probed(
        survey_of(*(reading(p, *([SEVERE] if p == 3 else [])) for p in range(8))), 5
    )
    assert healthy(core) == [0, 1, 2, 4, 5, 6, 7]
    assert any(isinstance(effect, SendDevices) for effect in effects)
    core.probed(survey_of(*(reading(p) for p in range(8))), 10)
    assert healthy(core) == list(range(8))


def test_unchanged_health_sends_nothing() -> None:
    core = registered()
    effects = core.probed(survey_of(*(reading(p, HARMLESS) for p in range(8))), 5)
    assert not any(isinstance(effect, SendDevices) for effect in effects)


def test_dropped_card_is_unhealthy_and_keeps_its_name() -> None:
    core = registered()
    core.probed(survey_of(*(reading(p, health_status=-8012 if p == 2 else 0) for p in range(8))), 5)
    assert healthy(core) == [0, 1, 3, 4, 5, 6, 7]
    assert len(core.devices()) == 8


def test_card_whose_error_list_fails_keeps_its_old_state() -> None:
    core = registered()
    core.probed(survey_of(reading(0, SEVERE)), 5)
    core.probed(survey_of(reading(0, codes_status=-8006)), 10)
    assert 0 not in healthy(core)


@pytest.mark.parametrize(
    ("severity", "level"),
    [(None, "SeparateNPU"), (0, "NotHandleFault"), (1, "NotHandleFault"), (2, "SeparateNPU")],
)
def test_unlisted_code_is_judged_by_the_severity_seen(severity: int | None, level: str) -> None:
    core = registered()
    if severity is not None:
        assert core.fault_event(0xDEAD, severity) == [Probe()]
    assert core.level(0xDEAD) == level


def test_closed_stream_makes_it_register_again_unless_told_not_to_notice() -> None:
    core = registered()
    assert SetTimer("register", 105) in core.stream_closed(100)
    blind = registered(notices_kubelet_restart=False)
    assert not any(isinstance(effect, SetTimer) for effect in blind.stream_closed(100))
    assert blind.phase is Phase.REGISTERED


@given(
    st.permutations(range(8)).flatmap(lambda ids: st.sampled_from([ids[:n] for n in range(1, 9)]))
)
def test_both_answer_styles_name_exactly_the_cards_asked_for(ids: list[int]) -> None:
    names = tuple(f"Ascend910-{phy}" for phy in ids)
    survey = survey_of(*(reading(p) for p in range(8)))
    by_runtime = registered().allocate(names, survey)
    assert by_runtime.envs["ASCEND_VISIBLE_DEVICES"] == ",".join(map(str, sorted(ids)))
    assert by_runtime.devices == ()
    by_devices = registered(answer="devices").allocate(names, survey)
    cards = [node.host_path for node in by_devices.devices if node.host_path[-1].isdigit()]
    assert cards == [f"/dev/davinci{phy}" for phy in sorted(ids)]
    assert by_devices.envs == {}


def test_allocate_refuses_unknown_ids_and_an_unreadable_driver() -> None:
    core = registered()
    with pytest.raises(AllocateError, match="Ascend910-9"):
        core.allocate(("Ascend910-9",), survey_of())
    with pytest.raises(AllocateError, match="returned -8012"):
        core.allocate(("Ascend910-0",), DriverFailure("dcmi_get_device_logic_id", "returned -8012"))
