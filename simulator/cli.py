"""The command line: each subcommand is a thin door to a room, imported only when it is used.

Exit codes: 0 pass, 1 expectation failed, 2 bad scenario or arguments, 3 the program under test
broke protocol, 4 this machine cannot do it, 70 our bug, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import HostError, InternalError, ScenarioError, TestbedError

if TYPE_CHECKING:
    from simulator.scenario.schema import Scenario
    from simulator.sim import SimTestbed

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every failure is one line that says what to do next."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except TestbedError as error:
        print(f"npu-testbed: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("npu-testbed: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except Exception as error:  # our bug: a line for the user, the details where they ask
        if arguments.debug:
            raise
        print(
            f"npu-testbed: internal error: {type(error).__name__}: {error}. "
            "Next: run it again with --debug and report the output.",
            file=sys.stderr,
        )
        return InternalError.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="npu-testbed",
        description="A simulated multi-card Ascend 910B node for Kubernetes.",
    )
    parser.add_argument("--debug", action="store_true", help="show our own errors in full")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    check = commands.add_parser("check", help="validate scenario files, run nothing")
    check.add_argument("file", nargs="+", type=Path)
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(run=_check)

    run = commands.add_parser("run", help="run scenarios and give a verdict")
    run.add_argument("file", nargs="+", type=Path)
    run.add_argument("--mode", choices=("sim",), default="sim", help="sim: virtual time")
    run.add_argument("--seed", type=int, help="instead of the scenario's own seed")
    run.add_argument("--report", type=Path, metavar="DIR", help="write each run's journal here")
    run.add_argument("--json", action="store_true", help="print JSON")
    run.set_defaults(run=_run)

    scenarios = commands.add_parser("scenarios", help="list the scenarios that come along")
    scenarios.add_argument("--json", action="store_true", help="print JSON")
    scenarios.set_defaults(run=_scenarios)
    return parser


def _check(arguments: argparse.Namespace) -> int:
    from simulator.scenario.loader import load

    scenarios = [(str(path), load(path)) for path in arguments.file]
    if arguments.json:
        rows = [
            {"file": path, "name": scenario.name, "steps": len(scenario.steps)}
            for path, scenario in scenarios
        ]
        print(json.dumps(rows))
        return 0
    for path, scenario in scenarios:
        print(f"{path}: {scenario.name}: ok, {len(scenario.steps)} steps")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from simulator.scenario.loader import load
    from simulator.scenario.report import Terminal, as_json
    from simulator.scenario.runner import Runner
    from simulator.sim import SimTestbed

    loaded = [load(path) for path in arguments.file]
    reports = []
    for scenario in loaded:
        terminal = None if arguments.json else Terminal()
        if terminal is not None:
            print(f"scenario {scenario.name} ({arguments.mode})")
        testbed = _open(SimTestbed, scenario, arguments.seed)
        try:
            runner = Runner(
                scenario,
                testbed,
                report_check=terminal.check if terminal else None,
                report_step=terminal.step if terminal else None,
            )
            report = runner.run()
        finally:
            testbed.close()
            if arguments.report is not None:
                _write_journal(arguments.report, scenario.name, testbed.journal.text())
        reports.append(report)
        if terminal is not None:
            terminal.report(report)
    if arguments.json:
        print(json.dumps([as_json(report) for report in reports]))
    return 0 if all(report.passed for report in reports) else 1


def _open(kind: type[SimTestbed], scenario: Scenario, seed: int | None) -> SimTestbed:
    try:
        return kind(scenario, seed=seed)
    except (LookupError, ValueError) as error:
        raise ScenarioError(f"{scenario.name}: {error.args[0]}.") from None


def _write_journal(directory: Path, name: str, text: str) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{name}.jsonl").write_text(text)
    except OSError as error:
        raise HostError(
            f"{directory}: the journal of {name} cannot be written ({error.strerror}). "
            "Next: give --report a directory you may write to."
        ) from None


def _scenarios(arguments: argparse.Namespace) -> int:
    import scenarios
    from simulator.scenario.loader import load

    files = sorted(Path(scenarios.__path__[0]).rglob("*.yaml"))
    rows = [(str(path), load(path)) for path in files]
    if arguments.json:
        print(json.dumps([{"file": path, "name": s.name, "about": s.about} for path, s in rows]))
        return 0
    for path, scenario in rows:
        print(f"{scenario.name:32} {scenario.about.strip()}\n{'':32} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
