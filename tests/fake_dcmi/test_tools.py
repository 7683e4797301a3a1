"""npu-smi and hccn_tool as programs: layouts, fields, statuses, and what parsers make of them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_dcmi import native
from fake_dcmi.image import ImageWriter
from simulator.faces import image_state
from simulator.hardware.faults import catalogue
from simulator.hardware.model import Hardware, Process, load_profile
from simulator.hardware.profile import names, templates

LIBRARY = native.find("fake_dcmi", "libdcmi.so")
Run = subprocess.CompletedProcess[str]
Tool = Callable[..., Run]


def make(path: Path, profile: str = "atlas-800t-a2-910b3", cards: int = 2) -> Hardware:
    hardware = Hardware(load_profile(profile), cards=cards)
    hardware.inject(cards - 1, catalogue()[0x80E24E00])
    process = Process(pid=os.getpid(), name="python", memory_mb=71)
    hardware.start_process(hardware.chip(0), process, 0)
    show(path, hardware)
    return hardware


def show(path: Path, hardware: Hardware) -> None:
    ImageWriter(path, image_state(hardware, now=50, epoch_s=1.7e9), boot_id=1).close()


def tool(name: str, image: Path, *arguments: str) -> Run:
    return subprocess.run(
        [str(native.find("fake_dcmi", name)), *arguments],
        env={"NPU_TESTBED_IMAGE": str(image), "LD_LIBRARY_PATH": str(LIBRARY.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "hardware.img"
    make(path)
    return path


def smi(image: Path, *arguments: str) -> Run:
    return tool("npu-smi", image, *arguments)


INFO = """\
+-------------------------------------------------------------------------------------------------+
| npu-smi 25.2.0                   Version: 25.2.0                                                |
+---------------------------+---------------+-----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)         |
+===========================+===============+=====================================================+
| 0     910B3               | OK            | 311.4       70                0     / 0             |
| 0                         | 0000:C1:00.0  | 92          0    / 0          3462  / 65536         |
+===========================+===============+=====================================================+
| 1     910B3               | Alarm         | 93.4        41                0     / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          3391  / 65536         |
+===========================+===============+=====================================================+
+---------------------------+---------------+-----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)       |
+===========================+===============+=====================================================+
| 0       0                 | PID           | NAME                     | 71                       |
+===========================+===============+=====================================================+
| No running processes found in NPU 1                                                             |
+===========================+===============+=====================================================+
"""


def plain(text: str) -> str:
    """Without the process's own id and name, and the noise in a busy chip's numbers."""
    text = re.sub(
        r"\| 0       0                 \| \d+ +\| .{24} \|",
        "| 0       0                 | PID           | NAME                     |",
        text,
    )
    return re.sub(r"\| 3\d\d\.\d +\d\d ", "| 311.4       70 ", text).replace(
        next(iter(re.findall(r"\| 9\d  ", text)), "| 92  "), "| 92  "
    )


def test_info_has_the_vendors_layout(image: Path) -> None:
    done = smi(image, "info")
    assert done.returncode == 0
    assert done.stderr == ""
    assert plain(done.stdout) == INFO


@pytest.mark.parametrize("profile", names())
def test_every_products_table_is_even_and_shows_every_chip(profile: str, tmp_path: Path) -> None:
    path = tmp_path / "hardware.img"
    hardware = make(path, profile)
    done = smi(path, "info")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert len({len(line) for line in lines}) == 1
    buses = re.findall(r"\| 0000:[0-9A-F]{2}:00\.0 ", done.stdout)
    assert len(buses) == len(hardware)
    assert done.stdout.count(hardware.profile.chip_name) == len(hardware)


def test_two_die_cards_have_one_meter_and_physical_ids(tmp_path: Path) -> None:
    path = tmp_path / "hardware.img"
    make(path, "atlas-900-a3-superpod")
    out = smi(path, "info").stdout
    assert "| Chip  Phy-ID              |" in out
    assert re.search(r"\| 1     3                   \|", out)
    assert len(re.findall(r"\| -  ", out)) == 2  # the second die of each card
    assert "Chip Phy-ID" in smi(path, "info", "-m").stdout


def test_a_dropped_card_is_unknown_and_an_unlisted_one_absent(image: Path) -> None:
    hardware = Hardware(load_profile("atlas-800t-a2-910b3"), cards=2)
    hardware.drop(1)
    show(image, hardware)
    out = smi(image, "info").stdout
    assert re.search(r"\| 1 +910B3 +\| UNKNOWN +\| 0\.0 +0 ", out)
    assert "0     / 0             |" in out
    hardware.list_only(1)
    show(image, hardware)
    done = smi(image, "info")
    assert done.returncode == 0
    assert "| 1     910B3" not in done.stdout
    hardware.list_only(0)
    show(image, hardware)
    assert smi(image, "info", "-l").stdout == "There is no NPU card on this server.\n"


def test_list_and_map(image: Path) -> None:
    assert smi(image, "info", "-l").stdout == (
        "\tTotal Count                    : 2\n\n"
        "\tNPU ID                         : 0\n\tChip Count                     : 1\n\n"
        "\tNPU ID                         : 1\n\tChip Count                     : 1\n\n"
    )
    rows = [line.split() for line in smi(image, "info", "-m").stdout.splitlines()[1:]]
    assert rows == [
        ["0", "0", "0", "Ascend", "910B3"],
        ["0", "1", "-", "Mcu"],
        ["1", "0", "1", "Ascend", "910B3"],
        ["1", "1", "-", "Mcu"],
    ]


def keys(text: str) -> list[str]:
    return [line.split(" : ")[0].strip() for line in text.splitlines() if " : " in line]


BOARD = [
    "NPU ID", "Product Name", "Model", "Manufacturer", "Serial Number", "Software Version",
    "Firmware Version", "Compatibility", "Board ID", "PCB ID", "BOM ID", "PCIe Bus Info", "Slot ID",
    "Class ID", "PCI Vendor ID", "PCI Device ID", "Subsystem Vendor ID", "Subsystem Device ID",
    "Chip Count",
]  # fmt: skip
CHIP_BOARD = [
    "NPU ID", "Chip ID", "Chip Type", "Chip Name", "Chip Version", "Board ID", "PCB ID", "BOM ID",
    "VDie ID", "NDie ID", "Chip Position ID", "PCIe Bus Info", "Firmware Version",
]  # fmt: skip
USAGES = [
    "DDR Capacity(MB)", "DDR Usage Rate(%)", "DDR Hugepages Total(page)",
    "DDR Hugepages Usage Rate(%)", "HBM Capacity(MB)", "HBM Usage Rate(%)", "Aicore Usage Rate(%)",
    "Aivector Usage Rate(%)", "Aicpu Usage Rate(%)", "Ctrlcpu Usage Rate(%)",
    "DDR Bandwidth Usage Rate(%)", "HBM Bandwidth Usage Rate(%)", "NPU Utilization(%)",
    "Aicube Usage Rate(%)",
]  # fmt: skip
COMMON = [
    "Memory Usage Rate(%)", "HBM Usage Rate(%)", "Aicore Usage Rate(%)", "Aicore Freq(MHZ)",
    "Aicore curFreq(MHZ)", "Aicore Count", "Temperature(C)", "NPU Real-time Power(W)",
]  # fmt: skip
MEMORY = [
    "DDR Capacity(MB)", "DDR Clock Speed(MHz)", "HBM Capacity(MB)", "HBM Clock Speed(MHz)",
    "HBM Temperature(C)", "HBM Manufacturer ID",
]  # fmt: skip
ECC = [
    f"HBM {name}"
    for name in (
        "Single Bit Error Count", "Double Bit Error Count", "Single Bit Aggregate Total Err Cnt",
        "Double Bit Aggregate Total Err Cnt", "Single Bit Isolated Pages Count",
        "Double Bit Isolated Pages Count",
    )
]  # fmt: skip
HEAD = ["NPU ID", "Chip Count"]


@pytest.mark.parametrize(
    ("kind", "of_card", "of_chip"),
    [
        ("board", BOARD, CHIP_BOARD),
        ("health", [*HEAD, "Health", "Chip ID"],
         ["NPU ID", "Chip ID", "Health Status", "Error Code", "Error Information"]),
        ("temp", [*HEAD, "NPU Temperature (C)", "Chip ID", "MCU Temperature (C)", "Chip Name"],
         ["NPU ID", "Chip ID", "NPU Temperature (C)"]),
        ("power", [*HEAD, "NPU Real-time Power(W)", "Chip ID"],
         ["NPU ID", "Chip ID", "NPU Real-time Power(W)"]),
        ("usages", [*HEAD, *USAGES, "Chip ID"], ["NPU ID", "Chip ID", *USAGES]),
        ("memory", [*HEAD, *MEMORY, "Chip ID"], ["NPU ID", "Chip ID", *MEMORY]),
        ("ecc", [*HEAD, *ECC, "Chip ID"], ["NPU ID", "Chip ID", *ECC]),
        ("common", [*HEAD, "Chip ID", *COMMON], ["NPU ID", "Chip ID", *COMMON]),
    ],
)  # fmt: skip
def test_fields_of_every_type_in_order(
    image: Path, kind: str, of_card: list[str], of_chip: list[str]
) -> None:
    whole = smi(image, "info", "-t", kind, "-i", "1")
    assert (whole.returncode, keys(whole.stdout)) == (0, of_card)
    one = smi(image, "info", "-t", kind, "-i", "1", "-c", "0")
    assert (one.returncode, keys(one.stdout)) == (0, of_chip)


def test_health_names_codes_and_texts(image: Path) -> None:
    out = smi(image, "info", "-t", "health", "-i", "1", "-c", "0").stdout
    assert "\tHealth Status                  : Alarm\n" in out
    assert "\tError Code                     : 80E24E00\n" in out
    assert catalogue()[0x80E24E00].description[:40] in out
    assert (
        "\tError Code                     : NA\n"
        in smi(image, "info", "-t", "health", "-i", "0", "-c", "0").stdout
    )


def test_unreadable_fields_are_na(image: Path) -> None:
    hardware = Hardware(load_profile("atlas-800t-a2-910b3"), cards=2)
    hardware.drop(1)
    show(image, hardware)
    out = smi(image, "info", "-t", "common", "-i", "1").stdout
    assert "\tTemperature(C)                 : NA\n" in out
    assert "\tNPU Real-time Power(W)         : NA\n" in out
    assert "\tAicore Count                   : 20\n" in out  # known from the driver's cache


@pytest.mark.parametrize("profile", [n for n in names() if load_profile(n).vnpu_templates])
def test_template_table_is_the_products_own(profile: str, tmp_path: Path) -> None:
    path = tmp_path / "hardware.img"
    make(path, profile)
    out = smi(path, "info", "-t", "template-info", "-i", "0").stdout
    known = templates(load_profile(profile).family)
    shown = {}
    for match in re.finditer(r"^\|(vir\S+) +(\d+) +(\d+) +([\d.]+) ", out, re.MULTILINE):
        shown[match[1]] = (int(match[2]), int(match[3]), float(match[4]))
    assert shown == {
        name: (known[name].aicores, known[name].memory_mb // 1024, float(known[name].aicpus))
        for name in load_profile(profile).vnpu_templates
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 215, "Usage: npu-smi"),
        (["frobnicate"], 211, "Command or option is not found.\n"),
        (["info", "--wrong"], 211, "Command or option is not found.\n"),
        (["info", "-t"], 215, "The parameter is invalid.\n"),
        (["info", "-t", "power"], 215, "You must select a card at first.\n"),
        (["info", "-t", "power", "-i", "9"], 215, "The parameter is invalid.\n"),
        (["info", "-t", "power", "-i", "x"], 215, "The parameter is invalid.\n"),
        (["info", "-t", "power", "-i", "0", "-c", "5"], 215, "The parameter is invalid.\n"),
        (["info", "-t", "nonsense", "-i", "0"], 215, "The parameter is invalid.\n"),
        (["-h"], 0, "Usage: npu-smi"),
        (["info", "-h"], 0, "Usage: npu-smi"),
        (["-v"], 0, "npu-smi version: 25.2.0\n"),
        (["set", "-t", "reset"], 215, "You must select a card at first.\n"),
        (["set", "-t", "reset", "-i", "0"], 215, "The parameter is invalid.\n"),
    ],
)
def test_statuses_and_texts(image: Path, arguments: list[str], status: int, said: str) -> None:
    done = smi(image, *arguments)
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.startswith(said)


def test_failing_driver_gives_the_low_byte_of_its_code(image: Path, tmp_path: Path) -> None:
    missing = smi(tmp_path / "none", "info")
    assert (missing.returncode, missing.stdout) == (
        187, "dcmi module initialize failed. ret is -8005\n",
    )  # fmt: skip
    reset = smi(image, "set", "-t", "reset", "-i", "0", "-c", "0")
    if os.geteuid() == 0:  # no simulator behind this image
        assert reset.returncode == 187
        assert "Failed to execute npu-smi set. ret is -8005." in reset.stdout


def test_occupied_card_has_a_message_of_its_own(image: Path, tmp_path: Path) -> None:
    hardware = Hardware(load_profile("atlas-800t-a2-910b3"), cards=2)
    hardware.chip(1).holder, hardware.busy_code = "other", -8020
    show(image, hardware)
    dev = tmp_path / "dev"
    dev.mkdir()
    (dev / "davinci1").touch()
    done = subprocess.run(
        [str(native.find("fake_dcmi", "npu-smi")), "info"],
        env={
            "NPU_TESTBED_IMAGE": str(image),
            "LD_LIBRARY_PATH": str(LIBRARY.parent),
            "NPU_TESTBED_CONTAINER": "mine",
            "NPU_TESTBED_DEV": str(dev),
            "NPU_TESTBED_PRIVILEGED": "0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 172
    assert done.stdout == (
        "dcmi model initialized failed, because the device is used. ret is -8020\n"
    )


def test_watch_goes_on_until_its_reader_is_gone(image: Path) -> None:
    process = subprocess.Popen(
        [str(native.find("fake_dcmi", "npu-smi")), "info", "watch", "-i", "0", "-d", "1"],
        env={"NPU_TESTBED_IMAGE": str(image), "LD_LIBRARY_PATH": str(LIBRARY.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("NpuID(Idx)  ChipId(Idx) ")
    assert process.stdout.readline().startswith("0           0           ")
    process.terminate()
    process.wait(10)
    process.stdout.close()


# --- hccn_tool


def hccn(image: Path, *arguments: str) -> Run:
    return tool("hccn_tool", image, *arguments)


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("link", r"link status: UP\n"),
        ("speed", r"Speed: 200000 Mb/s\n"),
        ("net_health", r"net health status: Init\n"),
        ("ip", r"ipaddr:10\.20\.0\.12\nnetmask:255\.255\.0\.0\n"),
        ("gateway", r"default gateway:10\.20\.0\.1, Iface:eth1\n"),
        ("netdetect", r"netdetect addr: 10\.20\.0\.1\n"),
        ("mac", r"mac addr: 02:4e:50:55:00:01\n"),
        ("bandwidth", r"Bandwidth TX: +\d+\.\d\d MB/sec\nBandwidth RX: +\d+\.\d\d MB/sec\n"),
        ("vnic", r"vnic link status: UP\nvnic ipaddr: [\d.]+\nvnic netmask: [\d.]+\n"),
        ("tls", r"dev_id:1, tls switch.*\n"),
        ("lldp", r".+\n"),
        ("route", r"(?s)Routing table:\n.+"),
    ],
)
def test_hccn_queries(image: Path, what: str, pattern: str) -> None:
    done = hccn(image, "-i", "1", f"-{what}", "-g")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(pattern, done.stdout)


def test_link_statistics_parse_as_clients_parse_them(image: Path) -> None:
    hardware = Hardware(load_profile("atlas-800t-a2-910b3"), cards=2)
    hardware.chip(1).settings["link_changes"] = ((10, False), (20, True))
    show(image, hardware)
    lines = hccn(image, "-i", "1", "-link_stat", "-g").stdout.splitlines()
    up = next(line for line in lines if "link up count" in line).split()
    assert (len(up), up[-1]) == (6, "2")
    assert [line.rsplit("    ", 1)[1] for line in lines[-2:]] == ["LINK DOWN", "LINK UP"]
    assert hccn(image, "-i", "0", "-link_stat", "-g").stdout.endswith("change records : NA\n")


def test_counters_and_optics_parse_as_clients_parse_them(image: Path) -> None:
    lines = hccn(image, "-i", "0", "-stat", "-g").stdout.splitlines()
    assert lines[0] == "packet statistics:"
    counters = dict(line.split(":") for line in lines[1:])
    assert len(counters) == 44
    assert all(value.isdigit() for value in counters.values())
    assert int(counters["roce_rx_all_pkt_num"]) > 0
    optical = hccn(image, "-i", "0", "-optical", "-g").stdout.splitlines()
    values = {
        key.strip(): value.strip() for key, value in (line.split(":", 1) for line in optical[1:])
    }
    assert values["present"] == "present"
    assert re.fullmatch(r"\d+ C", values["temperature"])
    assert re.fullmatch(r"0\.\d{4} mW", values["Rx Power3"])


def test_a_link_is_down_by_hand_and_with_its_card(image: Path) -> None:
    hardware = Hardware(load_profile("atlas-800t-a2-910b3"), cards=2)
    hardware.chip(0).settings["link_up"] = False
    hardware.drop(1)
    show(image, hardware)
    for phy_id in "01":
        done = hccn(image, "-i", phy_id, "-link", "-g")
        assert (done.returncode, done.stdout) == (0, "link status: DOWN\n")
    assert hccn(image, "-i", "0", "-speed", "-g").stdout == "Speed: Unknown!\n"
    assert hccn(image, "-i", "1", "-speed", "-g").returncode != 0


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["-i", "9", "-link", "-g"], ["-i", "x", "-link", "-g"], ["-i", "1", "-nonsense", "-g"],
        ["-i", "1", "-link"], ["-i", "1", "-link", "-s"],
    ],
)  # fmt: skip
def test_hccn_failures_say_so_on_stderr_only(image: Path, arguments: list[str]) -> None:
    done = hccn(image, *arguments)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.endswith("See hccn_tool -h for the commands.\n")


def test_a_card_without_a_port_has_nothing_to_tell(tmp_path: Path) -> None:
    path = tmp_path / "hardware.img"
    make(path, "atlas-300i-a2")
    assert hccn(path, "-i", "0", "-link", "-g").returncode == 4
