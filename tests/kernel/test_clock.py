"""The virtual clock keeps order and never goes backwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kernel.clock import SIM_EPOCH_S, VirtualClock

delays = st.floats(min_value=0, max_value=1e6, allow_nan=False)


@given(st.lists(delays, max_size=40))
def test_events_run_in_time_order_and_ties_in_call_order(waits: list[float]) -> None:
    clock = VirtualClock()
    seen: list[tuple[float, int]] = []
    for index, wait in enumerate(waits):
        clock.call_later(wait, lambda index=index: seen.append((clock.now(), index)))
    while clock.step():
        pass
    assert seen == sorted((wait, index) for index, wait in enumerate(waits))


def test_lower_priority_number_goes_first_at_one_time() -> None:
    clock = VirtualClock()
    seen: list[str] = []
    clock.call_later(1, lambda: seen.append("late"), priority=5)
    clock.call_later(1, lambda: seen.append("early"), priority=-5)
    clock.advance_to(1)
    assert seen == ["early", "late"]


def test_cancelled_action_never_runs_and_does_not_hold_time() -> None:
    clock = VirtualClock()
    clock.call_later(5, lambda: pytest.fail("cancelled action ran")).cancel()
    assert clock.next_at() is None
    clock.advance_to(10)
    assert clock.now() == 10
    assert clock.epoch() == SIM_EPOCH_S + 10


@pytest.mark.parametrize("delay", [-1.0, float("nan")])
def test_negative_delay_is_refused(delay: float) -> None:
    with pytest.raises(ValueError, match="backwards"):
        VirtualClock().call_later(delay, lambda: None)


def test_advance_to_the_past_is_refused() -> None:
    clock = VirtualClock()
    clock.advance_to(3)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance_to(2)


def test_run_until_stops_at_the_first_moment_the_claim_holds() -> None:
    clock = VirtualClock()
    done: list[int] = []
    for second in range(1, 10):
        clock.call_later(second, lambda second=second: done.append(second))
    assert clock.run_until(lambda: 4 in done, within_s=60)
    assert clock.now() == 4
    assert not clock.run_until(lambda: 99 in done, within_s=2.5)
    assert clock.now() == 6.5
