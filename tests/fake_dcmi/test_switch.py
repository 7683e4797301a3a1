"""liblingqu-dcmi.so: faults of a super-pod's switch."""

from __future__ import annotations

import ctypes
import os
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_dcmi import native
from fake_dcmi.image import ImageWriter
from simulator.faces import image_state
from simulator.hardware.faults import parse_switch, switch_faults
from simulator.hardware.model import Hardware, load_profile


class Event(ctypes.Structure):
    _fields_ = (
        ("event_type", ctypes.c_uint),
        ("sub_type", ctypes.c_uint),
        ("peer_device", ctypes.c_ushort),
        ("ports", ctypes.c_ushort * 3),
        ("severity", ctypes.c_ubyte),
        ("assertion", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 6),
        ("serials", ctypes.c_uint * 2),
        ("raised_ms", ctypes.c_ulong),
        ("rest", ctypes.c_ubyte * 72),
    )


class Filter(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint),
        ("event_type", ctypes.c_uint),
        ("event_id", ctypes.c_uint),
        ("severity", ctypes.c_ubyte),
        ("chip", ctypes.c_uint),
    )


Callback = ctypes.CFUNCTYPE(None, ctypes.POINTER(Event))
PEERS = {0: "cpu", 1: "npu", 2: "L2"}


def code_of(event: Event) -> str:
    """The code that the device plugin makes of an event."""
    fault = "na" if event.sub_type == 0xFFFFFFFF else str(event.sub_type)
    return f"[0x{event.event_type:08x},{fault},{PEERS.get(event.peer_device, 'na')},na]"


class Switch:
    def __init__(self, directory: Path) -> None:
        self.hardware = Hardware(load_profile("atlas-900-a3-superpod"))
        path = directory / "hardware.img"
        self.writer = ImageWriter(path, image_state(self.hardware), boot_id=1)
        os.environ["NPU_TESTBED_IMAGE"] = str(path)
        self.library: Any = ctypes.CDLL(str(native.find("fake_dcmi", "liblingqu-dcmi.so")))
        assert self.library.lq_dcmi_init() == 0

    def show(self) -> None:
        self.writer.publish(image_state(self.hardware))

    def listed(self, room: int = 128) -> list[str]:
        events, count = (Event * room)(), ctypes.c_uint()
        assert self.library.lq_dcmi_get_fault_info(room, ctypes.byref(count), events) == 0
        return [code_of(event) for event in events[: count.value]]


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[Switch]:
    made = Switch(tmp_path)
    yield made
    made.writer.close()
    del os.environ["NPU_TESTBED_IMAGE"]


def test_every_catalogued_fault_arrives_as_the_plugin_writes_it(switch: Switch) -> None:
    assert len(switch_faults()) == 30
    for fault in switch_faults().values():
        switch.hardware.raise_switch_fault(fault, 1.0)
    switch.show()
    assert switch.listed() == list(switch_faults())
    assert len(switch.listed(room=5)) == 5
    switch.hardware.switch_faults.clear()
    switch.show()
    assert switch.listed() == []


KEPT: list[object] = []


def test_subscriber_hears_of_both_ends_of_a_fault(switch: Switch) -> None:
    heard: queue.Queue[tuple[str, int]] = queue.Queue()
    callback = Callback(lambda event: heard.put((code_of(event[0]), event[0].assertion)))
    KEPT.append(callback)
    subscribe = switch.library.lq_dcmi_subscribe_fault_event
    subscribe.argtypes = (Filter, Callback)
    assert subscribe(Filter(), callback) == 0
    fault = parse_switch("0x00f1fef5, 155912, npu, na")
    switch.hardware.raise_switch_fault(fault, 1.0)
    switch.show()
    assert heard.get(timeout=10) == (fault.code, 1)
    switch.hardware.clear_switch_fault(fault.code)
    switch.show()
    assert heard.get(timeout=10) == (fault.code, 0)


def test_arguments_are_checked(switch: Switch) -> None:
    events, count = (Event * 2)(), ctypes.c_uint()
    function = switch.library.lq_dcmi_get_fault_info
    assert function(0, ctypes.byref(count), events) == -8001
    assert function(2, None, events) == -8001
    assert function(2, ctypes.byref(count), None) == -8001


def test_unknown_faults_and_servers_without_a_switch() -> None:
    with pytest.raises(LookupError, match="nearest is"):
        parse_switch("0x00f1fef5,155912,gpu,na")
    with pytest.raises(ValueError, match="has no switch"):
        Hardware(load_profile("atlas-800t-a2-910b3")).raise_switch_fault(
            next(iter(switch_faults().values())), 0
        )
