"""The compiled workload against its Python twin, and the runtime as containerd calls it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_dcmi import host_files, native, place
from fake_dcmi.image import ImageWriter
from simulator.faces import image_state
from simulator.hardware.faults import catalogue, fault_levels
from simulator.hardware.model import Hardware, load_profile
from simulator.runtime import workload

WORKLOAD = native.find("simulator.runtime", "npu-vector-add")


@pytest.fixture
def node(tmp_path: Path) -> Callable[..., Path]:
    """Makes a node's root, with hardware changed first by `change`."""

    def make(change: Callable[[Hardware], object] = lambda _: None) -> Path:
        root = tmp_path / "node"
        hardware = Hardware(load_profile("atlas-800t-a2-910b3"))
        change(hardware)
        files = host_files.plan(
            phy_ids=range(8), driver_version="25.2.0", fault_levels=fault_levels()
        )
        place.materialize(files, root)
        ImageWriter(root / host_files.IMAGE, image_state(hardware), boot_id=1).close()
        return root

    return make


def nothing(_: Hardware) -> None:
    """The cards as they are."""


CASES: dict[
    str, tuple[Callable[[Hardware], object], tuple[int, ...], list[str], dict[str, Any]]
] = {
    "one card": (nothing, (3,), [], {}),
    "two cards": (nothing, (5, 2), [], {}),
    "chosen card": (nothing, (5, 2), ["--device", "5"], {}),
    "no device": (nothing, (), [], {}),
    "not given": (nothing, (1,), ["--device", "2"], {}),
    "sick": (lambda h: h.inject(1, catalogue()[0x80E24E00]), (1,), [], {}),
    "dropped": (lambda h: h.drop(1), (1,), [], {}),
    "no library": (nothing, (1,), [], {"driver": None}),
    "new enough": (nothing, (1,), [], {"cann": "8.2.RC1", "needs_driver": "25.2.0"}),
    "too old": (nothing, (1,), [], {"cann": "9.0.0", "needs_driver": "26.0.0"}),
}


