"""`python -m fake_kubelet --root DIR`: a kubelet for the device plugins of any vendor."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fake_kubelet import actions
from fake_kubelet.kubelet import Settings
from fake_kubelet.personality import DEFAULT_VERSION, UnknownPersonality
from fake_kubelet.server import SocketPathTooLong
from fake_kubelet.service import KubeletService
from fake_kubelet.topology import POLICIES

CONTROL = "fake-kubelet.sock"
ANSWER_S = 30.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fake_kubelet",
        description="A kubelet for device plugins: point your plugin at ROOT and run it.",
        epilog="Pods: files in ROOT/etc/kubernetes/manifests. Actions, from another terminal: "
        f"--do status, or --do with one of {', '.join(actions.ACTIONS)} and words key=value.",
    )
    parser.add_argument("--root", type=Path, required=True, help="directory that stands for /")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="Kubernetes version (1.28)")
    parser.add_argument("--switch", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--resource-log", action="store_true", help="print each change of counts")
    parser.add_argument("--journal", type=Path, help="write everything that happens, JSON lines")
    parser.add_argument("--https-port", type=int, help="serve /pods, /metrics and so on; 0: any")
    parser.add_argument("--topology-policy", choices=POLICIES, default="none")
    parser.add_argument("--node-status-update", type=float, default=0.5, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--do", nargs="+", metavar="WORD", help="act on the kubelet that runs")
    return parser


class _Log:
    """What is printed and written down."""

    def __init__(self, journal: Path | None, *, shows_counts: bool) -> None:
        self._file = journal.open("w") if journal is not None else None
        self._shows_counts = shows_counts
        self._counts: dict[str, tuple[str, str]] = {}

    def record(self, kind: str, fields: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._file is not None:
            line = json.dumps({"time": now, "kind": kind, **fields}, default=str)
            self._file.write(line + "\n")
            self._file.flush()
        if kind == "node.status" and self._shows_counts:
            for name, capacity in sorted(fields["capacity"].items()):
                counts = (capacity, fields["allocatable"].get(name, capacity))
                if self._counts.get(name) != counts:
                    self._counts[name] = counts
                    print(f"{now} {name} capacity={counts[0]} allocatable={counts[1]}", flush=True)
        elif kind in ("plugin.register", "plugin.unreachable", "plugin.stream-ended"):
            shown = " ".join(f"{name}={value}" for name, value in fields.items())
            print(f"{now} {kind} {shown}", file=sys.stderr, flush=True)


async def _serve(arguments: argparse.Namespace) -> None:
    switches = dict(word.partition("=")[::2] for word in arguments.switch)
    log = _Log(arguments.journal, shows_counts=arguments.resource_log)
    service = KubeletService(
        arguments.root,
        version=arguments.version,
        switches=switches,
        settings=Settings(
            node_status_update_s=arguments.node_status_update,
            topology_policy=arguments.topology_policy,
        ),
        seed=arguments.seed,
        on_record=log.record,
    )
    control = arguments.root / CONTROL
    server = None
    try:
        await service.start(https_port=arguments.https_port)
        control.unlink(missing_ok=True)
        old_mask = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(
                lambda reader, writer: _answer(service, reader, writer), control
            )
        finally:
            os.umask(old_mask)
        print(f"kubelet {arguments.version}: {service.shell.sockets.socket}", file=sys.stderr)
        https = service.shell.https
        if https is not None:
            print(f"https://127.0.0.1:{https.port}, token {https.token}", file=sys.stderr)
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await ended.wait()
    finally:
        if server is not None:
            server.close()
            control.unlink(missing_ok=True)
        await service.close()


async def _answer(
    service: KubeletService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One request: a JSON list of words on a line."""
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = _do(service, await reader.readline())
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
    except (TimeoutError, ValueError, OSError):
        pass  # nobody there, or nothing we understand
    finally:
        writer.close()


def _do(service: KubeletService, line: bytes) -> dict[str, Any]:
    try:
        words = json.loads(line)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words[:99]):
            raise actions.BadAction("wanted a list of words")
        verb, *rest = words
        if verb != "status":
            service.perform(actions.parse(verb, rest))
        return service.status()
    except (actions.BadAction, ValueError) as error:
        return {"error": str(error)}


def _ask(root: Path, words: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        try:
            connection.connect(str(root / CONTROL))
            connection.sendall(json.dumps(words).encode() + b"\n")
            answer = json.loads(connection.makefile().readline() or "{}")
        except OSError as error:
            print(
                f"{root}: no kubelet answers there ({error.strerror or error}). "
                f"Next: python -m fake_kubelet --root {root}",
                file=sys.stderr,
            )
            return 4
    if "error" in answer:
        print(f"--do: {answer['error']}", file=sys.stderr)
        return 2
    print(json.dumps(answer, indent=2))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.do:
        return _ask(arguments.root, arguments.do)
    try:
        asyncio.run(_serve(arguments))
    except (UnknownPersonality, SocketPathTooLong) as error:
        print(f"fake_kubelet: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"fake_kubelet: {error}. Next: choose a place you may write to.", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
