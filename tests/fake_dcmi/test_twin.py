"""The library and its Python twin answer alike, call by call, byte by byte, on every product."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_dcmi import api, calls
from fake_dcmi.twin import Twin
from simulator.faces import image_state
from simulator.hardware.faults import catalogue
from simulator.hardware.model import Hardware, Process, load_profile
from simulator.hardware.profile import names
from tests.fake_dcmi.conftest import Driver

KINDS = sorted(catalogue().values(), key=lambda kind: kind.code)
KNOWN = [name for name in api.functions() if Twin(None).knows(name)]  # type: ignore[arg-type]
ROOM = 70000
FILL = b"\x5a"

changes = st.lists(
    st.one_of(
        st.tuples(st.just("fault"), st.integers(0, 1), st.sampled_from(KINDS)),
        st.tuples(st.just("drop"), st.integers(0, 1), st.none()),
        st.tuples(st.just("busy"), st.integers(0, 1), st.none()),
        st.tuples(st.just("reset"), st.integers(0, 1), st.none()),
        st.tuples(st.just("list"), st.integers(0, 2), st.none()),
        st.tuples(st.just("pin"), st.integers(0, 1), st.integers(0, 2**31 - 1)),
    ),
    max_size=6,
)


def made(profile: str, steps: list[tuple[str, int, object]]) -> Hardware:
    hardware = Hardware(load_profile(profile), cards=2, seed=7)
    for verb, number, what in steps:
        chip = hardware.chip(min(number, 1))
        if verb == "fault":
            hardware.inject(number, what)  # type: ignore[arg-type]
        elif verb == "drop":
            hardware.drop(number)
        elif verb == "busy":
            hardware.start_process(chip, Process(pid=9, name="x", memory_mb=100), 1)
        elif verb == "reset":
            hardware.reset(chip, 1, 2)
        elif verb == "list":
            hardware.list_only(number)
        else:
            chip.pins["temp_c"] = what  # type: ignore[assignment]
    return hardware


def call_library(
    driver: Driver, name: str, arguments: dict[str, int]
) -> tuple[int, dict[str, bytes]]:
    """Call with guarded out buffers; answers the code and all that every buffer holds."""
    buffers = {}
    passed: list[object] = []
    for param in api.functions()[name].params:
        struct = calls.pointed_struct(param)
        if param.is_pointer:
            buffers[param.name] = ctypes.create_string_buffer(FILL * ROOM, ROOM)
            passed.append(ctypes.byref(buffers[param.name]))
        elif struct is not None:  # a struct by value
            passed.append((ctypes.c_ubyte * struct.size)())
        else:
            passed.append(ctypes.c_int(arguments[param.name]))
    code = int(getattr(driver.library, name)(*passed))
    return code, {key: buffer.raw for key, buffer in buffers.items()}


small = st.integers(-1, 16)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(
    profile=st.sampled_from(names()),
    steps=changes,
    card=st.sampled_from([0, 1, 1, 2, -1, 255, 300]),
    device=st.sampled_from([0, 0, 1, 2, 3, -1]),
    other=st.one_of(small, st.sampled_from([64, 256])),
)
def test_library_and_twin_agree_on_every_function(
    driver: Driver,
    profile: str,
    steps: list[tuple[str, int, object]],
    card: int,
    device: int,
    other: int,
) -> None:
    hardware = made(profile, steps)
    driver.show(hardware, now=5, epoch_s=0)
    twin = Twin(image_state(hardware, now=5, epoch_s=0))
    for name in KNOWN:
        params = api.functions()[name].params
        if any(calls.pointed_struct(p) and not p.is_pointer for p in params):
            continue  # a struct by value in registers cannot be passed as an array
        arguments = {
            p.name: {"card_id": card, "device_id": device, "dev_id": card}.get(p.name, other)
            for p in params
            if not p.is_pointer
        }
        code, buffers = call_library(driver, name, arguments)
        wanted_code, wanted = twin.call(name, arguments)
        assert code == wanted_code, (name, arguments)
        for key, raw in buffers.items():
            expected = wanted.get(key, b"")
            assert raw[: len(expected)] == expected, (name, arguments, key)
            assert raw[len(expected) :].strip(FILL) == b"", (name, key, "wrote too much")


@pytest.mark.parametrize("name", [n for n in api.functions() if not n.endswith("init")])
def test_every_function_refuses_null_and_unknown_ids(driver: Driver, name: str) -> None:
    """No function crashes on NULL, and none of them answers 0 to it when it has something to
    write; what takes no pointer must at least return."""
    hardware = Hardware(load_profile("atlas-800t-a2-910b3"))
    driver.show(hardware)
    passed: list[object] = []
    params = api.functions()[name].params
    for param in params:
        struct = calls.pointed_struct(param)
        if param.is_pointer:
            passed.append(None)
        elif struct is not None:
            passed.append((ctypes.c_ubyte * struct.size)())
        else:
            passed.append(ctypes.c_int(0))
    if any(calls.pointed_struct(p) and not p.is_pointer for p in params):
        return
    code = int(getattr(driver.library, name)(*passed))
    assert code in api.return_codes()
    if any(p.is_pointer for p in params):
        assert code != 0
