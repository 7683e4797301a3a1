"""`npu-testbed check`: shipped scenarios are valid, bad ones cost one line and exit 2."""

import json
from pathlib import Path

import pytest

import scenarios
from simulator.cli import main

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
