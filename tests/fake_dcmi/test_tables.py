"""The tables behind the library: complete, consistent with each other, and the C made from them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from fake_dcmi import api, calls, layout, support
from simulator import driver
from simulator.hardware import faults, profile
from simulator.hardware.profile import names
from tests.fake_dcmi.conftest import LIBRARY, SOURCES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("file", "made"),
    [
        ("dcmi.h", api.c_header),
        ("functions.h", api.function_numbers),
        ("image_layout.h", layout.c_header),
        ("calls.c", calls.c_source),
        ("fault_texts.h", faults.c_table),
        ("smi/templates.h", profile.c_table),
    ],
)
def test_generated_sources_are_current(file: str, made: object) -> None:
    assert (SOURCES / file).read_text() == made()  # type: ignore[operator]


def test_library_exports_the_interface_and_nothing_else() -> None:
    done = subprocess.run(
        ["nm", "-D", "--defined-only", str(LIBRARY)], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in done.stdout.splitlines()}
    assert exported == set(api.functions())
    assert len(exported) == 327


def test_library_has_the_name_and_needs_of_the_real_one() -> None:
    done = subprocess.run(
        ["readelf", "-d", str(LIBRARY)], capture_output=True, text=True, check=True
    )
    assert "Library soname: [libdcmi.so]" in done.stdout
    assert "NODELETE" in done.stdout
    needed = set(re.findall(r"Shared library: \[(.*?)\]", done.stdout))
    assert needed <= {"libc.so.6", "libpthread.so.0", "libdl.so.2"}
    assert LIBRARY.stat().st_size <= 300_000


def test_every_function_with_a_known_client_behaves_on_some_product() -> None:
    used = [name for name, function in api.functions().items() if function.clients]
    assert len(used) == 117
    silent = [
        name
        for name in used
        if calls.table()[name].kind == "refuse"
        or all(name in support.refusals(family) for family in support.families())
    ]
    # One client's spelling of the UnifiedBus ping in the first API, which a 950 refuses as a whole;
    # and PCIe traffic, which the published driver has only for 950 cards, not servers.
    assert silent == [
        "dcmi_get_ub_ping_mesh_info",
        "dcmi_get_ub_ping_mesh_state",
        "dcmi_start_ub_ping_mesh",
        "dcmi_stop_ub_ping_mesh",
        "dcmiv2_get_pcie_link_bandwidth_info",
    ]


def test_what_is_asked_of_the_simulator_is_carried_out_there() -> None:
    asked = {name for name, call in calls.table().items() if call.kind == "ask"}
    assert asked == driver.handled()


def test_support_knows_every_function_and_family() -> None:
    rows = support._functions()
    assert set(rows) == set(api.functions())
    for name, row in rows.items():
        assert set(row["refuses"]) <= set(support.families()), name
        assert all(code in api.return_codes() for code in row["refuses"].values()), name
    assert len(names()) == 14


def test_function_table_of_the_documentation_is_current() -> None:
    assert (DOCS / "dcmi-functions.md").read_text() == support.page()
