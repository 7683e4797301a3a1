"""What a scenario can do to a testbed and see of it, whatever the testbed is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fake_kubelet.actions import Action
from simulator.gates import Probe
from simulator.hardware.model import FaultEvent, Hardware
from simulator.kernel.journal import Journal

Object = Mapping[str, Any]

# What a verb does to the cards at a time in seconds; it answers the events that follow.
Change = Callable[[Hardware, float], list[FaultEvent]]


class Testbed(Protocol):
    """A running node. Verbs act at once; `wait*` let scenario time pass. Times are seconds."""

    journal: Journal

    def wait(self, seconds: float) -> None: ...
    def wait_until(self, claim: Callable[[], bool], within_s: float) -> bool: ...
    def change_hardware(self, kind: str, fields: Mapping[str, Any], change: Change) -> None:
        """Note the change in the journal, make it, show it, and tell of the events it raised."""

    def stop_plugin(self) -> None: ...
    def start_plugin(self) -> None: ...
    def act_on_kubelet(self, action: Action) -> None:
        """Raises ScenarioError for what cannot be done."""

    def probe(self) -> Probe: ...
    def close(self) -> None: ...
