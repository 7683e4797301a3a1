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

from simulator.errors import InternalError, TestbedError

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


if __name__ == "__main__":
    sys.exit(main())
