"""The compiled library: equal to the Python model call by call, and safe on damaged images."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_dcmi import layout, native
from fake_dcmi.image import FaultEvent, ImageWriter
from simulator.faces import image_state
from simulator.hardware.dcmi import ModelDcmi
from simulator.hardware.faults import catalogue
from simulator.hardware.model import Hardware, load_profile
from simulator.plugin.dcmi import LibraryDcmi

LIBRARY = native.find("fake_dcmi", "libdcmi.so")
SOURCES = Path(layout.__file__).parent / "csrc"
PROFILE = load_profile("atlas-800t-a2-910b3")
KINDS = sorted(catalogue().values(), key=lambda kind: kind.code)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ImageWriter, Hardware]]:
    path = tmp_path_factory.mktemp("image") / "hardware.img"
    hardware = Hardware(PROFILE)
    writer = ImageWriter(path, image_state(hardware), boot_id=1)
    os.environ["NPU_TESTBED_IMAGE"] = str(path)
    yield writer, hardware
    del os.environ["NPU_TESTBED_IMAGE"]
    writer.close()


actions = st.lists(
    st.one_of(
        st.tuples(st.just("fault"), st.integers(0, 7), st.sampled_from(KINDS)),
        st.tuples(st.just("drop"), st.integers(0, 7), st.none()),
        st.tuples(st.just("list"), st.integers(0, 8), st.none()),
    ),
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(actions, st.integers(-1, 9), st.integers(-1, 2))
def test_library_and_model_agree_on_every_call(
    image: tuple[ImageWriter, Hardware],
    steps: list[tuple[str, int, object]],
    card: int,
    device: int,
) -> None:
    writer, _ = image
    hardware = Hardware(PROFILE, driver_version="26.0.1")
    for verb, number, kind in steps:
        if verb == "fault":
            hardware.inject(number, kind)  # type: ignore[arg-type]
        elif verb == "drop":
            hardware.drop(number)
        else:
            hardware.list_only(number)
    writer.publish(image_state(hardware))
    real, model = LibraryDcmi(LIBRARY), ModelDcmi(hardware)
    assert real.init() == model.init() == 0
    assert real.card_list() == model.card_list()
    assert real.dcmi_version() == model.dcmi_version()
    assert real.driver_version() == model.driver_version()
    assert real.phy_id(card % 256) == model.phy_id(card % 256)
    assert real.device_logic_id(card, device) == model.device_logic_id(card, device)
    assert real.device_num_in_card(card) == model.device_num_in_card(card)
    for name in ("health", "error_codes"):
        assert getattr(real, name)(card, device) == getattr(model, name)(card, device), name
    seen, expected = real.chip_info(card, device), model.chip_info(card, device)
    assert seen[0] == expected[0]
    assert seen[1].chip_name == expected[1].chip_name
    assert seen[1].aicore_count == expected[1].aicore_count


def test_generated_header_is_current() -> None:
    assert (SOURCES / "image_layout.h").read_text() == layout.c_header()


def run_probe(image: Path | str) -> int:
    """dcmi_init in a process of its own: a crash would show as a negative status."""
    code = "import ctypes, sys; sys.exit(0 if ctypes.CDLL(sys.argv[1]).dcmi_init() == -8005 else 1)"
    return subprocess.run(
        [sys.executable, "-c", code, str(LIBRARY)],
        env=os.environ | {"NPU_TESTBED_IMAGE": str(image)},
        check=False,
    ).returncode


@pytest.mark.parametrize("damage", ["absent", "empty", "short", "long", "magic", "version", "dir"])
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
    elif damage in ("magic", "version"):
        header[getattr(layout.Header, damage).offset] ^= 0xFF
        path.write_bytes(header)
    else:
        path.write_bytes({"empty": b"", "short": good[:-1], "long": good + b"x"}[damage])
    assert run_probe(path) == 0


def test_library_without_any_image_refuses() -> None:
    assert run_probe("") == 0


def test_c_client_finds_its_structs_and_survives_open_and_close(tmp_path: Path) -> None:
    program = tmp_path / "abi"
    source = Path(__file__).with_name("abi.c")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(program), "-ldl"], check=True)
    path = tmp_path / "hardware.img"
    ImageWriter(path, image_state(Hardware(PROFILE)), boot_id=1).close()
    done = subprocess.run(
        [str(program), str(LIBRARY)],
        env=os.environ | {"NPU_TESTBED_IMAGE": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "8 910B3\n" * 3)


def test_subscriber_hears_of_events_after_the_list_changed(
    image: tuple[ImageWriter, Hardware],
) -> None:
    writer, _ = image
    hardware = Hardware(PROFILE)
    writer.publish(image_state(hardware))
    real = LibraryDcmi(LIBRARY)
    assert real.init() == 0
    heard: queue.Queue[tuple[int, ...]] = queue.Queue()

    def on_event(code: int, logic: int, severity: int, assertion: int) -> None:
        heard.put((code, logic, severity, assertion, *real.error_codes(logic, 0)[1]))

    assert real.subscribe(on_event) == 0
    kind = catalogue()[0x80E24E00]
    for event in hardware.inject(3, kind):
        writer.publish(image_state(hardware))
        writer.emit(
            [
                FaultEvent(
                    code=event.code,
                    logic_id=event.logic_id,
                    severity=event.severity,
                    assertion=event.assertion,
                    raised_ms=1,
                )
            ]
        )
    assert heard.get(timeout=10) == (0x80E24E00, 3, 2, 1, 0x80E24E00)


def smi(image: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(native.find("fake_dcmi", "npu-smi")), *arguments],
        env={"NPU_TESTBED_IMAGE": str(image), "LD_LIBRARY_PATH": str(LIBRARY.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def two_cards(tmp_path: Path) -> Path:
    path = tmp_path / "hardware.img"
    hardware = Hardware(PROFILE, cards=2)
    hardware.inject(1, catalogue()[0x80E24E00])
    ImageWriter(path, image_state(hardware), boot_id=1).close()
    return path


INFO = """\
+-------------------------------------------------------------------------------------------------+
| npu-smi 25.2.0                   Version: 25.2.0                                                |
+---------------------------+---------------+-----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)         |
+===========================+===============+=====================================================+
| 0     910B3               | OK            | 93.4        41                0     / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3391  / 65536         |
+===========================+===============+=====================================================+
| 1     910B3               | Alarm         | 93.4        41                0     / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          3391  / 65536         |
+===========================+===============+=====================================================+
+---------------------------+---------------+-----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)       |
+===========================+===============+=====================================================+
| No running processes found in NPU 0                                                              |
+===========================+===============+=====================================================+
| No running processes found in NPU 1                                                              |
+===========================+===============+=====================================================+
"""


def test_npu_smi_info_has_the_vendors_layout(two_cards: Path) -> None:
    done = smi(two_cards, "info")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert {len(line) for line in lines} == {99}
    assert lines[:15] == INFO.splitlines()[:15]
    assert [line.split()[1:6] for line in lines if "running" in line] == [
        ["No", "running", "processes", "found", "in"]
    ] * 2


def test_npu_smi_list(two_cards: Path) -> None:
    done = smi(two_cards, "info", "-l")
    assert done.stdout == (
        "\tTotal Count                    : 2\n\n"
        "\tNPU ID                         : 0\n\tChip Count                     : 1\n\n"
        "\tNPU ID                         : 1\n\tChip Count                     : 1\n\n"
    )
    assert smi(two_cards, "-v").stdout == "npu-smi version: 25.2.0\n"


def test_npu_smi_failures_carry_the_low_byte(two_cards: Path, tmp_path: Path) -> None:
    assert smi(two_cards).returncode == 215
    wrong = smi(two_cards, "frobnicate")
    assert wrong.returncode == 211
    assert wrong.stdout.startswith("Command or option is not found.\n")
    missing = smi(tmp_path / "none", "info")
    assert missing.returncode == 187
    assert missing.stdout == "dcmi module initialize failed. ret is -8005\n"


@pytest.mark.parametrize(
    ("arguments", "status", "out"),
    [
        (["-i", "1", "-link", "-g"], 0, "link status: UP\n"),
        (["-i", "9", "-link", "-g"], 1, ""),
        (["-i", "x", "-link", "-g"], 1, ""),
        (["-i", "1", "-speed", "-g"], 1, ""),
        ([], 1, ""),
    ],
)
def test_hccn_tool_link(two_cards: Path, arguments: list[str], status: int, out: str) -> None:
    done = subprocess.run(
        [str(native.find("fake_dcmi", "hccn_tool")), *arguments],
        env={"NPU_TESTBED_IMAGE": str(two_cards), "LD_LIBRARY_PATH": str(LIBRARY.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, out)
