"""The live node: the verdicts of virtual time, and nothing left behind, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

import scenarios
from simulator.errors import HostError
from simulator.live import LiveTestbed, clean
from simulator.runtime.live import RUN_MARK, detect
from simulator.scenario import verbs
from simulator.scenario.loader import load, loads
from simulator.scenario.runner import Report, Runner
from simulator.scenario.schema import InjectFault, Scenario
from simulator.sim import SimTestbed

pytestmark = [pytest.mark.live, pytest.mark.slow]

SHIPPED = sorted(Path(scenarios.__path__[0]).rglob("*.yaml"))
CLI = [sys.executable, "-m", "simulator.cli"]


@pytest.fixture
def place(short_path: Path) -> Path:
    return short_path / "t"


def marked(root: Path) -> list[int]:
    """Processes that belong to a node."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"{RUN_MARK}={root}".encode() in environment.split(b"\0"):
                found.append(int(entry.name))
    return found


@contextmanager
def live_node(text: str, place: Path) -> Iterator[tuple[LiveTestbed, Scenario]]:
    scenario = loads(text, "test.yaml")
    made = LiveTestbed(scenario, place)
    try:
        yield made, scenario
    finally:
        made.close()


def run(text: str, place: Path) -> Report:
    with live_node(text, place) as (made, scenario):
        return Runner(scenario, made).run()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_live_and_sim_give_the_same_verdict(path: Path, place: Path) -> None:
    scenario = load(path)
    simulated = Runner(scenario, SimTestbed(scenario)).run()
    made = LiveTestbed(scenario, place)
    try:
        live = Runner(scenario, made).run()
    finally:
        made.close()
    assert [r for r in live.results if not r.passed] == []
    assert [(r.title, r.passed) for r in live.results] == [
        (r.title, r.passed) for r in simulated.results
    ]
    assert [[(c.title, c.passed) for c in v.checks] for v in live.verdicts] == [
        [(c.title, c.passed) for c in v.checks] for v in simulated.verdicts
    ]
    assert not place.exists()
    assert marked(place / "node") == []


STEPS = """
name: x
steps:
  - expect-node: {allocatable: 8, within: 20}
  - drop: 3
  - expect-node: {capacity: 8, allocatable: 7, within: 12}
  - return: 3
  - expect-node: {allocatable: 8, within: 12}
  - plugin-stop:
  - expect-node: {capacity: 8, allocatable: 0, within: 12}
  - plugin-start:
  - expect-node: {allocatable: 8, within: 20}
  - kubelet-restart:
  - expect-node: {capacity: 0, allocatable: 0, within: 5}
  - expect-node: {allocatable: 8, within: 20}
  - pod-create: {name: p, cards: "3"}
  - expect-pod: {name: p, phase: Succeeded, log: "[11, 22, 33, 44]", within: 20}
  - pod-create: {name: sleeper, runtime_class: "", cards: null, image: busybox,
                 command: [sh, -c, "echo begun; exec sleep 1000"]}
  - expect-pod: {name: sleeper, phase: Running, log: begun, within: 20}
  - pod-delete: sleeper
  - pod-delete: p
  - expect-pod: {name: p, phase: absent, within: 20}
"""


def test_every_verb_on_a_live_node(place: Path) -> None:
    report = run(STEPS, place)
    assert [r for r in report.results if not r.passed] == []
    assert marked(place / "node") == []


ODD_PODS = """
name: x
steps:
  - expect-node: {allocatable: 8, within: 20}
  - pod-create: {name: gone, runtime_class: "", cards: null, image: busybox, command: [/no/such]}
  - expect-pod: {name: gone, phase: Failed, message: "/no/such", within: 20}
  - pod-create: {name: far, image: "example.com/none:1"}
  - expect-pod: {name: far, message: "not found", within: 20}
  - pod-create: {name: code, runtime_class: "", cards: null, image: busybox,
                 command: [/bin/sh, -c, exit 7]}
  - expect-pod: {name: code, phase: Failed, within: 20}
  - pod-create: {name: other, command: [/bin/sh, -c, echo $ASCEND_VISIBLE_DEVICES]}
  - expect-pod: {name: other, phase: Succeeded, within: 20}
"""


