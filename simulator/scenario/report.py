"""What a run looks like on a terminal. Pure text from checks and results."""

from __future__ import annotations

from simulator.gates import Check, Verdict
from simulator.scenario.runner import Report

_GATES = {
    "host": "1 host: the driver lists its cards",
    "registration": "2 registration: the node offers them",
    "compute": "3 compute: a pod gets one and computes",
}


class Terminal:
    """Prints checks as they are made, then the verdict."""

    def __init__(self) -> None:
        self._gate = ""

    def step(self, text: str) -> None:
        print(text, flush=True)

    def check(self, check: Check) -> None:
        if check.gate != self._gate:
            self._gate = check.gate
            print(f"  gate {_GATES[check.gate]}")
        mark = "ok  " if check.passed else "FAIL"
        print(f"    {mark} {check.title}")
        print(f"         {check.call}")
        print(f"         -> {check.got}", flush=True)

    def verdict(self, verdict: Verdict) -> None:
        broken = verdict.broken
        if broken is None:
            print("  verdict: all three gates pass")
            return
        print(f"  verdict: the {broken.gate} gate fails, broken link: {broken.cause}")
        print(f"           wanted {broken.wanted}; got {broken.got}")
        print(f"           next: {broken.next_step}")

    def report(self, report: Report) -> None:
        self._gate = ""
        for verdict in report.verdicts:
            self.verdict(verdict)
        for result in report.results:
            print(f"  {'pass' if result.passed else 'FAIL'}  {result.title}")
            if not result.passed:
                print(f"        got: {result.got}")
        held = sum(result.passed for result in report.results)
        word = "PASS" if report.passed else "FAIL"
        print(f"{word}  {report.scenario}: {held} of {len(report.results)} expectations held")


def as_json(report: Report) -> dict[str, object]:
    """The same for programs."""
    return {
        "scenario": report.scenario,
        "passed": report.passed,
        "results": [{"title": r.title, "passed": r.passed, "got": r.got} for r in report.results],
        "gates": [checks_as_json(verdict) for verdict in report.verdicts],
    }


def checks_as_json(verdict: Verdict) -> dict[str, object]:
    """One run of the gates for programs."""
    broken = verdict.broken
    return {
        "passed": verdict.passed,
        "gate": broken.gate if broken else None,
        "cause": broken.cause if broken else None,
        "checks": [
            {
                "gate": c.gate,
                "title": c.title,
                "passed": c.passed,
                "call": c.call,
                "got": c.got,
                "wanted": c.wanted,
            }
            for c in verdict.checks
        ],
    }
