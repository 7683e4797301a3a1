"""Readers and writers that are killed at any instruction leave a whole image and a readable log."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fake_dcmi import layout, native, packing
from fake_dcmi.call_log import CallLog
from fake_dcmi.image import FaultEvent, ImageWriter
from simulator.faces import image_state
from simulator.hardware.model import Hardware, load_profile
from tests.fake_dcmi.conftest import LIBRARY

PROFILE = load_profile("atlas-800t-a2-910b3")
KILLS = 25


def kill_at_random(process: subprocess.Popen[bytes], chance: random.Random) -> None:
    time.sleep(chance.uniform(0.001, 0.02))
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_killed_writer_leaves_a_whole_state_and_the_next_goes_on(tmp_path: Path) -> None:
    """The racing writer changes five fields at once as fast as it can; a mixture would show."""
    path = tmp_path / "hardware.img"
    hardware = Hardware(PROFILE)
    ImageWriter(path, image_state(hardware), boot_id=1).close()
    env = os.environ | {"NPU_TESTBED_IMAGE": str(path)}
    program = str(native.find("fake_dcmi", "dcmi-bench"))
    os.environ["NPU_TESTBED_IMAGE"] = str(path)
    library: Any = ctypes.CDLL(str(LIBRARY))
    chance = random.Random(5)
    seen = set()
    for _ in range(KILLS):
        writer = subprocess.Popen([program, "race", str(LIBRARY), "1", "2000000000"], env=env)
        kill_at_random(writer, chance)
        assert library.dcmi_init() == 0
        raw = ctypes.create_string_buffer(32)
        assert library.dcmi_get_device_hbm_info(0, 0, raw) == 0
        info = packing.unpack("dcmi_hbm_info", raw.raw)
        values = set(info.values())
        if info["memory_size"] != PROFILE.hbm_mb:  # it got to its first write
            assert len(values) == 1, info
            seen.add(info["memory_size"])
    assert len(seen) > KILLS // 2
    inode = path.stat().st_ino
    writer_again = ImageWriter(path, image_state(hardware), boot_id=2)
    assert path.stat().st_ino == inode
    raw = ctypes.create_string_buffer(32)
    assert library.dcmi_get_device_hbm_info(0, 0, raw) == 0
    assert packing.unpack("dcmi_hbm_info", raw.raw)["memory_size"] == PROFILE.hbm_mb
    before = layout.Header.from_buffer_copy(path.read_bytes()).event_count
    writer_again.emit(
        [FaultEvent(code=0x80E24E00, logic_id=0, severity=2, assertion=1, raised_ms=1)]
    )
    assert layout.Header.from_buffer_copy(path.read_bytes()).event_count == before + 1
    writer_again.close()


READER = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.dcmi_init()
value = ctypes.c_uint()
while True:
    library.dcmi_get_device_health(1, 0, ctypes.byref(value))
"""


@pytest.mark.slow
def test_killed_readers_leave_a_readable_log(tmp_path: Path) -> None:
    path = tmp_path / "hardware.img"
    hardware = Hardware(PROFILE)
    hardware.logs_calls = True
    writer = ImageWriter(path, image_state(hardware), boot_id=1)
    log = CallLog(path)
    chance = random.Random(6)
    for _ in range(5):
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(LIBRARY)],
            env=os.environ | {"NPU_TESTBED_IMAGE": str(path)},
        )
        ends_at = time.monotonic() + 20
        while not log.read_all() and time.monotonic() < ends_at:
            time.sleep(0.01)
        kill_at_random(reader, chance)
        calls = log.read_all()
        assert calls
        assert {call.name for call in calls[1:]} <= {"dcmi_get_device_health", "dcmi_init"}
        assert all(call.code == 0 for call in calls)
    log.close()
    writer.close()
