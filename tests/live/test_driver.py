"""The driver of a live node as programs outside meet it: tools, calls, resets, containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.live import LiveTestbed
from simulator.scenario import verbs
from simulator.scenario.loader import loads
from simulator.scenario.runner import Runner

pytestmark = [pytest.mark.live, pytest.mark.slow]
CLI = [sys.executable, "-m", "simulator.cli"]


@pytest.fixture
def node(short_path: Path) -> Iterator[LiveTestbed]:
    scenario = loads("name: x\nnode: {cards: 2, log_calls: true}", "x")
    made = LiveTestbed(scenario, short_path / "t")
    try:
        yield made
    finally:
        made.close()


def inject(node: LiveTestbed, verb: str, *words: str) -> None:
    verbs.act(node, verbs.parse(verb, list(words)))


def smi(node: LiveTestbed, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(node.root / "usr/local/bin/npu-smi"), *arguments],
        env={"LD_LIBRARY_PATH": str(node.root / "usr/local/Ascend/driver/lib64/driver")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="the driver lets only root change it")
def test_an_operator_resets_a_card_and_cuts_it_with_npu_smi(node: LiveTestbed) -> None:
    inject(node, "reset-behaviour", "card=0", "boot_s=0.5")
    inject(node, "fault", "card=0", "code=80E24E00")
    done = smi(node, "set", "-t", "reset", "-i", "0", "-c", "0")
    assert (done.returncode, done.stdout.split()) == (0, ["Status", ":", "OK"])
    assert node.wait_until(
        lambda: "| 0     910B3               | OK" in smi(node, "info").stdout, 20
    )
    made = smi(node, "set", "-t", "create-vnpu", "-i", "1", "-c", "0", "-f", "vir05_1c_16g")
    assert "\tVnpu ID                        : 116\n" in made.stdout
    assert "| Total number of vnpu: 1 " in smi(node, "info", "-t", "info-vnpu", "-i", "1").stdout
    refused = smi(node, "set", "-t", "reset", "-i", "1", "-c", "0")
    assert refused.returncode == 190  # the low byte of -8002: a chip with vNPUs
    gone = smi(node, "set", "-t", "destroy-vnpu", "-i", "1", "-c", "0", "-v", "116")
    assert gone.returncode == 0


def test_who_called_what_is_told(node: LiveTestbed) -> None:
    node.serve_control(lambda verb, words: None)
    smi(node, "info", "-t", "power", "-i", "1")
    arguments = ["calls", "--json", "--dir", str(node.directory)]
    done = subprocess.run([*CLI, *arguments], capture_output=True, text=True, check=True)
    calls: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    powers = [c for c in calls if c["function"] == "dcmi_get_device_power_info"]
    assert (powers[-1]["program"], powers[-1]["card"], powers[-1]["code"]) == ("npu-smi", 1, 0)
    only = [*CLI, *arguments, "--function", "dcmi_init"]
    shown = subprocess.run(only, capture_output=True, text=True, check=True).stdout
    assert {json.loads(line)["function"] for line in shown.splitlines()} == {"dcmi_init"}
    hccn = [*CLI, "hccn", "--dir", str(node.directory), "-i", "1", "-link", "-g"]
    done = subprocess.run(hccn, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "link status: UP\n")


def test_a_pod_makes_its_card_busy_and_a_held_card_fails_it(short_path: Path) -> None:
    """Field trouble: a card held by another container; the driver inside answers its busy code."""
    text = """
name: x
node: {cards: 1}
steps:
  - expect-node: {allocatable: 1, within: 20}
  - hold: {card: 0, container: somebody, answers: "-8020"}
  - pod-create: {name: held}
  - expect-pod: {name: held, phase: Failed, within: 20}
  - release: {card: 0}
  - pod-delete: held
  - expect-pod: {name: held, phase: absent, within: 20}
  - pod-create: {name: free}
  - expect-pod: {name: free, phase: Succeeded, log: "[11, 22, 33, 44]", within: 20}
"""
    scenario = loads(text, "x")
    made = LiveTestbed(scenario, short_path / "t")
    try:
        report = Runner(scenario, made).run()
        assert [r for r in report.results if not r.passed] == []
        assert made.hardware.chip(0).load.busy_for(made.status() is not None and 1e9) > 0
    finally:
        made.close()


def test_broken_host_files_are_really_broken(short_path: Path) -> None:
    scenario = loads("name: x\nnode: {cards: 1, breaks: [hccn-tool-missing, numa-missing]}", "x")
    made = LiveTestbed(scenario, short_path / "t")
    try:
        assert not (made.root / "usr/local/Ascend/driver/tools/hccn_tool").exists()
        (card,) = (made.root / "sys/bus/pci/devices").iterdir()
        assert not (card / "numa_node").exists()
        assert (card / "vendor").read_text() == "0x19e5\n"
    finally:
        made.close()
