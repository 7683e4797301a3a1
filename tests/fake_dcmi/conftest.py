"""An image and the compiled library, for tests that call it from this process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_dcmi import layout, native
from fake_dcmi.image import ImageWriter
from simulator.faces import image_state
from simulator.hardware.model import Hardware, load_profile

LIBRARY = native.find("fake_dcmi", "libdcmi.so")
SOURCES = Path(layout.__file__).parent / "csrc"


class Driver:
    """A node's image and the library that reads it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "hardware.img"
        self.library: Any = ctypes.CDLL(str(LIBRARY))
        self._writers: dict[tuple[str, int], tuple[ImageWriter, Path]] = {}

    def show(self, hardware: Hardware, **when: float) -> ImageWriter:
        """Publish a state in the image of its shape, and have the library open that."""
        key = (hardware.profile.name, len(hardware))
        if key not in self._writers:
            path = self.path.with_name(f"{key[0]}-{key[1]}.img")
            writer = ImageWriter(path, image_state(hardware, **when), boot_id=1)
            self._writers[key] = (writer, path)
        writer, path = self._writers[key]
        writer.publish(image_state(hardware, **when))
        os.environ["NPU_TESTBED_IMAGE"] = str(path)
        self.library.dcmi_init()
        self.library.dcmiv2_init()
        return writer

    def close(self) -> None:
        for writer, _ in self._writers.values():
            writer.close()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    made = Driver(tmp_path_factory.mktemp("driver"))
    yield made
    os.environ.pop("NPU_TESTBED_IMAGE", None)
    made.close()


@pytest.fixture
def node(driver: Driver) -> tuple[Driver, Hardware]:
    """Eight 910B3 cards, fresh."""
    hardware = Hardware(load_profile("atlas-800t-a2-910b3"))
    driver.show(hardware)
    return driver, hardware
