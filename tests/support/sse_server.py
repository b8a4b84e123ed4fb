"""A small HTTP server, in a process of its own, that streams words for ever and knows when each client hung up.

It prints its port. `POST /` streams server-sent events; `GET /report` answers with how many streams are open and when,
by the machine's monotonic clock, each of the others was closed, and forgets the latter.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

PAUSE = 0.02


class SseServer:
    def __init__(self) -> None:
        self.open = 0
        self.closed: list[float] = []

    async def serve(self) -> None:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET"):
                await self._report(writer)
            else:
                await self._stream(head, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _report(self, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"open": self.open, "closed": self.closed}).encode()
        self.closed = []
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    async def _stream(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        self.open += 1
        hung_up = asyncio.ensure_future(reader.read(1))
        try:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            while not hung_up.done():
                writer.write(_chunk(b"data: word \n\n"))
                await asyncio.wait((hung_up,), timeout=PAUSE)
        finally:
            self.open -= 1
            self.closed.append(time.monotonic())
            hung_up.cancel()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextmanager
def sse_process() -> Iterator[str]:
    """The server, running; its address."""
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class HttpModel:
    """A model behind that server: real sockets, real streams."""

    price = None

    def __init__(self, client, url: str, name: str = "sse") -> None:
        self.name = name
        self._client = client
        self._url = url

    @asynccontextmanager
    async def stream(self, request) -> AsyncGenerator[AsyncIterator]:
        from quiesce.events import TextDelta

        async def deltas():
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    yield TextDelta(line[6:])

        async with self._client.stream("POST", self._url, json={"messages": len(request.messages)}) as response:
            yield deltas()


if __name__ == "__main__":
    asyncio.run(SseServer().serve())
