"""The HTTP transport when no `http_client=` is given: HTTP/1.1 on asyncio, with connections that are kept open."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
from contextlib import suppress
from typing import Any, Final, TypeAlias

import httpx2

from .connection import Connection

MAX_REQUESTS: Final = 1000
# The connections that are kept for later requests: at most so many for one server, each for so many seconds.
MAX_IDLE: Final = 100
IDLE_TIMEOUT: Final = 5.0
# How long one address of a host is tried before the next one is tried beside it.
_NEXT_ADDRESS: Final = 0.25
# Closing takes a pass of the loop or two.
_CLOSING: Final = 1.0
# The extension of a response that has its body without the wrappers that httpx2 puts around it.
BODY: Final = "quiesce_body"

_NAME: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_VALUE: Final = re.compile(rb"(?:[^\x00\s]+(?:[ \t]+[^\x00\s]+)*)?")

_Origin: TypeAlias = tuple[str, str, int | None]
_Timeouts: TypeAlias = dict[str, float | None]


class StreamingTransport(httpx2.AsyncBaseTransport):
    """Sends each request on a connection of its own, a kept one if there is one. For one event loop."""

    def __init__(self, certificates: ssl.SSLContext) -> None:
        self._certificates: Final = certificates
        self._open: Final[set[Connection]] = set()
        self._idle: Final[dict[_Origin, dict[Connection, None]]] = {}
        self._slots: Final = asyncio.Semaphore(MAX_REQUESTS)
        self._all_closed: Final = asyncio.Event()
        self._closing = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; returns with the head of the response. Raises an `httpx2.TransportError`."""
        if request.url.scheme not in ("http", "https"):
            raise httpx2.UnsupportedProtocol("The address begins neither with http:// nor with https://.")
        head, origin = _head_of(request), (request.url.scheme, request.url.host, request.url.port)
        timeouts: _Timeouts = request.extensions.get("timeout", {})
        await self._take_slot(timeouts.get("pool"))
        try:
            connection = self._kept(origin) or await self._connect(request.url, timeouts.get("connect"))
            try:
                found = await connection.send(head, request.content, timeouts)
            except BaseException:
                connection.abort()
                raise
        except BaseException:
            self._slots.release()
            raise
        body = ResponseBody(connection, self, origin, timeouts.get("read"))
        extensions = {"http_version": b"HTTP/1.1", "reason_phrase": found.reason, BODY: body}
        return httpx2.Response(found.status, headers=found.take_headers(), stream=body, extensions=extensions)

    async def _take_slot(self, seconds: float | None) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(seconds):
                await self._slots.acquire()
        except TimeoutError as error:
            raise httpx2.PoolTimeout("Too many requests are under way.") from error

    def _kept(self, origin: _Origin) -> Connection | None:
        """The connection that was used last, unless it has been idle for too long."""
        idle, now = self._idle.get(origin, {}), asyncio.get_running_loop().time()
        while idle:
            connection, _ = idle.popitem()
            if connection.reusable and now - connection.idle_since < IDLE_TIMEOUT and not connection.has_unread():
                return connection
            connection.abort()
        return None

    async def _connect(self, url: httpx2.URL, seconds: float | None) -> Connection:
        loop = asyncio.get_running_loop()
        tls = self._certificates if url.scheme == "https" else None
        host, port = url.raw_host.decode("ascii"), url.port or (443 if tls else 80)
        options: dict[str, Any] = {}
        if isinstance(loop, asyncio.BaseEventLoop) and not _is_address(host):  # other loops have no such option
            options["happy_eyeballs_delay"] = _NEXT_ADDRESS
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self._on_lost), host, port, ssl=tls, **options
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error)) from error
        except (OSError, UnicodeError) as error:  # a name that cannot be one is a `UnicodeError`
            raise httpx2.ConnectError(str(error)) from error
        self._open.add(connection)
        return connection

    def release(self, connection: Connection, origin: _Origin) -> None:
        """A response was read, or is not wanted any more: keep its connection for the next request if possible."""
        self._slots.release()
        if not connection.reusable or self._closing:
            connection.abort()
            return
        connection.rest(asyncio.get_running_loop().time())
        idle = self._idle.setdefault(origin, {})
        idle[connection] = None
        for oldest in tuple(idle) if len(idle) > 1 else ():
            if len(idle) <= MAX_IDLE and connection.idle_since - oldest.idle_since < IDLE_TIMEOUT:
                break
            del idle[oldest]
            oldest.abort()

    def _on_lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        for idle in self._idle.values():
            idle.pop(connection, None)
        if self._closing and not self._open:
            self._all_closed.set()

    async def aclose(self) -> None:
        """End all connections."""
        self._closing = True
        for connection in tuple(self._open):
            connection.abort()
        if self._open:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    await self._all_closed.wait()


class ResponseBody(httpx2.AsyncByteStream):
    """The body of one response, piece by piece as it arrives."""

    __slots__ = ("_connection", "_origin", "_timeout", "_transport")

    def __init__(
        self, connection: Connection, transport: StreamingTransport, origin: _Origin, timeout: float | None
    ) -> None:
        self._connection: Connection | None = connection
        self._transport: Final = transport
        self._origin: Final = origin
        self._timeout: Final = timeout

    def __aiter__(self) -> ResponseBody:
        return self

    async def __anext__(self) -> bytes:
        connection = self._connection
        if connection is None:
            raise StopAsyncIteration
        while not (data := connection.take()):
            if connection.complete:
                self.close()
                raise StopAsyncIteration
            await connection.more(self._timeout)
        return data

    def close(self) -> None:
        """Give the connection back when the whole body has arrived; otherwise end it, at once."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.release(connection, self._origin)

    async def aclose(self) -> None:
        """As `close`."""
        self.close()


def _is_address(host: str) -> bool:
    """Whether a host is an IP address, and not a name that may have several."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _head_of(request: httpx2.Request) -> bytes:
    """The first line and the headers as they are sent. Raises `httpx2.LocalProtocolError` for an illegal header."""
    lines = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    for name, value in request.headers.raw:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise httpx2.LocalProtocolError(f"The header {name.decode('latin-1')!r} has an illegal value.")
        lines.append(b"%s: %s" % (name, value))
    lines.append(b"\r\n")
    return b"\r\n".join(lines)
