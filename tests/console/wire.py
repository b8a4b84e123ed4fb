"""A wire to a local port that can be cut, with everything that goes through it, and mended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final


class Wire:
    def __init__(self, target: int) -> None:
        self._target: Final = target
        self._server: asyncio.Server | None = None
        self._ends: Final[set[asyncio.StreamWriter]] = set()
        self.port = 0

    async def open(self) -> None:
        """Let connections through, always on the same port."""
        if self._server is None:
            self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for end in self._ends:
            end.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._ends.update((writer, far_writer))
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        self._ends.difference_update((writer, far_writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        with suppress(OSError):
            writer.close()
