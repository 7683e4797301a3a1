"""The command line: each subcommand is a thin door to a room, imported only when it is used.

Exit codes: 0 pass, 1 expectation failed, 2 bad scenario or arguments, 3 the program under test
broke protocol, 4 this machine cannot do it, 70 our bug, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simulator import cli_driver
from simulator.errors import HostError, InternalError, ScenarioError, TestbedError

if TYPE_CHECKING:
    from simulator.live import LiveTestbed
    from simulator.scenario.schema import Scenario
    from simulator.testbed import Testbed

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every failure is one line that says what to do next."""
    arguments = _parser().parse_args(argv)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    signal.signal(signal.SIGTERM, _interrupt)
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


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


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
    run.add_argument(
        "--mode",
        choices=("sim", "live"),
        default="sim",
        help="sim: virtual time, one process (default); live: real files, sockets, processes",
    )
    run.add_argument("--seed", type=int, help="instead of the scenario's own seed")
    run.add_argument("--report", type=Path, metavar="DIR", help="write each run's journal here")
    run.add_argument("--dir", type=Path, help="live: directory to work in, removed afterwards")
    run.add_argument("--json", action="store_true", help="print JSON")
    run.set_defaults(run=_run)

    up = commands.add_parser("up", help="keep a live testbed running")
    up.add_argument("file", nargs="?", type=Path, help="scenario whose settings to use")
    up.add_argument("--port", type=int, default=0, help="port of the Kubernetes API (default any)")
    up.add_argument("--detach", action="store_true", help="return once it is up")
    _add_directory(up)
    up.set_defaults(run=_up)

    down = commands.add_parser("down", help="stop the running testbed")
    _add_directory(down)
    down.set_defaults(run=_down)

    status = commands.add_parser("status", help="what the running testbed looks like")
    status.add_argument("--json", action="store_true", help="print JSON")
    _add_directory(status)
    status.set_defaults(run=_status)

    inject = commands.add_parser("inject", help="act on the running testbed")
    inject.add_argument("verb", help="fault, recover, drop, return, reset, link, pin, ...")
    inject.add_argument("words", nargs="*", metavar="KEY=VALUE")
    _add_directory(inject)
    inject.set_defaults(run=_inject)

    gates = commands.add_parser("gates", help="the three gates, with evidence")
    gates.add_argument("--kubeconfig", type=Path, help="a cluster other than the testbed's")
    gates.add_argument("--root", type=Path, default=Path("/"), help="with --kubeconfig: host root")
    gates.add_argument("--node", help="with --kubeconfig: the node's name")
    gates.add_argument("--cards", type=int, default=8, help="with --kubeconfig: cards expected")
    gates.add_argument("--json", action="store_true", help="print JSON")
    _add_directory(gates)
    gates.set_defaults(run=_gates)

    smi = commands.add_parser("smi", help="npu-smi of the running testbed's node")
    _add_directory(smi)
    smi.add_argument("arguments", nargs=argparse.REMAINDER)
    smi.set_defaults(run=_smi)

    cli_driver.add_commands(commands)

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


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, help="the testbed's directory")


def _directory(arguments: argparse.Namespace) -> Path:
    from simulator.directory import directory_of

    return directory_of(arguments.dir)


def _run(arguments: argparse.Namespace) -> int:
    from simulator.scenario.loader import load
    from simulator.scenario.report import Terminal, as_json
    from simulator.scenario.runner import Runner

    loaded = [load(path) for path in arguments.file]
    reports = []
    for scenario in loaded:
        terminal = None if arguments.json else Terminal()
        if terminal is not None:
            print(f"scenario {scenario.name} ({arguments.mode})", flush=True)
        testbed = _open(scenario, arguments)
        try:
            report = Runner(
                scenario,
                testbed,
                report_check=terminal.check if terminal else None,
                report_step=terminal.step if terminal else None,
            ).run()
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


def _open(scenario: Scenario, arguments: argparse.Namespace) -> Testbed:
    """A testbed of the mode asked for; an impossible setting is the scenario's fault."""
    try:
        if arguments.mode == "sim":
            from simulator.sim import SimTestbed

            return SimTestbed(scenario, seed=arguments.seed)
        from simulator.directory import base_directory
        from simulator.live import LiveTestbed

        directory = arguments.dir or base_directory() / f"run-{os.getpid()}"
        testbed = LiveTestbed(scenario, directory, seed=arguments.seed)
        if not arguments.json:
            print(f"  {testbed.isolation_text}", flush=True)
        return testbed
    except (LookupError, ValueError) as error:
        raise ScenarioError(f"{scenario.name}: {error.args[0]}.") from None


