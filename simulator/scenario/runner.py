"""Runs a scenario's steps on a testbed and says what held and what did not. Mode-neutral."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from simulator import deployment, gates
from simulator.errors import ScenarioError
from simulator.scenario import verbs
from simulator.scenario.host import expected_chips
from simulator.scenario.schema import (
    CreatePod,
    DeletePod,
    ExpectCard,
    ExpectNode,
    ExpectPod,
    RunGates,
    Scenario,
    Step,
)
from simulator.testbed import Testbed


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One expectation: what was wanted, what was seen."""

    title: str
    passed: bool
    got: str


@dataclass(slots=True, kw_only=True)
class Report:
    """How a run went."""

    scenario: str
    results: list[Result] = field(default_factory=list)
    verdicts: list[gates.Verdict] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results)


class Runner:
    """`report_check` hears of every gate check as it is made."""

    def __init__(
        self,
        scenario: Scenario,
        testbed: Testbed,
        *,
        report_check: Callable[[gates.Check], None] | None = None,
        report_step: Callable[[str], None] | None = None,
    ) -> None:
        self._scenario = scenario
        self._testbed = testbed
        self._probe = testbed.probe()
        self._report_check = report_check
        self._report_step = report_step

    def run(self) -> Report:
        report = Report(scenario=self._scenario.name)
        for number, step in enumerate(self._scenario.steps, 1):
            if self._report_step is not None:
                self._report_step(f"step {number}: {_describe(step)}")
            try:
                self._step(step, report)
            except LookupError as error:
                raise ScenarioError(
                    f"{self._scenario.name}: step {number} ({_describe(step)}): {error.args[0]}."
                ) from None
        self._testbed.journal.record("verdict", passed=report.passed)
        return report

    def _step(self, step: Step, report: Report) -> None:
        if verbs.act(self._testbed, step):
            return
        match step:
            case CreatePod():
                self._create(step, report)
            case DeletePod(name=name):
                self._delete(name, report)
            case ExpectCard():
                self._record(report, self._expect_card(step))
            case ExpectNode():
                self._record(report, self._expect_node(step))
            case ExpectPod():
                self._record(report, self._expect_pod(step))
            case RunGates():
                self._record(report, self._gates(step, report))

    def _create(self, step: CreatePod, report: Report) -> None:
        pod = deployment.pod(
            step.name,
            image=step.image,
            cards=step.cards,
            runtime_class=step.runtime_class,
            command=step.command,
            node_selector=step.node_selector,
        )
        try:
            self._probe.create_pod(pod)
        except gates.ApiRefused as error:
            title = f"pod {step.name} is accepted"
            self._record(report, Result(title=title, passed=False, got=str(error)))

    def _delete(self, name: str, report: Report) -> None:
        try:
            self._probe.delete_pod(name)
        except gates.ApiRefused as error:
            title = f"pod {name} is deleted"
            self._record(report, Result(title=title, passed=False, got=str(error)))

    def _record(self, report: Report, result: Result) -> None:
        report.results.append(result)
        self._testbed.journal.record(
            "expect", title=result.title, passed=result.passed, got=result.got
        )

    def _expect_card(self, step: ExpectCard) -> Result:
        def seen() -> str:
            _, states = self._probe.cards()
            chips = [state.health for state in states if state.card_id == step.card]
            return chips[step.chip] if step.chip < len(chips) else "absent"

        held = self._testbed.wait_until(lambda: seen() == step.health, step.within)
        title = f"card {step.card} shows {step.health} within {step.within:g} s"
        return Result(title=title, passed=held, got=seen())

    def _expect_node(self, step: ExpectNode) -> Result:
        wanted = {"capacity": step.capacity, "allocatable": step.allocatable}
        wanted = {name: count for name, count in wanted.items() if count is not None}

        def seen() -> dict[str, int | None]:
            node = self._probe.node()
            return {name: gates.count(node, name, deployment.RESOURCE) for name in wanted}

        held = self._testbed.wait_until(lambda: seen() == wanted, step.within)
        listed = ", ".join(f"{name} {count}" for name, count in wanted.items())
        got = ", ".join(f"{name} {count}" for name, count in seen().items())
        return Result(title=f"node shows {listed} within {step.within:g} s", passed=held, got=got)

    def _expect_pod(self, step: ExpectPod) -> Result:
        probe = self._probe

        def phase() -> str:
            return gates.phase(probe.pod(step.name))

        def holds() -> bool:
            if step.phase is not None and phase() != step.phase:
                return False
            if step.log is not None and step.log not in probe.pod_log(step.name):
                return False
            return step.message is None or step.message in gates.trouble(
                probe, probe.pod(step.name)
            )

        held = self._testbed.wait_until(holds, step.within)
        parts = {"phase": step.phase, "log": step.log, "message": step.message}
        listed = ", ".join(f"{key} {value!r}" for key, value in parts.items() if value is not None)
        log = probe.pod_log(step.name).strip()
        got = f"{phase()}; {log or gates.trouble(probe, probe.pod(step.name))}"
        title = f"pod {step.name} shows {listed} within {step.within:g} s"
        return Result(title=title, passed=held, got=got)

    def _gates(self, step: RunGates, report: Report) -> Result:
        pod = self._scenario.pod
        request = gates.Request(
            expected_cards=expected_chips(self._scenario),
            pod_runtime_class=pod.runtime_class,
            cards=pod.cards,
            image=pod.image,
            node_selector=pod.node_selector,
        )
        verdict = gates.run(self._probe, request, self._report_check)
        report.verdicts.append(verdict)
        for check in verdict.checks:
            self._testbed.journal.record(
                "check", gate=check.gate, title=check.title, passed=check.passed, got=check.got
            )
        broken = verdict.broken
        wanted = (step.fails, step.cause) if step.fails else (None, None)
        got = (broken.gate, broken.cause) if broken else (None, None)
        passed = got == wanted if step.cause else got[0] == wanted[0]

        def say(gate: str | None, cause: str | None) -> str:
            return f"the {gate} gate fails: {cause or 'any cause'}" if gate else "all gates pass"

        return Result(title=say(*wanted), passed=passed, got=say(*got))


def _describe(step: Step) -> str:
    fields = {name: getattr(step, name) for name in step.__slots__}
    shown = ", ".join(
        f"{name} {value}" for name, value in fields.items() if value not in (None, (), {})
    )
    return f"{type(step).__name__}({shown})"
