"""Talking to a running testbed: one JSON line in, one out, over a Unix socket only its owner can
open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.errors import HostError, InternalError, ScenarioError, TestbedError

SOCKET = "control.sock"
TIMEOUT_S = 40.0
MAX_LINE = 1 << 16

# A request is {"verb": ..., "words": [...]}; the handler may block, it runs in a thread.
Handler = Callable[[str, list[str]], Any]


class ControlServer:
    """Listens in a testbed's directory."""

    def __init__(self, directory: Path, handle: Handler) -> None:
        self._path = directory / SOCKET
        self._handle = handle
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, path=str(self._path), limit=MAX_LINE
            )
        finally:
            os.umask(mask)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(await reader.readline())
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (ValueError, ConnectionError):
            pass  # a line too long, or a client that went away
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            verb, words = str(request["verb"]), [str(word) for word in request["words"]]
        except (ValueError, KeyError, TypeError):
            return {"error": "the request is not understood", "exit_code": 2}
        try:
            return {"result": await asyncio.to_thread(self._handle, verb, words)}
        except TestbedError as error:
            return {"error": str(error), "exit_code": error.exit_code}
        except LookupError as error:
            return {"error": str(error.args[0]), "exit_code": ScenarioError.exit_code}


def ask(directory: Path, verb: str, words: list[str]) -> Any:
    """Send one request to the testbed in `directory`; raises what it answers."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(TIMEOUT_S)
            client.connect(str(directory / SOCKET))
            client.sendall(json.dumps({"verb": verb, "words": words}).encode() + b"\n")
            with client.makefile("rb") as stream:
                line = stream.readline()
    except OSError:
        raise HostError(f"no testbed answers in {directory}. Next: npu-testbed up.") from None
    try:
        answer = json.loads(line)
    except ValueError:
        raise HostError(f"the testbed in {directory} ended meanwhile.") from None
    if "error" in answer:
        kinds = {kind.exit_code: kind for kind in (ScenarioError, HostError)}
        raise kinds.get(answer["exit_code"], InternalError)(f"{verb}: {answer['error']}")
    return answer["result"]
