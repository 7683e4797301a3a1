"""The socket next to the hardware image, over which the library asks for changes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from fake_dcmi import asks

READ_WITHIN_S = 5.0

# What a request asks for -> (driver code, out parameters by name).
Handle = Callable[[asks.Ask], tuple[int, dict[str, object]]]


class DriverSocket:
    """Listens at `<image>.sock`; a broken request ends its connection and nothing else."""

    def __init__(self, image: Path, handle: Handle) -> None:
        self._path = image.with_name(image.name + ".sock")
        self._handle = handle
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)
        # The path may be longer than a socket address holds: reach it through its directory.
        directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            near = f"/proc/self/fd/{directory}/{self._path.name}"
            self._server = await asyncio.start_unix_server(self._serve, path=near)
        finally:
            os.close(directory)
        self._path.chmod(0o666)  # the library checks for root itself, as the driver does

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                name, head, size = asks.parse_head(await reader.readexactly(asks.REQUEST_SIZE))
                ask = asks.parse(name, head, await reader.readexactly(size))
            code, values = self._handle(ask)
            writer.write(asks.answer(name, code, values))
            await writer.drain()
        except (ValueError, asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            pass  # not a request, or its sender is gone
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
