"""A server on loopback that sends the bytes that a test tells it to, and clients over either transport."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2

from quiesce.models.wire.transport import StreamingTransport

from .wire import read_request

WITHIN = 10.0
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
TRANSPORTS = ("own", "httpx2")


class Peer:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number

    async def request(self) -> bytes:
        """Read one request; returns its body. Raises `EOFError` where there is none."""
        found = await read_request(self.reader, self.number)
        if found is None:
            raise EOFError
        return found.body

    async def send(self, *pieces: bytes) -> None:
        """Each piece is written on its own, with a few passes of the loop after it for the client to read it."""
        for piece in pieces:
            if self.writer.is_closing():  # uvloop's has no write any more then
                raise ConnectionResetError
            self.writer.write(piece)
            await self.writer.drain()
            if len(pieces) > 1:
                for _ in range(3):
                    await asyncio.sleep(0)

    async def gone(self) -> None:
        """Wait until the client has ended the connection."""
        with suppress(ConnectionError):
            while await self.reader.read(2**16):
                pass


Handler = Callable[[Peer], Awaitable[None]]


@dataclass
class RawServer:
    """What the server has seen. The connection ends where its handler returns."""

    handler: Handler
    port: int = 0
    tls: bool = False
    host: str = "127.0.0.1"
    connections: int = 0
    open: int = 0
    errors: list[BaseException] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http{'s' * self.tls}://{self.host}:{self.port}/v1"

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until connections have come, or gone."""
        async with asyncio.timeout(WITHIN), self.changed:
            await self.changed.wait_for(true)

    async def all_gone(self) -> None:
        """Wait until every connection has ended."""
        await self.until(lambda: self.open == 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.connections += 1
        await self._note(1)
        try:
            await self.handler(Peer(reader, writer, self.connections))
        except (EOFError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception as error:
            self.errors.append(error)
        finally:
            writer.close()
            with suppress(Exception):
                await asyncio.wait_for(writer.wait_closed(), 1)
            self.tasks.discard(task)
            await self._note(-1)

    async def _note(self, change: int) -> None:
        async with self.changed:
            self.open += change
            self.changed.notify_all()


@asynccontextmanager
async def raw(
    handler: Handler, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", **options: Any
) -> AsyncIterator[RawServer]:
    """A server that is there for as long as the block."""
    there = RawServer(handler, tls=tls is not None, host=f"[{host}]" if ":" in host else host)
    server = await asyncio.start_server(there.serve, host, 0, ssl=tls, **options)
    there.port = server.sockets[0].getsockname()[1]
    try:
        yield there
    finally:
        server.close()
        tasks = tuple(there.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await server.wait_closed()
    assert not there.errors, there.errors


def always(*pieces: bytes) -> Handler:
    """Answer each request with these bytes, on a connection that is kept."""

    async def handler(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(*pieces)

    return handler


def once(*pieces: bytes) -> Handler:
    """Answer one request with these bytes, and close."""

    async def handler(peer: Peer) -> None:
        await peer.request()
        await peer.send(*pieces)

    return handler


def silent(*pieces: bytes) -> Handler:
    """Answer each request with these bytes, and then nothing until the client goes away."""

    async def handler(peer: Peer) -> None:
        await peer.request()
        await peer.send(*pieces)
        await peer.gone()

    return handler


# --- Clients ---------------------------------------------------------------------------------------------------------


def trusting(certificates: ssl.SSLContext | None = None) -> ssl.SSLContext:
    return certificates or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def transport_of(which: str = "own", certificates: ssl.SSLContext | None = None) -> httpx2.AsyncBaseTransport:
    if which == "own":
        return StreamingTransport(trusting(certificates))
    return httpx2.AsyncHTTPTransport(verify=trusting(certificates))


def client_of(
    which: str = "own", timeout: float | httpx2.Timeout | None = WITHIN, certificates: ssl.SSLContext | None = None
) -> httpx2.AsyncClient:
    """A client over our transport ("own") or over the one of httpx2, which is the oracle."""
    return httpx2.AsyncClient(timeout=timeout, transport=transport_of(which, certificates))


@dataclass
class Outcome:
    """What a client had of one response."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    error: type[Exception] | None = None
    reason: str = ""


async def outcome(client: httpx2.AsyncClient, url: str, content: bytes = b"{}") -> Outcome:
    """Send a request and read the response as far as it goes."""
    found = Outcome()
    try:
        async with client.stream("POST", url, content=content) as response:
            found.status, found.headers, found.reason = (
                response.status_code,
                response.headers.raw,
                response.reason_phrase,
            )
            async for data in response.aiter_raw():
                found.body += data
    except httpx2.HTTPError as error:
        found.error = type(error)
    return found


def sockets_open() -> int:
    gc.collect()
    found = 0
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{each}").startswith("socket:")
    return found


async def sockets_back_to(before: int) -> None:
    """The sockets that were closed are gone: closing one takes a pass or two of the loop."""
    async with asyncio.timeout(WITHIN):
        while sockets_open() > before:
            await asyncio.sleep(0.001)
