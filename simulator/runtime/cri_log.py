"""Container logs in the format the kubelet and its readers know: one stamped line per line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path


def line(epoch_s: float, text: str, *, is_whole: bool = True) -> str:
    """One log line: time, stream, F for a full line or P for a part of one, text."""
    stamp = datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
    return f"{stamp} stdout {'F' if is_whole else 'P'} {text}\n"


def read(path: Path) -> str | None:
    """The text a container wrote, None when it has not started. Damaged lines are left out."""
    try:
        raw = path.read_text(errors="replace")
    except OSError:
        return None
    text = ""
    for entry in raw.splitlines():
        parts = entry.split(" ", 3)
        if len(parts) >= 3 and parts[2] in ("F", "P"):
            text += (parts[3] if len(parts) > 3 else "") + ("\n" if parts[2] == "F" else "")
    return text


class Writer:
    """Turns bytes as they come into stamped lines."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        self._now = now
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for whole in lines:
            self._file.write(line(self._now(), whole.decode(errors="replace")))
        self._file.flush()

    def close(self) -> None:
        if self._rest:
            text = self._rest.decode(errors="replace")
            self._file.write(line(self._now(), text, is_whole=False))
        self._file.close()
