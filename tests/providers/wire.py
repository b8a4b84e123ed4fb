"""A real HTTP server on loopback that plays recorded bytes, one play for each request."""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

CRLF = b"\r\n"


@dataclass
class Play:
    """What the server does with one request: write `data`, then `then`.

    keep   wait for the next request on the same connection
    close  end the connection in order
    reset  end it without order
    rst    the same, with an RST: the client may lose what it has not read yet
    stall  say nothing more until the client goes away
    flood  write `more` again and again until the client goes away
    """

    data: bytes = b""
    then: Literal["keep", "close", "reset", "rst", "stall", "flood"] = "keep"
    more: bytes = b""
    pause: float = 0.0


@dataclass
class Request:
    """What the client sent."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Wire:
    """The server's side of the story."""

    plays: list[Play] = field(default_factory=list)
    otherwise: Play | None = None
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    most_open: int = 0
    hang_ups: list[float] = field(default_factory=list)
    stray_bytes: int = 0
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Condition = field(default_factory=asyncio.Condition)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def play(self, *plays: Play | bytes) -> None:
        """Plays for the next requests."""
        self.plays += [play if isinstance(play, Play) else Play(play) for play in plays]

    async def all_gone(self) -> None:
        """Wait until every connection has ended."""
        async with self.gone:
            await self.gone.wait_for(lambda: self.open == 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await self._talk(reader, writer, self.connections)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 1)
            self.open -= 1
            self._tasks.discard(task)
            async with self.gone:
                self.gone.notify_all()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while True:
            request = await read_request(reader, number)
            if request is None:
                return
            self.requests.append(request)
            play = self.plays.pop(0) if self.plays else self.otherwise
            assert play is not None, "the server has no play for this request"
            writer.write(play.data)
            if play.then in ("reset", "rst"):
                await asyncio.sleep(0)
                if play.then == "rst":
                    no_linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
                writer.transport.abort()
                return
            await writer.drain()
            if play.then == "close":
                return
            if play.then in ("stall", "flood"):
                await self._until_gone(reader, writer, play)
                return

    async def _until_gone(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, play: Play) -> None:
        self.waiting.set()
        flood = asyncio.create_task(_flood(writer, play)) if play.then == "flood" else None
        try:
            while True:
                received = await reader.read(65536)
                if not received:
                    break
                self.stray_bytes += len(received)
        except ConnectionError:
            pass
        self.hang_ups.append(time.perf_counter())
        if flood is not None:
            flood.cancel()
            await asyncio.wait([flood])

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))


async def _flood(writer: asyncio.StreamWriter, play: Play) -> None:
    while not writer.is_closing():
        writer.write(play.more)
        try:
            await writer.drain()
        except ConnectionError:
            return
        await asyncio.sleep(play.pause)


async def read_request(reader: asyncio.StreamReader, connection: int = 0) -> Request | None:
    try:
        head = (await reader.readuntil(CRLF + CRLF)).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split()[1], headers, body, connection)


@asynccontextmanager
async def wire(*plays: Play | bytes, otherwise: Play | bytes | None = None, ssl: Any = None) -> AsyncIterator[Wire]:
    """A server that is there for as long as the block."""
    server_side = Wire()
    server_side.play(*plays)
    server_side.otherwise = Play(otherwise) if isinstance(otherwise, bytes) else otherwise
    server = await asyncio.start_server(server_side.serve, "127.0.0.1", 0, ssl=ssl, backlog=512)
    server_side.port = server.sockets[0].getsockname()[1]
    try:
        yield server_side
    finally:
        server.close()
        await server_side.close()
        await server.wait_closed()


# --- HTTP and event formats ------------------------------------------------------------------------------------------


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def head(content_type: str, *, chunked: bool = True, headers: dict[str, str] | None = None) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"content-type: " + content_type.encode()]
    lines.append(b"transfer-encoding: chunked" if chunked else b"connection: close")
    lines += [f"{name}: {value}".encode() for name, value in (headers or {}).items()]
    return CRLF.join(lines) + CRLF + CRLF


def streamed(events: Iterable[bytes], content_type: str, headers: dict[str, str] | None = None) -> bytes:
    """A whole response: each event in a chunk of its own."""
    return head(content_type, headers=headers) + b"".join(chunk(event) for event in events) + b"0\r\n\r\n"


def refused(status: int, body: Any, headers: dict[str, str] | None = None) -> bytes:
    """A response that is an error."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Refused".encode(), b"content-type: application/json"]
    lines.append(b"content-length: %d" % len(content))
    lines += [f"{name}: {value}".encode() for name, value in (headers or {}).items()]
    return CRLF.join(lines) + CRLF + CRLF + content


def sse(data: Any, event: str = "") -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {event}\n" if event else "").encode() + b"data: " + text.encode() + b"\n\n"


def aws_event(kind: str, payload: Any, *, exception: bool = False) -> bytes:
    """One message of Amazon's binary event stream."""
    values = (
        {":message-type": "exception", ":exception-type": kind}
        if exception
        else {":message-type": "event", ":event-type": kind}
    )
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in {**values, ":content-type": "application/json"}.items()
    )
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    prelude += struct.pack(">I", binascii.crc32(prelude))
    message = prelude + headers + data
    return message + struct.pack(">I", binascii.crc32(message))
