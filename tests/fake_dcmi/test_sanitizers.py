"""The library under the sanitizers and a fuzzer: every entry point, whole and damaged images.

AddressSanitizer and UBSan catch what a wrong argument or a damaged image makes of memory, the
ThreadSanitizer what a writer at full speed does to readers. `NPU_TESTBED_FUZZ_S` makes the fuzzing
longer than the short run that belongs to the suite.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fake_dcmi import api, calls
from fake_dcmi.image import ImageWriter
from simulator.faces import image_state
from simulator.hardware.faults import catalogue
from simulator.hardware.model import Hardware, Process, load_profile
from tests.fake_dcmi.conftest import SOURCES

HARNESS = Path(__file__).with_name("harness.c")
PARTS = ("answers.c", "calls.c", "engine.c", "events.c", "publish.c", "race.c")


def exercise() -> str:
    """C: one case per function, arguments taken from the bytes."""
    lines = [
        "static int call_function(unsigned int which, struct bytes *from, unsigned char *room)",
        "{",
        "    switch (which) {",
    ]
    for number, (name, function) in enumerate(api.functions().items()):
        lines.append(f"    case {number}: {{")
        passed = []
        for at, param in enumerate(function.params):
            ctype = api.c_type(param.type)
            struct = calls.pointed_struct(param)
            if ctype == "dcmi_fault_callback":
                passed.append("hear")
            elif param.is_pointer:
                passed.append(f"({ctype})pointer(from, room)")
            elif struct is not None:
                lines.append(f"        {ctype} value{at};")
                lines.append(f"        memset(&value{at}, (int)take(from), sizeof value{at});")
                passed.append(f"value{at}")
            elif param.name == "timeout":
                passed.append("(int)(take(from) % 3)")
            else:
                passed.append(f"({ctype})pick(from)")
        lines.append(f"        return {name}({', '.join(passed)});")
        lines.append("    }")
    return "\n".join([*lines, "    }", "    return 0;", "}", ""])


def build(directory: Path, compiler: str, *flags: str) -> Path:
    (directory / "exercise.inc").write_text(exercise())
    program = directory / "harness"
    command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-w", f"-I{SOURCES}"]
    command += [f"-I{directory}", *flags, str(HARNESS), *(str(SOURCES / part) for part in PARTS)]
    done = subprocess.run(
        [*command, "-o", str(program), "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and "annot find" in done.stderr:
        pytest.skip(f"{compiler} has no runtime for {' '.join(flags)}")
    assert done.returncode == 0, done.stderr
    return program


def image(directory: Path) -> Path:
    hardware = Hardware(load_profile("atlas-900-a3-superpod"), cards=2)
    hardware.inject(0, catalogue()[0x80E24E00])
    hardware.start_process(hardware.chip(1), Process(pid=1, name="x", memory_mb=5), 0)
    hardware.chip(1, 1).slices.create("vir06_1c_16g")
    path = directory / "hardware.img"
    ImageWriter(path, image_state(hardware, now=3), boot_id=1).close()
    return path


def run(program: Path, *arguments: str, **env: str) -> str:
    done = subprocess.run(
        [str(program), *arguments],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.mark.slow
def test_every_entry_point_and_damaged_images_under_address_and_ub_sanitizer(
    tmp_path: Path,
) -> None:
    program = build(tmp_path, "gcc", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    run(program, str(image(tmp_path)), "1", "3000")


@pytest.mark.slow
def test_readers_and_writer_under_thread_sanitizer(tmp_path: Path) -> None:
    program = build(tmp_path, "gcc", "-fsanitize=thread")
    # Older runtimes cannot bear much randomness in addresses, so it is taken away.
    out = run(
        Path("setarch"),
        "-R",
        str(program),
        str(image(tmp_path)),
        "race8",
        "20000",
        TSAN_OPTIONS="halt_on_error=1",
    )
    assert out == "0 torn\n"


@pytest.mark.slow
def test_no_read_is_torn_by_a_writer_at_full_speed(tmp_path: Path) -> None:
    program = build(tmp_path, "gcc", "-O2")
    assert run(program, str(image(tmp_path)), "race64", "2000000") == "0 torn\n"


@pytest.mark.slow
def test_fuzzer_finds_nothing(tmp_path: Path) -> None:
    clang = next((found for name in ("clang", "clang-14") if (found := shutil.which(name))), None)
    if clang is None:
        pytest.skip("clang is not installed; it brings the fuzzer")
    flags = ("-DFUZZ", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")
    program = build(tmp_path, clang, *flags)
    seconds = os.environ.get("NPU_TESTBED_FUZZ_S", "5")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    run(
        program,
        f"-max_total_time={seconds}",
        "-max_len=600",
        "-timeout=10",
        f"-artifact_prefix={tmp_path}/",
        str(corpus),
        HARNESS_IMAGE=str(image(tmp_path)),
    )
