"""What tests of several rooms need."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# A suite that was started in the background of a script ignores Ctrl-C, and so would every program
# it starts, while some tests are about just that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """An empty directory with a short name: the paths of Unix sockets are limited."""
    made = Path(tempfile.mkdtemp(prefix="npu-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)
