"""What the documentation shows is so."""

import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from fake_kubelet import api
from fake_kubelet.actions import ACTIONS
from fake_kubelet.personality import markdown_table

ROOT = Path(__file__).parents[2]


def test_the_table_of_versions_is_the_data() -> None:
    assert markdown_table() in (ROOT / "docs/kubelet.md").read_text()


def test_every_action_is_documented() -> None:
    text = (ROOT / "README.md").read_text()
    assert [verb for verb in ACTIONS if f"`{verb}`" not in text] == []


@pytest.mark.parametrize("package", api.packages())
def test_the_proto_files_are_the_tables(package: str) -> None:
    kept = resources.files("fake_kubelet").joinpath(f"proto/{package}.proto").read_text()
    assert kept == api.proto_text(package)


@pytest.mark.live
def test_the_example_in_python_prints_what_it_says() -> None:
    text = (ROOT / "docs/kubelet.md").read_text()
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    (promised,) = re.findall(r"\.envs\)  # (.*)", found[1])
    done = subprocess.run(
        [sys.executable, "-c", found[1]], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.returncode) == (promised, 0), done.stderr
