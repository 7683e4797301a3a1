"""Equal runs give equal bytes; streams of chance do not disturb each other."""

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from simulator.kernel.chance import Chance
from simulator.kernel.clock import VirtualClock
from simulator.kernel.journal import Journal

fields = st.dictionaries(
    st.text(min_size=1).filter(lambda key: key not in ("t", "kind", "self")),
    st.one_of(st.integers(), st.text(), st.booleans(), st.none()),
    max_size=5,
)


@given(fields)
def test_field_order_does_not_change_the_bytes(entry: dict[str, object]) -> None:
    forward, backward = Journal(lambda: 1.0), Journal(lambda: 1.0)
    forward.record("k", **entry)
    backward.record("k", **dict(reversed(list(entry.items()))))
    assert forward.text() == backward.text()
    assert json.loads(forward.text()) == {"t": 1.0, "kind": "k", **entry}


def test_sink_and_listener_get_every_entry_at_once() -> None:
    clock, sink, heard = VirtualClock(), io.StringIO(), []
    journal = Journal(clock.now, sink)
    journal.listen(lambda entry: heard.append(entry.kind))
    clock.call_later(0.1234567, lambda: journal.record("tick", card=3))
    clock.advance_to(1)
    assert sink.getvalue() == journal.text() == '{"card":3,"kind":"tick","t":0.123457}\n'
    assert heard == ["tick"]


@given(st.integers(), st.integers(min_value=0, max_value=20))
def test_drawing_from_one_stream_does_not_shift_another(seed: int, draws: int) -> None:
    quiet, busy = Chance(seed), Chance(seed)
    for _ in range(draws):
        busy.stream("other").random()
    assert quiet.uid("pods") == busy.uid("pods")
    assert quiet.uid("pods") != Chance(seed + 1).uid("pods")
