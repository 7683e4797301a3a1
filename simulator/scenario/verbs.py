"""The verbs that act on a testbed, carried out in one place for scenarios and for `inject`."""

from __future__ import annotations

import yaml

from fake_kubelet.actions import Action
from simulator.errors import ScenarioError
from simulator.scenario import hardware_verbs
from simulator.scenario.loader import loads
from simulator.scenario.schema import (
    STEPS,
    CreatePod,
    DeletePod,
    ExpectCard,
    ExpectNode,
    ExpectPod,
    RunGates,
    StartPlugin,
    Step,
    StopPlugin,
    Wait,
)
from simulator.testbed import Testbed

# Verbs that `npu-testbed inject` takes; the others need a scenario around them.
_NEED_A_SCENARIO = (Wait, CreatePod, DeletePod, ExpectNode, ExpectPod, ExpectCard, RunGates)
INJECTABLE = tuple(verb for verb, kind in STEPS.items() if kind not in _NEED_A_SCENARIO)


def act(testbed: Testbed, step: Step) -> bool:
    """Carry out a verb; False when `step` is none that acts on the node itself."""
    match step:
        case Wait(seconds=seconds):
            testbed.wait(seconds)
        case StopPlugin():
            testbed.stop_plugin()
        case StartPlugin():
            testbed.start_plugin()
        case _ if isinstance(step, Action):
            testbed.act_on_kubelet(step)
        case _:
            found = hardware_verbs.change_of(step)
            if found is None:
                return False
            testbed.change_hardware(*found)
    return True


def parse(verb: str, words: list[str]) -> Step:
    """A verb from a command line: `fault card=3 code=80E24E00`."""
    if verb not in INJECTABLE:
        raise ScenarioError(f"inject: unknown verb {verb!r}, allowed: {', '.join(INJECTABLE)}.")
    fields = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ScenarioError(f"inject {verb}: got {word!r}, wanted key=value.")
        fields[key] = value
    text = yaml.safe_dump({"name": "inject", "steps": [{verb: fields}]})
    try:
        return loads(text, "inject").steps[0]
    except ScenarioError as error:
        said = str(error).split(": ", 1)[1]
        raise ScenarioError(f"inject {verb}: {said}") from None
