"""What the README shows is true: its scenario runs, its verbs and commands exist."""

import re
from pathlib import Path

import pytest

import scenarios
from simulator.cli import main
from simulator.scenario.loader import loads
from simulator.scenario.runner import Runner
from simulator.scenario.schema import STEPS
from simulator.sim import SimTestbed

README = (Path(scenarios.__path__[0]).parent / "README.md").read_text()


def test_the_scenario_in_the_readme_passes() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    scenario = loads(text, "README.md")
    report = Runner(scenario, SimTestbed(scenario)).run()
    assert [result for result in report.results if not result.passed] == []
    assert len(report.results) == 4


def test_every_step_is_named_in_the_readme() -> None:
    assert [verb for verb in STEPS if f"`{verb}`" not in README] == []


def test_every_command_in_the_readme_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    named = set(re.findall(r"^(?:export .*)?npu-testbed ([a-z]+)", README, re.MULTILINE))
    assert {"up", "run", "gates", "inject"} <= named
    assert [command for command in named if not re.search(rf"^    {command}\b", listed, re.M)] == []
