"""`npu-testbed check`: shipped scenarios are valid, bad ones cost one line and exit 2."""

import json
from pathlib import Path

import pytest

import scenarios
from simulator.cli import main
from simulator.errors import HostError
from simulator.kube import Kube

SHIPPED = sorted(Path(scenarios.__path__[0]).rglob("*.yaml"))


def test_there_are_shipped_scenarios() -> None:
    assert "single-card.yaml" in [path.name for path in SHIPPED]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenario_is_valid_and_named_after_its_file(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--json", str(path)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == path.stem


def test_bad_file_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x\nstepz: []\n")
    assert main(["check", str(bad)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{bad}:2:1" in error
    assert "Did you mean 'steps'?" in error


def test_run_prints_evidence_and_verdict_and_writes_the_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = (path for path in SHIPPED if path.stem == "single-card")
    assert main(["run", str(path), "--report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "verdict: all three gates pass" in out
    assert "PASS  single-card" in out
    journal = (tmp_path / "single-card.jsonl").read_text().splitlines()
    assert json.loads(journal[-1])["kind"] == "verdict"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nnode: {profile: nope}", "atlas-800t-a2-910b3"),
        ("name: x\nnode: {cards: 65}", "wanted 0 to 64"),
        ("name: x\nnode: {cards: 2, listed_cards: 3}", "wanted 0 to 2"),
        ("name: x\nnode: {faults: [{card: 0, code: zz}]}", "fault code 'zz'"),
        ("name: x\nsteps: [{drop: 99}]", "card 99 does not exist"),
        ("name: x\nsteps: [{fault: {card: 0, code: zz}}]", "step 1"),
    ],
)
def test_impossible_scenario_is_one_line_and_exit_2(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(text)
    assert main(["run", "--json", str(bad)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_failed_expectation_is_exit_1(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x\nsteps: [{expect-node: {allocatable: 9, within: 1}}]")
    assert main(["run", "--json", str(bad)]) == 1


def test_scenarios_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(SHIPPED)


@pytest.mark.parametrize(
    "text", ["", "a: b: c", "[]", "apiVersion: v1\nclusters: 3", "current-context: x\n", "\x00"]
)
def test_unusable_kubeconfig_is_one_line_and_exit_4(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "kubeconfig"
    bad.write_text(text)
    assert main(["gates", "--kubeconfig", str(bad), "--node", "n1"]) == 4
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "cannot be used as a kubeconfig" in error


def test_silent_cluster_says_so(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: c, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
"""
    )
    kube = Kube(config)
    with pytest.raises(HostError, match="does not answer"):
        kube.get("/api/v1/nodes/n1")
    kube.close()


def test_profiles_and_faults_list_the_catalogues(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 14
    assert "atlas-900-a3-superpod" in out
    assert main(["profiles", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 14
    assert main(["faults", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 797 + 30
    assert main(["faults", "80E01801"]) == 0
    assert "hbm-memory-001" in capsys.readouterr().out
    assert main(["faults", "no such thing"]) == 0
    assert "no fault holds" in capsys.readouterr().err


def test_bench_measures_against_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["bench", "dcmi", "--quick", "--json"])
    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    over = [
        row for row in rows.values() if row["limit"] is not None and row["value"] > row["limit"]
    ]
    assert code == (1 if over else 0)
    assert rows["changes the next call did not see"]["value"] == 0
    assert rows["torn reads of 1,000,000"]["value"] == 0
    assert rows["threads"]["value"] == 1
    assert main(["bench", "dcmi", "--quick", "--peer", "/no/such.so:dcmi"]) == 4
    assert "cannot be measured" in capsys.readouterr().err
    assert main(["bench", "dcmi", "--quick", "--peer", "nothing"]) == 2


def test_commands_about_a_node_say_when_none_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["calls"], ["hccn"]):
        assert main([*words, "--dir", str(tmp_path)]) == 4
        assert "no testbed runs" in capsys.readouterr().err


def test_bench_kubelet_measures_against_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    main(["bench", "kubelet", "--quick", "--json"])
    lines = json.loads(capsys.readouterr().out)
    assert [line["limit"] for line in lines] == [5, 400, 5, None, 5, 1]
    assert all(line["value"] > 0 for line in lines)
    assert main(["bench", "kubelet", "--peer", "x:y"]) == 2