@pytest.mark.parametrize("name", CASES)
def test_program_and_twin_say_the_same(
    name: str, node: Callable[..., Path], tmp_path: Path
) -> None:
    change, given_cards, arguments, extra = CASES[name]
    root = node(change)
    devices = tmp_path / "dev"
    devices.mkdir()
    for number in given_cards:
        (devices / f"davinci{number}").symlink_to(root / f"dev/davinci{number}")
    hardware = Hardware(load_profile("atlas-800t-a2-910b3"))
    change(hardware)
    health = {card.phy_id: (-8012, 0) if card.is_dropped else (0, card.health) for card in hardware}
    around = workload.Surroundings(
        devices=tuple(sorted(given_cards)),
        **({"driver": "25.2.0", "health": health} | extra),
    )
    expected = workload.run(arguments, around)
    library = str((root / host_files.LIBRARY).parent) if around.driver else "/nowhere"
    done = subprocess.run(
        [str(WORKLOAD), *arguments],
        env={
            "NPU_TESTBED_DEV": str(devices),
            "LD_LIBRARY_PATH": library,
            "NPU_IMAGE_CANN": around.cann,
            "NPU_IMAGE_NEEDS_DRIVER": around.needs_driver,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (expected.exit_code, expected.output)


def test_every_outcome_is_among_the_cases() -> None:
    codes = set()
    for _, given_cards, arguments, extra in CASES.values():
        health = dict.fromkeys(range(8), (0, 0))
        around = workload.Surroundings(
            devices=given_cards, **({"driver": "25.2.0", "health": health} | extra)
        )
        codes.add(workload.run(arguments, around).exit_code)
    assert codes | {workload.UNHEALTHY} == {0, 10, 11, 12, 13, 14}


@given(st.lists(st.integers(0, 99), min_size=1, max_size=3), st.integers(0, 2))
def test_versions_compare_number_by_number(parts: list[int], place_: int) -> None:
    version = ".".join(map(str, parts))
    full = [*parts, 0, 0][:3]
    higher = list(full)
    higher[place_] += 1
    assert workload.is_older(version, ".".join(map(str, higher)) + "RC1")
    assert not workload.is_older(version, version)
    assert not workload.is_older(version, "")


@pytest.fixture
def low_level(tmp_path: Path) -> Path:
    """A low-level runtime that only notes how it was called."""
    directory = tmp_path / "bin"
    directory.mkdir()
    stub = directory / "runc"
    stub.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n')
    stub.chmod(0o755)
    return directory


def call(
    root: Path, low_level: Path, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulator.runtime.program", *arguments],
        env=os.environ | {"NPU_TESTBED_ROOT": str(root), "PATH": str(low_level)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def bundle(tmp_path: Path, *env: str) -> Path:
    made = tmp_path / "bundle"
    made.mkdir()
    spec = {
        "process": {"env": ["PATH=/bin", *env]},
        "linux": {"resources": {"devices": [{"allow": False}]}},
    }
    (made / "config.json").write_text(json.dumps(spec))
    (made / "config.json").chmod(0o600)
    return made


def test_create_edits_the_bundle_and_becomes_the_low_level_runtime(
    node: Callable[..., Path], low_level: Path, tmp_path: Path
) -> None:
    root, made = node(), bundle(tmp_path, "ASCEND_VISIBLE_DEVICES=1,0")
    words = ["--root", "/r", "create", "--bundle", str(made), "c1"]
    done = call(root, low_level, *words)
    assert (done.returncode, done.stderr) == (0, "")
    spec = json.loads((made / "config.json").read_text())
    paths = [device["path"] for device in spec["linux"]["devices"]]
    assert paths[:2] == ["/dev/davinci1", "/dev/davinci0"]
    mounts = {mount["destination"]: mount["source"] for mount in spec["mounts"]}
    assert mounts["/usr/local/bin/npu-smi"] == str(root / host_files.NPU_SMI)
    assert (tmp_path / "called").read_text().split() == words
    assert stat.S_IMODE((made / "config.json").stat().st_mode) == 0o600


def test_bundle_is_the_working_directory_when_it_is_joined_or_left_out(
    node: Callable[..., Path], low_level: Path, tmp_path: Path
) -> None:
    made = bundle(tmp_path)
    assert call(node(), low_level, "create", "--bundle=/no", "c1", cwd=made).returncode == 0
    assert "ASCEND_DOCKER_RUNTIME=True" in (made / "config.json").read_text()


@pytest.mark.parametrize("verb", ["run", "state", "kill", "delete", "start"])
def test_other_verbs_pass_through_untouched(
    verb: str, node: Callable[..., Path], low_level: Path, tmp_path: Path
) -> None:
    made = bundle(tmp_path, "ASCEND_VISIBLE_DEVICES=0")
    before = (made / "config.json").read_bytes()
    assert call(node(), low_level, verb, "--bundle", str(made), "c1").returncode == 0
    assert (made / "config.json").read_bytes() == before
    assert (tmp_path / "called").exists()


def break_mode(made: Path) -> None:
    (made / "config.json").chmod(0o664)


def break_json(made: Path) -> None:
    (made / "config.json").write_text("{")


def remove(made: Path) -> None:
    (made / "config.json").unlink()


@pytest.mark.parametrize(
    ("env", "breaks", "text"),
    [
        ("ASCEND_VISIBLE_DEVICES=all", None, "invalid single device parameter: all"),
        ("ASCEND_VISIBLE_DEVICES=99", None, "failed to get /dev/davinci99 info"),
        ("", break_mode, "write permission not right"),
        ("", break_json, "failed to modify spec file"),
        ("", remove, "no such file or directory"),
    ],
)
def test_refusals_are_one_line_status_1_and_a_log_entry(
    env: str,
    breaks: Callable[[Path], None] | None,
    text: str,
    node: Callable[..., Path],
    low_level: Path,
    tmp_path: Path,
) -> None:
    root, made = node(), bundle(tmp_path, *([env] if env else []))
    if breaks is not None:
        breaks(made)
    done = call(root, low_level, "create", "--bundle", str(made), "c1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert text in done.stderr
    assert not (tmp_path / "called").exists()
    log = root / "var/log/ascend-docker-runtime/runtime-run.log"
    assert text in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o640


def test_odd_arguments_missing_library_and_missing_runc(
    node: Callable[..., Path], low_level: Path, tmp_path: Path
) -> None:
    root, made = node(), bundle(tmp_path, "ASCEND_VISIBLE_DEVICES=0")
    assert call(root, low_level, "delete", "c@1").stderr == "command error\n"
    create = ("create", "--bundle", str(made), "c1")
    assert "failed to find the path of runc" in call(root, tmp_path, "state", "c1").stderr
    (root / host_files.LIBRARY).chmod(0o775)
    assert "failed to find a valid manager" in call(root, low_level, *create).stderr
    (root / host_files.LIBRARY).unlink()
    assert "failed to find a valid manager" in call(root, low_level, *create).stderr