def _up(arguments: argparse.Namespace) -> int:
    import threading

    from simulator.scenario import verbs
    from simulator.scenario.loader import load
    from simulator.scenario.schema import Scenario

    directory = _directory(arguments)
    if not 0 <= arguments.port <= 65535:
        raise ScenarioError(f"--port is {arguments.port}, wanted 0 to 65535.")
    scenario = load(arguments.file) if arguments.file else Scenario(name="up")
    if arguments.detach:
        return _up_detached(arguments, directory)
    from simulator.live import LiveTestbed

    started = time.monotonic()
    try:
        testbed = LiveTestbed(scenario, directory, port=arguments.port)
    except (LookupError, ValueError) as error:
        raise ScenarioError(f"{scenario.name}: {error.args[0]}.") from None
    stopped = threading.Event()

    def handle(verb: str, words: list[str]) -> object:
        if verb == "stop":
            stopped.set()
            return "stopping"
        if verb == "status":
            return testbed.status()
        return verbs.act(testbed, verbs.parse(verb, words))

    try:
        testbed.serve_control(handle)
        wanted = str(len(testbed.hardware))
        is_full = testbed.wait_until(lambda: testbed.status()["allocatable"] == wanted, 15)
        _print_up(testbed, directory, time.monotonic() - started, is_full=is_full)
        while not stopped.wait(0.5):
            pass
    finally:
        testbed.close()
        print("npu-testbed: stopped, nothing left behind", flush=True)
    return 0


def _print_up(testbed: LiveTestbed, directory: Path, took_s: float, *, is_full: bool) -> None:
    status = testbed.status()
    chips = f"{len(testbed.hardware)} x {testbed.hardware.profile.chip_name}"
    word = "" if is_full else " (not all, see: npu-testbed gates)"
    root = testbed.root
    library = root / "usr/local/Ascend/driver/lib64/driver"
    print(f"NPU Testbed is up: node n1, {chips}, allocatable {status['allocatable']}{word}")
    print(f"  after {took_s:.1f} s; {status['runner']}")
    print(f"export KUBECONFIG={testbed.kubeconfig}")
    print(f"export LD_LIBRARY_PATH={library}")
    print(f"export PATH={root / 'usr/local/bin'}:$PATH")
    print(f"# plugin sockets: {root / 'var/lib/kubelet/device-plugins'}")
    print("# stop it with Ctrl-C here, or npu-testbed down", flush=True)


def _up_detached(arguments: argparse.Namespace, directory: Path) -> int:
    import subprocess

    command = [sys.executable, "-m", "simulator.cli", "up", "--dir", str(directory)]
    command += ["--port", str(arguments.port), *([str(arguments.file)] if arguments.file else [])]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        if line.startswith("# stop it"):
            process.stdout.close()
            process.returncode = 0  # it stays; it is not ours to wait for
            return 0
    return process.wait()


def _down(arguments: argparse.Namespace) -> int:
    from simulator.control import ask
    from simulator.directory import read_description

    directory = _directory(arguments)
    description = read_description(directory)
    try:
        ask(directory, "stop", [])
    except HostError:
        from simulator.live import clean

        clean(directory)
        print("npu-testbed: the testbed had been killed; what it left is removed")
        return 0
    try:
        ended = os.pidfd_open(description["pid"])
    except OSError:
        return 0
    try:
        if not select.select([ended], [], [], 30)[0]:
            raise HostError(f"the testbed (pid {description['pid']}) does not end. Next: kill it.")
    finally:
        os.close(ended)
    print("npu-testbed: stopped")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from simulator.control import ask

    status = ask(_directory(arguments), "status", [])
    if arguments.json:
        print(json.dumps(status))
        return 0
    print(
        f"node {status['node']}: capacity {status['capacity']}, "
        f"allocatable {status['allocatable']}; {status['runner']}"
    )
    for card in status["cards"]:
        word = "dropped" if card["dropped"] else card["health"]
        print(f"  card {card['card']}: {word} {' '.join(card['faults'])}".rstrip())
    for pod in status["pods"]:
        print(f"  pod {pod['namespace']}/{pod['name']}: {pod['phase']}")
    return 0


def _inject(arguments: argparse.Namespace) -> int:
    from simulator.control import ask
    from simulator.scenario import verbs

    verbs.parse(arguments.verb, arguments.words)
    ask(_directory(arguments), arguments.verb, arguments.words)
    return 0


def _gates(arguments: argparse.Namespace) -> int:
    from simulator import gates
    from simulator.directory import read_description
    from simulator.kube import Kube
    from simulator.live_probe import LiveProbe
    from simulator.scenario.report import Terminal, checks_as_json

    if arguments.kubeconfig is not None:
        if not arguments.node:
            raise ScenarioError("gates: --kubeconfig needs --node, the name of the NPU node.")
        root, node, cards = arguments.root, arguments.node, arguments.cards
        kubeconfig = arguments.kubeconfig
    else:
        found = read_description(_directory(arguments))
        root, node, cards = Path(found["root"]), found["node"], found["cards"]
        kubeconfig = Path(found["kubeconfig"])
    kube = Kube(kubeconfig)
    terminal = None if arguments.json else Terminal()
    try:
        verdict = gates.run(
            LiveProbe(root, kube, node),
            gates.Request(expected_cards=cards),
            terminal.check if terminal else None,
        )
    finally:
        kube.close()
    if terminal is not None:
        terminal.verdict(verdict)
    else:
        print(json.dumps(checks_as_json(verdict)))
    return 0 if verdict.passed else 1


def _smi(arguments: argparse.Namespace) -> int:
    from simulator.directory import read_description
    from simulator.plugin.library import DRIVER_DIRECTORIES

    root = Path(read_description(_directory(arguments))["root"])
    program = str(root / "usr/local/bin/npu-smi")
    directories = ":".join(str(root / place) for place in DRIVER_DIRECTORIES)
    environment = os.environ | {"LD_LIBRARY_PATH": directories}
    return os.execve(program, [program, *arguments.arguments], environment)  # noqa: S606


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