def test_pods_that_cannot_start_or_fail_say_so(place: Path) -> None:
    report = run(ODD_PODS, place)
    assert [r for r in report.results if not r.passed] == []


def test_a_container_sees_its_card_and_no_other(place: Path) -> None:
    text = """
name: x
steps:
  - expect-node: {allocatable: 8, within: 20}
  - pod-create: {name: given, command: ["/bin/sh", "-c", "ls /dev; echo $ASCEND_DOCKER_RUNTIME"]}
  - expect-pod: {name: given, phase: Succeeded, within: 20}
"""
    if detect()[0] != "runc":
        pytest.skip(detect()[1])
    with live_node(text, place) as (made, scenario):
        assert Runner(scenario, made).run().passed
        words = made.probe().pod_log("given").split()
    assert [word for word in words if word.startswith("davinci") and word[7:].isdecimal()] != []
    assert len([word for word in words if word.removeprefix("davinci").isdecimal()]) == 1
    assert {"davinci_manager", "devmm_svm", "hisi_hdc"} <= set(words)
    assert words[-1] == "True"


def test_journal_is_json_lines_and_secrets_are_private(place: Path) -> None:
    with live_node("name: x", place) as (made, _):
        verbs.act(made, InjectFault(card=1, code="80E24E00"))
        for name in ("kubeconfig",):
            assert (place / name).stat().st_mode & 0o777 == 0o600
        assert place.stat().st_mode & 0o777 == 0o700
        lines = (place / "journal.jsonl").read_text().splitlines()
        kinds = [json.loads(line)["kind"] for line in lines]
        assert "node.registered" in kinds
        assert "fault.inject" in kinds


def test_second_testbed_in_one_place_is_refused(place: Path) -> None:
    with live_node("name: x", place), pytest.raises(HostError, match="runs here already"):
        LiveTestbed(Scenario(name="y"), place)


def test_foreign_directory_is_left_alone(place: Path) -> None:
    place.mkdir()
    (place / "thesis.txt").write_text("precious")
    with pytest.raises(HostError, match="not a testbed's directory"):
        LiveTestbed(Scenario(name="x"), place)
    assert (place / "thesis.txt").read_text() == "precious"


def test_taken_port_and_deep_directory_say_what_to_do(place: Path) -> None:
    with live_node("name: x", place) as (made, _):
        port = int(made.server.rsplit(":", 1)[1])
        with pytest.raises(HostError, match=f"port {port} .* is taken"):
            LiveTestbed(Scenario(name="y"), place.with_name("u"), port=port)
    assert not place.with_name("u").exists()
    deep = place.with_name("x" * 80)
    with pytest.raises(HostError, match="shorter directory"):
        LiveTestbed(Scenario(name="z"), deep)
    assert not deep.exists()


@contextmanager
def up(place: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*CLI, "up", "--dir", str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("# stop it"):
                break
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *arguments], capture_output=True, text=True, timeout=50, check=False
    )


def test_up_status_inject_smi_gates_down(place: Path) -> None:
    where = ("--dir", str(place))
    with up(place) as process:
        assert cli("inject", *where, "fault", "card=2", "code=80E24E00").returncode == 0
        status = json.loads(cli("status", *where, "--json").stdout)
        assert status["cards"][2]["faults"] == ["80E24E00"]
        assert "| 2     910B3               | Alarm " in cli("smi", *where, "info").stdout
        gates = cli("gates", *where, "--json")
        assert gates.returncode == 1
        assert json.loads(gates.stdout)["cause"] == "card-unhealthy"
        wrong = cli("inject", *where, "drop", "card=77")
        assert wrong.returncode == 2
        assert "card 77 does not exist" in wrong.stderr
        assert cli("inject", *where, "recover", "card=2", "code=80E24E00").returncode == 0
        done = cli("gates", *where)
        assert done.returncode == 0, done.stdout
        assert "all three gates pass" in done.stdout
        assert cli("down", *where).returncode == 0
        assert process.wait(20) == 0
    assert not place.exists()
    assert cli("status", *where).returncode == 4
    assert cli("down", *where).returncode == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(place: Path, number: signal.Signals) -> None:
    with up(place) as process:
        process.send_signal(number)
        assert process.wait(20) == 130
    assert not place.exists()
    assert marked(place / "node") == []


