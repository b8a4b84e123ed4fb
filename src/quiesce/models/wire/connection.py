"""One HTTP/1.1 connection to a provider: an asyncio protocol around the parser of httptools."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import httptools
import httpx2

from .timed_wait import TimedWait

# The most that the head of a response may take.
_LONGEST_HEAD: Final = 100 * 1024
# With so many bytes that the reader has not taken, no more are read from the socket.
_HIGH_WATER: Final = 256 * 1024


class ResponseHead:
    """The status and the headers of a response."""

    __slots__ = ("complete", "ends_with_connection", "headers", "reason", "status")

    def __init__(self) -> None:
        self.status = 0
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False
        self.ends_with_connection = False
        """Whether the body ends where the connection ends, because nothing else says where."""

    def end(self, status: int) -> None:
        """The last header has been read."""
        self.status, self.complete = status, True
        framing = (b"content-length", b"transfer-encoding")
        self.ends_with_connection = not any(name.lower() in framing for name, _ in self.headers)

    def take_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers, which are not kept here any longer."""
        headers, self.headers = self.headers, []
        return headers


class _Failure(NamedTuple):
    """What ended a connection. Its exception is made when a reader comes: after a stop none does."""

    kind: type[httpx2.TransportError]
    words: str
    why: Exception | None

    def exception(self) -> httpx2.TransportError:
        error = self.kind(self.words)
        error.__cause__ = self.why
        return error


class Connection(asyncio.Protocol):
    """Carries one request after the other, in its own loop. The parser calls the methods `on_...`.

    An error is kept, and raised where the response is read: first come the bytes that arrived before it.
    """

    __slots__ = (
        "_aborted",
        "_buffered",
        "_error",
        "_head",
        "_on_lost",
        "_parser",
        "_pieces",
        "_reusable",
        "_transport",
        "_waiting",
        "_write_paused",
        "complete",
        "idle_since",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[Connection], None]) -> None:
        self._on_lost: Final = on_lost
        self._waiting: Final = TimedWait(loop)
        self._transport: Any = None
        self._parser: Any = None
        self._head = ResponseHead()
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._error: _Failure | None = None
        self._reusable = False
        self._aborted = False
        self._write_paused = False
        self.complete = False
        """Whether the response to the last request has come to its end."""
        self.idle_since = 0.0

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent."""
        return self._reusable and self.complete and self._transport is not None and not self._transport.is_closing()

    def has_unread(self) -> bool:
        """Whether something has arrived that the loop has not seen yet, such as the end of the connection."""
        if not hasattr(select, "poll"):  # Windows: the request fails then, and is tried again
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    async def send(self, head: bytes, body: bytes, timeouts: dict[str, float | None]) -> ResponseHead:
        """Send a request; returns with the head of the response. Raises an `httpx2.TransportError`."""
        if self._parser is None:
            self._expect_response()
        if self._transport is not None:  # else it was lost already, and the error says so
            self._transport.writelines((head, body))
        while self._write_paused and self._error is None and not self._head.complete:
            await self._waiting.begin(timeouts.get("write"), httpx2.WriteTimeout)
        while not self._head.complete:
            if self._error is not None:
                raise self._error.exception()
            await self._waiting.begin(timeouts.get("read"), httpx2.ReadTimeout)
        return self._head

    def _expect_response(self) -> None:
        """A response may begin. On a new connection it may begin before the request, where a server is overloaded."""
        self._head, self.complete, self._reusable = ResponseHead(), False, False
        self._parser = httptools.HttpResponseParser(self)
        # What servers get wrong without any doubt about what they mean. One connection carries one answer at a time.
        self._parser.set_dangerous_leniencies(
            lenient_chunked_length=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def take(self) -> bytes:
        """The bytes of the body that have arrived, without waiting. Once `complete`, none means the end."""
        pieces = self._pieces
        if not pieces:
            return b""
        self._pieces = []
        if self._buffered >= _HIGH_WATER and self._transport is not None:
            self._transport.resume_reading()
        self._buffered = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def more(self, seconds: float | None) -> asyncio.Future[None]:
        """A future to await for more of the body. It, or this, raises an `httpx2.TransportError`."""
        if self._error is not None:
            raise self._error.exception()
        return self._waiting.begin(seconds, httpx2.ReadTimeout)

    def rest(self, now: float) -> None:
        """The response has arrived. What was not read of it is dropped; nothing more is expected for now."""
        self.idle_since = now
        self._parser, self._pieces, self._buffered = None, [], 0
        self._waiting.stop()

    def abort(self) -> None:
        """End the connection without waiting: the provider sees the end of it now."""
        self._waiting.stop()
        transport = self._transport
        if transport is None:
            return
        self._aborted = True
        if not self.complete:
            _shut_down(transport)
        try:
            transport.abort()
        except RuntimeError:  # the loop has closed
            return

    def _fail(
        self, words: str, kind: type[httpx2.TransportError] = httpx2.RemoteProtocolError, why: Exception | None = None
    ) -> None:
        self._reusable = False
        if not self.complete and self._error is None:
            self._error = _Failure(kind, words, why)

    # --- What the socket reports --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = transport
        self._expect_response()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived: the parser takes them apart, and the reader is woken."""
        parser = self._parser
        if parser is None:  # bytes that belong to no request
            self.abort()
            return
        pieces, known = self._pieces, len(self._pieces)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"The response is not HTTP: {error}")
        if len(pieces) > known + 1:  # one piece takes less memory than many small ones
            pieces[known:] = [b"".join(pieces[known:])]
        self._buffered += len(data)
        if self._buffered >= _LONGEST_HEAD:
            self._limit(self._buffered - len(data))
        self._waiting.wake()

    def _limit(self, before: int) -> None:
        """Much has arrived that was not read: end a head that is too long; read no more of a body for now."""
        if not self._head.complete:
            self._fail("The head of the response is too long.")
            self.abort()
        elif self._buffered >= _HIGH_WATER > before and not self.complete:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, by either side."""
        if self._head.ends_with_connection and exc is None and not self._aborted:
            self.complete = True
        elif exc is not None:
            self._fail(str(exc), httpx2.ReadError, exc)
        elif self._head.complete:
            self._fail("The connection was closed in the middle of the response.")
        else:
            self._fail("The connection was closed without a response.")
        self._transport, self._parser, self._reusable = None, None, False
        self._waiting.stop()
        self._waiting.wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._write_paused = False
        self._waiting.wake()

    # --- What the parser finds ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A response begins."""
        if self.complete:
            raise httpx2.RemoteProtocolError("More than one response arrived.")

    def on_status(self, reason: bytes) -> None:
        """The words behind the status, or a part of them."""
        self._head.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Those that follow the body are not for us."""
        if not self._head.complete:
            self._head.headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """The head of a response is there, or of what may come before it."""
        status = self._parser.get_status_code()
        if status < 200:  # such as "100 Continue": the response follows
            self._head = ResponseHead()
        else:
            self._head.end(status)

    def on_body(self, body: bytes) -> None:
        """Bytes of the body, without what HTTP puts around them."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The response has come to its end. A request that was not written whole is in the way of the next one."""
        if self._head.complete:
            self.complete = True
            self._reusable = self._parser.should_keep_alive() and not self._transport.get_write_buffer_size()


def _shut_down(transport: Any) -> bool:
    """Whether the other side is told now, and not in the next step of the loop, that the connection has ended."""
    try:
        transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    except Exception:  # closed by the other side, or a loop whose sockets cannot do this
        return False
    return True
