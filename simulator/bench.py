"""Benchmarks: how fast the pieces are on this machine, against the numbers we hold ourselves to.

`npu-testbed bench dcmi` measures the driver library from C, in processes of their own, five runs,
medians. A peer's library can be measured in the same run, by the same code. `bench kubelet`
measures many kubelets with real plugins in one process.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_dcmi import native
from fake_dcmi.image import FaultEvent, ImageWriter
from simulator.errors import HostError
from simulator.faces import image_state
from simulator.hardware.model import Hardware, load_profile
from simulator.plugin.dcmi import LibraryDcmi

RUNS = 5
CALLS = 1_000_000
EVENTS = 500
RACE_READERS = 64
RACE_READS = 100_000_000
EVENT_WITHIN_S = 5.0
PROFILE = "atlas-800t-a2-910b3"
GETTERS = {"dcmi": "health", "dcmi-power": "power", "dcmi-hbm": "HBM", "dcmi-list": "error list"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One measured number; `limit` None when there is none to hold."""

    what: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def holds(self) -> bool:
        return self.limit is None or self.value <= self.limit


def kubelet(*, quick: bool = False, say: Callable[[str], None] = lambda _: None) -> list[Line]:
    """Measure kubelets with a plugin each, in one process of their own: 1 000, or 50 in a hurry."""
    count = 50 if quick else 1000
    say(f"{count} kubelets, {count} plugins, real gRPC on both ends")
    done = subprocess.run(
        [sys.executable, "-m", "fake_kubelet.measure", str(count)],
        capture_output=True,
        text=True,
        env={**os.environ, "GRPC_VERBOSITY": "NONE"},
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise HostError(f"bench: {last}. Next: ulimit -n {count * 10}, or --quick.")
    found = json.loads(done.stdout)
    return [
        Line(what=what, value=found[name], unit=unit, limit=limit)
        for what, name, unit, limit in (
            (f"{count} kubelets up", "up_s", "s", 5),
            ("memory", "rss_mb", "MB", 400),
            ("idle CPU of one core", "idle_percent", "%", 5),
            ("device change to allocatable, p50", "change_p50_ms", "ms", None),
            ("device change to allocatable, p99", "change_p99_ms", "ms", 5),
            ("Allocate of 64 ids, p50", "allocate_p50_ms", "ms", 1),
        )
    ]


def dcmi(
    *,
    peer: tuple[str, str] | None = None,
    quick: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> list[Line]:
    """Measure the driver library; `peer` is (path, adapter) of another one to measure as well."""
    library = native.find("fake_dcmi", "libdcmi.so")
    runs, calls = (2, 100_000) if quick else (RUNS, CALLS)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as directory:
        image = Path(directory) / "hardware.img"
        hardware = Hardware(load_profile(PROFILE))
        writer = ImageWriter(image, image_state(hardware), boot_id=1)
        ours = 0.0
        for adapter, title in GETTERS.items():
            say(f"getter: {title}")
            found = _harness(library, adapter, image, runs, calls)
            ours = ours or found["p50"]
            lines += [
                Line(what=f"{title}, p50", value=found["p50"], unit="ns", limit=60),
                Line(what=f"{title}, p99", value=found["p99"], unit="ns", limit=120),
                Line(what=f"{title}, p99.9", value=found["p999"], unit="ns", limit=1000),
            ]
        lines += [
            Line(what="load and init", value=found["load_init_us"], unit="us", limit=300),
            Line(what="memory", value=found["resident_kb"], unit="kB", limit=512),
            Line(what="threads", value=found["threads"], unit="", limit=1),
            Line(what="library", value=library.stat().st_size / 1000, unit="kB", limit=300),
        ]
        plain = found["mean"]
        hardware.logs_calls = True
        writer.publish(image_state(hardware))
        say("call log")
        logged = _harness(library, "dcmi-list", image, runs, calls)["mean"]
        lines.append(Line(what="call log, per call", value=logged - plain, unit="ns", limit=20))
        hardware.logs_calls = False
        writer.publish(image_state(hardware))
        say(f"{RACE_READERS} readers against a writer")
        lines += _race(library, image, RACE_READS // (100 if quick else 1))
        say("events")
        lines += _events(image, hardware, library, EVENTS // (5 if quick else 1))
        writer.close()
    if peer is not None:
        say(f"peer: {peer[0]}")
        theirs = _harness(Path(peer[0]), peer[1], None, runs, calls)
        lines += [
            Line(what="peer getter, p50", value=theirs["p50"], unit="ns"),
            Line(what="ours to the peer's, p50", value=ours / max(theirs["p50"], 0.1), unit="x"),
        ]
    return lines


def _harness(
    library: Path, adapter: str, image: Path | None, runs: int, calls: int
) -> dict[str, float]:
    """Medians of several runs of the C harness."""
    made = [_one_run(library, adapter, image, calls) for _ in range(runs)]
    names = [name for name, value in made[0].items() if isinstance(value, (int, float))]
    return {name: statistics.median(run[name] for run in made) for name in names}


def _one_run(library: Path, adapter: str, image: Path | None, calls: int) -> dict[str, Any]:
    done = subprocess.run(
        [str(native.find("fake_dcmi", "dcmi-bench")), str(library), adapter, str(calls)],
        env=os.environ | ({"NPU_TESTBED_IMAGE": str(image)} if image else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip() or f"status {done.returncode}"
        raise HostError(f"bench: {library} with adapter {adapter!r} cannot be measured: {said}.")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _race(library: Path, image: Path, reads: int) -> list[Line]:
    done = subprocess.run(
        [
            str(native.find("fake_dcmi", "dcmi-bench")),
            "race",
            str(library),
            str(RACE_READERS),
            str(reads),
        ],
        env=os.environ | {"NPU_TESTBED_IMAGE": str(image)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    return [
        Line(what=f"torn reads of {reads:,}", value=found["torn"], unit="", limit=0),
        Line(what="reads while written", value=reads / found["seconds"] / 1e6, unit="M/s"),
    ]


def _events(image: Path, hardware: Hardware, library: Path, count: int) -> list[Line]:
    """From publishing and emitting to the callback, and whether the next call sees the change."""
    image = image.with_name("events.img")  # the race has left many events in the other one
    writer = ImageWriter(image, image_state(hardware), boot_id=1)
    os.environ["NPU_TESTBED_IMAGE"] = str(image)
    real = LibraryDcmi(library)
    heard: queue.Queue[int] = queue.Queue()
    took: list[float] = []
    stale = 0
    real.init()
    real.subscribe(lambda *_: heard.put(time.perf_counter_ns()))
    chip = hardware.chip(0)
    for number in range(count):
        chip.pins["temp_c"] = number
        started = time.perf_counter_ns()
        writer.publish(image_state(hardware))
        value = ctypes.c_int()
        real._call("dcmi_get_device_temperature", 0, 0, ctypes.byref(value))
        stale += value.value != number
        writer.emit([FaultEvent(code=0x80E24E00, logic_id=0, severity=2, assertion=2, raised_ms=0)])
        try:
            took.append((heard.get(timeout=EVENT_WITHIN_S) - started) / 1e6)
        except queue.Empty:
            raise HostError("bench: an event did not arrive within 5 s.") from None
    del os.environ["NPU_TESTBED_IMAGE"]
    writer.close()
    took.sort()
    return [
        Line(what="changes the next call did not see", value=stale, unit="", limit=0),
        Line(what="inject to callback, p99", value=took[int(len(took) * 0.99)], unit="ms", limit=5),
    ]