def test_signal_during_start_leaves_nothing(place: Path) -> None:
    process = subprocess.Popen(
        [*CLI, "up", "--dir", str(place)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while not place.exists() and process.poll() is None:
        pass
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=40)
    assert b"Traceback" not in error
    assert not place.exists()
    assert marked(place / "node") == []


def test_what_a_killed_testbed_left_is_removed(place: Path) -> None:
    with up(place) as process:
        process.kill()
        process.wait()
        assert marked(place / "node") != []
        assert place.exists()
        done = cli("down", "--dir", str(place))
        assert done.returncode == 0
        assert "what it left is removed" in done.stdout
    assert marked(place / "node") == []
    assert not place.exists()


def test_next_start_takes_over_after_a_kill(place: Path) -> None:
    with up(place) as process:
        process.kill()
        process.wait()
        with up(place) as second:
            assert cli("status", "--dir", str(place)).returncode == 0
            second.send_signal(signal.SIGTERM)
            second.wait(20)
    assert marked(place / "node") == []
    assert not place.exists()


def test_half_written_files_of_an_earlier_run_do_no_harm(place: Path) -> None:
    place.mkdir()
    (place / "lock").write_text("garbage")
    (place / "testbed.json").write_text('{"pid": ')
    (place / "node").symlink_to("/nonexistent")
    assert cli("status", "--dir", str(place)).returncode == 4
    with live_node("name: x", place) as (made, _):
        assert made.wait_until(lambda: made.status()["allocatable"] == "8", 20)
    clean(place)
    assert not place.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become an ordinary user")
def test_ordinary_user_gets_the_same_gates_without_isolation(short_path: Path) -> None:
    home = short_path
    os.chown(home, 65534, 65534)
    (path,) = (path for path in SHIPPED if path.stem == "single-card")
    if not os.access(sys.executable, os.X_OK) or "/root" in os.path.realpath(sys.executable):
        pytest.skip("this Python lies where only root may read")
    done = subprocess.run(
        [*CLI, "run", "--mode", "live", "--dir", str(home / "t"), str(path)],
        user=65534,
        group=65534,
        extra_groups=[],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without isolation" in done.stdout


def test_the_kubelet_answers_https_where_its_node_says(place: Path) -> None:
    steps = "steps: [{expect-node: {allocatable: 8, within: 12}}]\n"
    text = f"name: t\nkubelet: {{version: v1.31.4}}\n{steps}"
    with live_node(text, place) as (made, scenario):
        assert Runner(scenario, made).run().passed
        trust = made.root / "var/lib/kubelet/pki/kubelet-ca.crt"
        config = yaml.safe_load(made.kubeconfig.read_text())
        node = made.probe().node()
        assert node is not None
        port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.31.4"

        def get(path: str, token: str) -> tuple[int, str]:
            request = urllib.request.Request(
                f"https://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"}
            )
            context = ssl.create_default_context(cafile=str(trust))
            try:
                with urllib.request.urlopen(request, context=context, timeout=10) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, ""

        token = config["users"][0]["user"]["token"]
        assert get("/pods", "wrong")[0] == 401
        code, pods = get("/pods", token)
        assert code == 200
        names = {
            (p["metadata"]["namespace"], p["status"]["phase"]) for p in json.loads(pods)["items"]
        }
        assert ("kube-system", "Running") in names
        own = (made.root / "var/lib/kubelet/pki/kubelet-token").read_text()
        assert get("/healthz", own) == (200, "ok")
