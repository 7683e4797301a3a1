"""What tests of several rooms need."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """An empty directory with a short name: the paths of Unix sockets are limited."""
    made = Path(tempfile.mkdtemp(prefix="npu-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)
