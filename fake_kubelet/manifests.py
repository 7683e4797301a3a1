"""Static pods: files in the manifest directory, each one pod."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

DIRECTORY = "etc/kubernetes/manifests"
LOOK_S = 1.0
# A directory's time is coarse: for so long after a change its names may still be about to change.
RECENT_NS = 3_000_000_000


class PodSink(Protocol):
    """Who takes the pods."""

    def has_pod(self, name: str, namespace: str) -> bool: ...
    def create_pod(self, pod: Mapping[str, Any]) -> str:
        """Raises ValueError for what is no pod."""

    def delete_pod(self, name: str, namespace: str, *, grace_s: float) -> None: ...


class Manifests:
    """Looks every second: a new file is a pod, a changed file a new one, a removed file none.
    `complain(file, why)` hears of a file that is no pod."""

    def __init__(self, root: Path, sink: PodSink, complain: Callable[[str, str], None]) -> None:
        self._place = str(root / DIRECTORY)
        self._sink = sink
        self._complain = complain
        self._timer: asyncio.TimerHandle | None = None
        self._seen_ns = -1
        self._pods: dict[tuple[str, int], tuple[str, str] | None] = {}  # file, its time -> its pod

    def open(self) -> None:
        os.makedirs(self._place, exist_ok=True)
        self._look()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        with contextlib.suppress(OSError):
            changed_ns = os.stat(self._place).st_mtime_ns
            is_quiet = changed_ns == self._seen_ns and changed_ns < time.time_ns() - RECENT_NS
            if is_quiet and not self._pods:
                return
            self._seen_ns = changed_ns
        there = self._files()
        for gone in self._pods.keys() - there:
            known = self._pods.pop(gone)
            if known is not None and self._sink.has_pod(*known):
                self._sink.delete_pod(*known, grace_s=0)
        for file in sorted(there - self._pods.keys()):
            self._read(file)

    def _files(self) -> set[tuple[str, int]]:
        with contextlib.suppress(OSError), os.scandir(self._place) as entries:
            return {
                (entry.name, entry.stat().st_mtime_ns)
                for entry in entries
                if entry.name.endswith((".yaml", ".yml"))
            }
        return set()

    def _read(self, file: tuple[str, int]) -> None:
        try:
            pod = yaml.safe_load(Path(self._place, file[0]).read_text())
            name = (str(pod["metadata"]["name"]), str(pod["metadata"].get("namespace", "default")))
            if self._sink.has_pod(*name):
                return  # the one before has to go first
            self._sink.create_pod(pod)
        except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
            self._complain(file[0], str(error))
            self._pods[file] = None
        else:
            self._pods[file] = name
