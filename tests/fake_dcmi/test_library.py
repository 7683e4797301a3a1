"""The compiled library as programs meet it: in C, with faults, events, rules, views and a log."""

from __future__ import annotations

import ctypes
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_dcmi import api, layout, packing
from fake_dcmi.call_log import CallLog
from fake_dcmi.image import FaultEvent, ImageWriter
from simulator.faces import image_state
from simulator.hardware.dcmi import ModelDcmi
from simulator.hardware.faults import catalogue
from simulator.hardware.model import Hardware, Process, load_profile
from simulator.hardware.script import CallScript, Rule
from simulator.plugin.dcmi import LibraryDcmi
from tests.fake_dcmi.conftest import LIBRARY, SOURCES, Driver

PROFILE = load_profile("atlas-800t-a2-910b3")
KINDS = sorted(catalogue().values(), key=lambda kind: kind.code)
Node = tuple[Driver, Hardware]

actions = st.lists(
    st.one_of(
        st.tuples(st.just("fault"), st.integers(0, 7), st.sampled_from(KINDS)),
        st.tuples(st.just("drop"), st.integers(0, 7), st.none()),
        st.tuples(st.just("reset"), st.integers(0, 7), st.none()),
        st.tuples(st.just("busy"), st.integers(0, 7), st.none()),
        st.tuples(st.just("list"), st.integers(0, 8), st.none()),
    ),
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(actions, st.integers(-1, 9), st.integers(-1, 2))
def test_library_and_model_agree_on_every_call(
    driver: Driver, steps: list[tuple[str, int, object]], card: int, device: int
) -> None:
    hardware = Hardware(PROFILE, driver_version="26.0.1")
    for verb, number, what in steps:
        if verb == "fault":
            hardware.inject(number, what)  # type: ignore[arg-type]
        elif verb == "drop":
            hardware.drop(number)
        elif verb == "reset":
            hardware.reset(hardware.chip(number), 1, 0)
        elif verb == "busy":
            process = Process(pid=7, name="x", memory_mb=9)
            hardware.start_process(hardware.chip(number), process, 0)
        else:
            hardware.list_only(number)
    driver.show(hardware, now=3)
    real, model = LibraryDcmi(LIBRARY), ModelDcmi(hardware, now=lambda: 3.0)
    assert real.init() == model.init() == 0
    assert real.card_list() == model.card_list()
    assert real.dcmi_version() == model.dcmi_version()
    assert real.driver_version() == model.driver_version()
    assert real.phy_id(card % 256) == model.phy_id(card % 256)
    assert real.device_logic_id(card, device) == model.device_logic_id(card, device)
    assert real.device_num_in_card(card) == model.device_num_in_card(card)
    for name in ("health", "error_codes"):
        assert getattr(real, name)(card, device) == getattr(model, name)(card, device), name
    if device in (-1, 0, 2):  # a card's controller has a name of its own
        seen, expected = real.chip_info(card, device), model.chip_info(card, device)
        assert seen[0] == expected[0]
        assert seen[1].chip_name == expected[1].chip_name
        assert seen[1].aicore_count == expected[1].aicore_count
    for name, ask in (
        ("power_info", model.power),
        ("temperature", model.temperature),
        ("boot_status", model.boot_status),
    ):
        value = ctypes.c_int(0)
        code = getattr(driver.library, f"dcmi_get_device_{name}")(card, device, ctypes.byref(value))
        if device != 1:
            assert (code, value.value) == ask(card, device), name


def test_c_client_finds_its_structs_and_survives_open_and_close(tmp_path: Path) -> None:
    program = tmp_path / "abi"
    source = Path(__file__).with_name("abi.c")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(program), "-ldl"], check=True)
    path = tmp_path / "hardware.img"
    hardware = Hardware(PROFILE)
    for pid in range(32):
        process = Process(pid=pid + 1, name="x", memory_mb=7)
        hardware.start_process(hardware.chip(0), process, 0)
    hardware.inject(1, catalogue()[0x80E24E00])
    ImageWriter(path, image_state(hardware), boot_id=1).close()
    done = subprocess.run(
        [str(program), str(LIBRARY)],
        env=os.environ | {"NPU_TESTBED_IMAGE": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def run_probe(image: Path | str) -> int:
    """dcmi_init in a process of its own: a crash would show as a negative status."""
    code = "import ctypes, sys; sys.exit(0 if ctypes.CDLL(sys.argv[1]).dcmi_init() == -8005 else 1)"
    return subprocess.run(
        [sys.executable, "-c", code, str(LIBRARY)],
        env=os.environ | {"NPU_TESTBED_IMAGE": str(image)},
        check=False,
    ).returncode


@pytest.mark.parametrize(
    "damage",
    ["absent", "empty", "short", "long", "magic", "version", "chip_count", "node_size", "dir"],
)
def test_library_refuses_damaged_images(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "hardware.img"
    ImageWriter(path, image_state(Hardware(PROFILE)), boot_id=1).close()
    good = path.read_bytes()
    header = bytearray(good)
    if damage == "absent":
        path.unlink()
    elif damage == "dir":
        path.unlink()
        path.mkdir()
    elif damage in ("empty", "short", "long"):
        path.write_bytes({"empty": b"", "short": good[:-1], "long": good + b"x"}[damage])
    else:
        header[getattr(layout.Header, damage).offset] ^= 0xFF
        path.write_bytes(header)
    assert run_probe(path) == 0


def test_library_without_any_image_refuses() -> None:
    assert run_probe("") == 0


def test_image_that_is_deleted_stays_readable_until_the_next_open(node: Node) -> None:
    driver, _ = node
    value = ctypes.c_uint()
    path = Path(os.environ["NPU_TESTBED_IMAGE"])
    moved = path.with_suffix(".moved")
    path.rename(moved)
    try:
        assert driver.library.dcmi_get_device_health(0, 0, ctypes.byref(value)) == 0
        assert driver.library.dcmi_init() == -8005
    finally:
        moved.rename(path)
    assert driver.library.dcmi_init() == 0


def test_next_writer_goes_on_in_the_same_image(tmp_path: Path) -> None:
    path = tmp_path / "hardware.img"
    hardware = Hardware(PROFILE)
    ImageWriter(path, image_state(hardware), boot_id=1).close()
    inode = path.stat().st_ino
    library = ctypes.CDLL(str(LIBRARY))
    os.environ["NPU_TESTBED_IMAGE"] = str(path)
    assert library.dcmi_init() == 0
    hardware.inject(2, catalogue()[0x80E24E00])
    ImageWriter(path, image_state(hardware), boot_id=2).close()
    assert path.stat().st_ino == inode
    value = ctypes.c_uint()
    assert library.dcmi_get_device_health(2, 0, ctypes.byref(value)) == 0
    assert value.value == 2  # seen through the mapping of before
    other = Hardware(PROFILE, cards=3)  # another shape cannot go on in it
    ImageWriter(path, image_state(other), boot_id=3).close()
    assert path.stat().st_ino != inode


def test_full_disk_fails_when_the_image_is_made_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        ImageWriter(tmp_path / "hardware.img", image_state(Hardware(PROFILE)), boot_id=1)
    assert list(tmp_path.iterdir()) == []


# --- events


def event(code: int, logic: int, severity: int, assertion: int = 1) -> FaultEvent:
    return FaultEvent(
        code=code, logic_id=logic, severity=severity, assertion=assertion, raised_ms=5
    )


def test_subscriber_hears_of_events_after_the_list_changed(node: Node) -> None:
    driver, hardware = node
    writer = driver.show(hardware)
    real = LibraryDcmi(LIBRARY)
    assert real.init() == 0
    heard: queue.Queue[tuple[int, ...]] = queue.Queue()

    def on_event(code: int, logic: int, severity: int, assertion: int) -> None:
        heard.put((code, logic, severity, assertion, *real.error_codes(logic, 0)[1]))

    assert real.subscribe(on_event) == 0
    KEPT.append(real)
    for happened in hardware.inject(3, catalogue()[0x80E24E00]):
        writer.publish(image_state(hardware))
        writer.emit([event(happened.code, happened.logic_id, happened.severity)])
    assert heard.get(timeout=10) == (0x80E24E00, 3, 2, 1, 0x80E24E00)


class Filter(ctypes.Structure):
    _fields_ = (
        ("filter_flag", ctypes.c_ulonglong),
        ("event_id", ctypes.c_uint),
        ("severity", ctypes.c_ubyte),
        ("node_type", ctypes.c_ubyte),
        ("resv", ctypes.c_ubyte * 32),
    )


Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
KEPT: list[object] = []  # a subscription outlives its test, so its callback must too


def subscribe(
    driver: Driver, card: int, device: int, wanted: Filter
) -> tuple[queue.Queue[dict[str, object]], object]:
    heard: queue.Queue[dict[str, object]] = queue.Queue()

    def relay(raw: int) -> None:
        found = packing.unpack("dcmi_event", ctypes.string_at(raw, 360))
        heard.put(packing.unpack("dcmi_dms_fault_event", found["event_t"]))

    callback = Callback(relay)
    KEPT.append(callback)
    function = driver.library.dcmi_subscribe_fault_event
    function.argtypes = (ctypes.c_int, ctypes.c_int, Filter, Callback)
    assert function(card, device, wanted, callback) == 0
    return heard, callback


@pytest.mark.parametrize(
    ("wanted", "card", "device", "expected"),
    [
        (Filter(), -1, -1, [0, 1, 2]),
        (Filter(filter_flag=1, event_id=0x80F78006), -1, -1, [2]),
        (Filter(filter_flag=2, severity=2), -1, -1, [0, 1]),
        (Filter(filter_flag=2, severity=3), -1, -1, [1]),
        (Filter(filter_flag=4, node_type=0x7B), -1, -1, [2]),
        (Filter(), 4, -1, [1]),
        (Filter(), 4, 0, [1]),
        (Filter(filter_flag=3, event_id=0x80E24E00, severity=3), -1, -1, []),
    ],
)
def test_filters_pass_what_they_say(
    node: Node, wanted: Filter, card: int, device: int, expected: list[int]
) -> None:
    """Another subscription replaces the one before, so only the last filter counts."""
    driver, hardware = node
    writer = driver.show(hardware)
    subscribe(driver, -1, -1, Filter(filter_flag=1, event_id=1))
    heard, keep = subscribe(driver, card, device, wanted)
    sent = [
        event(0x80E24E00, 3, 2),
        event(0x80E01801, 4, 3),
        event(0x80F78006, 5, 1),
    ]
    writer.emit(sent)
    if expected:  # once more what passes: nothing else may stand before it in the queue
        writer.emit([sent[expected[0]]])
        got = [heard.get(timeout=10)["event_id"] for _ in range(len(expected) + 1)]
        assert got == [sent[index].code for index in [*expected, expected[0]]]
    marker, _keep = subscribe(driver, -1, -1, Filter(filter_flag=1, event_id=0x40F84E00))
    writer.emit([event(0x40F84E00, 0, 1)])
    assert marker.get(timeout=10)["event_id"] == 0x40F84E00
    assert heard.empty()
    assert keep is not None


def test_event_carries_what_the_driver_fills_in(node: Node) -> None:
    driver, hardware = node
    writer = driver.show(hardware)
    heard, _keep = subscribe(driver, -1, -1, Filter())
    writer.emit([event(0x80E01801, 6, 2)])
    got = heard.get(timeout=10)
    assert (got["event_id"], got["deviceid"], got["severity"], got["assertion"]) == (
        0x80E01801, 6, 2, 1,
    )  # fmt: skip
    assert got["node_type"] == 0x70
    assert got["node_type_ex"] == 0x70
    assert got["alarm_raised_time"] == 5
    assert "sensor type=Memory" in packing.text(bytes(got["event_name"]))  # type: ignore[arg-type]


def test_more_than_a_thousand_events_arrive_in_order(node: Node) -> None:
    driver, hardware = node
    writer = driver.show(hardware)
    heard, _keep = subscribe(driver, -1, -1, Filter())
    for burst in range(15):
        writer.emit([event(0x80E24E00 + n, 1, 1) for n in range(burst * 100, burst * 100 + 100)])
        for number in range(burst * 100, burst * 100 + 100):
            assert heard.get(timeout=10)["event_id"] == 0x80E24E00 + number


def test_subscribers_of_several_processes_hear_the_same(node: Node, tmp_path: Path) -> None:
    driver, hardware = node
    writer = driver.show(hardware)
    program = tmp_path / "listen"
    source = Path(__file__).with_name("listen.c")
    subprocess.run(
        ["cc", "-std=c11", f"-I{SOURCES}", str(source), "-o", str(program), "-ldl", "-lpthread"],
        check=True,
    )
    processes = [
        subprocess.Popen([str(program), str(LIBRARY), "3"], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = []
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for logic in (1, 2, 3):
        writer.emit([event(0x80E24E00, logic, 2)])
    for process in processes:
        outputs.append(process.communicate(timeout=20)[0])
        assert process.returncode == 0
    assert set(outputs) == {"80E24E00 1\n80E24E00 2\n80E24E00 3\n"}


def test_blocking_query_gives_up_at_its_limit(node: Node) -> None:
    driver, hardware = node
    writer = driver.show(hardware)
    function = driver.library.dcmi_get_fault_event
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int, Filter, ctypes.c_char_p)
    room = ctypes.create_string_buffer(360)
    assert function(-1, -1, 20, Filter(), room) == -8006
    assert function(-1, -1, -2, Filter(), room) == -8001
    done: queue.Queue[int] = queue.Queue()
    thread = threading.Thread(target=lambda: done.put(function(2, 0, 10000, Filter(), room)))
    thread.start()
    while done.empty():
        writer.emit([event(0x80E24E00, 1, 2), event(0x80E01801, 2, 2)])
        thread.join(0.01)
    assert done.get() == 0
    found = packing.unpack("dcmi_event", room.raw)["event_t"]
    assert packing.unpack("dcmi_dms_fault_event", found)["event_id"] == 0x80E01801


# --- scripted calls


def health(driver: Driver, card: int) -> int:
    value = ctypes.c_uint()
    return int(driver.library.dcmi_get_device_health(card, 0, ctypes.byref(value)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rules=st.lists(
        st.builds(
            Rule,
            number=st.just(0),
            function=st.sampled_from([None, "dcmi_get_device_health", "dcmi_get_card_list"]),
            card=st.one_of(st.none(), st.integers(0, 2)),
            device=st.sampled_from([None, 0, 1]),
            code=st.sampled_from([0, -8005, -8012]),
            first=st.integers(1, 4),
            last=st.one_of(st.none(), st.integers(1, 5)),
            chance=st.sampled_from([1.0, 0.5, 0.1]),
        ),
        max_size=4,
    ),
    cards=st.lists(st.integers(0, 2), min_size=1, max_size=12),
)
def test_rules_hold_in_the_library_as_in_the_model(
    driver: Driver, rules: list[Rule], cards: list[int]
) -> None:
    hardware = HARDWARE
    hardware.rules = ()
    for made in rules:
        hardware.add_rule(made)
    driver.show(hardware)
    script = CallScript()
    script.judge(hardware.rules, "dcmi_init", None, None)  # the library was opened just now
    script.judge(hardware.rules, "dcmiv2_init", None, None)
    model = ModelDcmi(hardware, rules=lambda: hardware.rules, script=script)
    model._is_open = True
    got = [health(driver, card) for card in cards]
    assert got == [model.health(card, 0)[0] for card in cards]


HARDWARE = Hardware(PROFILE, seed=11)  # one for all examples: rule numbers must never come again


def test_hanging_call_waits_until_it_is_released(node: Node) -> None:
    driver, hardware = node
    hardware.rules = ()
    HARDWARE.rules = ()
    HARDWARE.add_rule(Rule(number=0, function="dcmi_get_device_health", card=5, hang=True))
    writer = driver.show(HARDWARE)
    done: queue.Queue[int] = queue.Queue()
    thread = threading.Thread(target=lambda: done.put(health(driver, 5)))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    assert health(driver, 4) == 0  # others are not held up
    HARDWARE.rules = ()
    writer.publish(image_state(HARDWARE))
    writer.release_hanging()
    assert done.get(timeout=10) == 0
    thread.join()


def test_delay_makes_a_call_slow_and_no_other(node: Node) -> None:
    driver, _ = node
    HARDWARE.rules = ()
    HARDWARE.add_rule(Rule(number=0, function="dcmi_get_device_health", card=1, delay_s=0.05))
    driver.show(HARDWARE)
    import time

    started = time.monotonic()
    assert health(driver, 1) == 0
    assert time.monotonic() - started >= 0.05
    HARDWARE.rules = ()
    driver.show(HARDWARE)


# --- what a container sees

CONTAINER = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
code = library.dcmi_init()
count, cards = ctypes.c_int(), (ctypes.c_int * 64)()
library.dcmi_get_card_list(ctypes.byref(count), cards, 64)
out = [code, list(cards[: count.value])]
for card in out[1]:
    logic = ctypes.c_int(-1)
    library.dcmi_get_device_logic_id(ctypes.byref(logic), card, 0)
    phy = ctypes.c_uint()
    library.dcmi_get_device_phyid_from_logicid(logic.value, ctypes.byref(phy))
    out.append((logic.value, phy.value))
value = ctypes.c_uint()
out.append(library.dcmi_get_device_health(7, 0, ctypes.byref(value)))
out.append(library.dcmi_get_device_phyid_from_logicid(2, ctypes.byref(value)))
print(out)
"""


def in_container(image: Path, dev: Path, **extra: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CONTAINER, str(LIBRARY)],
        env=os.environ
        | {
            "NPU_TESTBED_IMAGE": str(image),
            "NPU_TESTBED_CONTAINER": "b",
            "NPU_TESTBED_DEV": str(dev),
            "NPU_TESTBED_PRIVILEGED": "0",
        }
        | extra,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_container_sees_its_devices_with_ids_from_zero(tmp_path: Path) -> None:
    """Field trouble: ids inside a container. The physical id stays, the logic id starts at 0."""
    image, dev = tmp_path / "hardware.img", tmp_path / "dev"
    dev.mkdir()
    hardware = Hardware(PROFILE)
    writer = ImageWriter(image, image_state(hardware), boot_id=1)
    assert in_container(image, dev).startswith("[-8005, []")
    for number in (3, 5):
        (dev / f"davinci{number}").touch()
    assert in_container(image, dev) == "[0, [3, 5], (0, 3), (1, 5), -8001, -8001]"
    writer.close()


@pytest.mark.parametrize("code", [-8005, -8020])
def test_card_that_another_container_holds_fails_the_init(code: int, tmp_path: Path) -> None:
    """Field troubles: works on the host, -8005 or -8020 in the container until the other ends."""
    image, dev = tmp_path / "hardware.img", tmp_path / "dev"
    dev.mkdir()
    (dev / "davinci7").touch()
    hardware = Hardware(PROFILE)
    hardware.chip(7).holder, hardware.busy_code = "a", code
    writer = ImageWriter(image, image_state(hardware), boot_id=1)
    assert in_container(image, dev).startswith(f"[{code}, []")
    assert in_container(image, dev, NPU_TESTBED_CONTAINER="a").startswith("[0, [7]")
    assert in_container(image, dev, NPU_TESTBED_CONTAINER="").startswith("[0, [0, 1, 2")
    if os.geteuid() == 0:
        privileged = in_container(image, dev, NPU_TESTBED_PRIVILEGED="1")
        assert privileged.startswith("[0, [0, 1, 2")
    hardware.chip(7).holder = ""
    writer.publish(image_state(hardware))
    assert in_container(image, dev).startswith("[0, [7]")
    writer.close()


# --- the call log


def test_call_log_tells_who_called_what(node: Node) -> None:
    driver, hardware = node
    log = CallLog(Path(os.environ["NPU_TESTBED_IMAGE"]))
    health(driver, 1)
    assert log.read() == []  # off by default
    hardware.logs_calls = True
    driver.show(hardware)
    log.read()
    health(driver, 1)
    health(driver, 99)
    names = list(api.functions())
    got = [(names[c.function], c.card_id, c.code, c.pid) for c in log.read()]
    assert got == [
        ("dcmi_get_device_health", 1, 0, os.getpid()),
        ("dcmi_get_device_health", 99, -8001, os.getpid()),
    ]
    hardware.logs_calls = False
    driver.show(hardware)


def test_call_log_survives_more_calls_than_it_holds(node: Node) -> None:
    driver, hardware = node
    hardware.logs_calls = True
    driver.show(hardware)
    log = CallLog(Path(os.environ["NPU_TESTBED_IMAGE"]))
    log.read()
    value = ctypes.c_uint()
    function, out = driver.library.dcmi_get_device_health, ctypes.byref(value)
    for _ in range(layout.CALL_SLOTS + 10):
        function(0, 0, out)
    calls = log.read()
    assert len(calls) == layout.CALL_SLOTS
    assert log.lost == 10
    hardware.logs_calls = False
    driver.show(hardware)
