"""One answer while it is read from its connection, and the hang-up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
import anyio.lowlevel
import httpx2

from ...cancellation import BoundedShield
from ...errors import ModelError
from ...events import AnswerStart, Delta
from .failures import Failures, request_id_of
from .sse import Decoder
from .transport import BODY, ResponseBody

# After the end of an answer its usage may follow; so long is waited for that.
_TAIL: Final = 5.0
# After the very last event only the end of the HTTP body follows. Reading it lets the connection be used again.
_LAST_BYTES: Final = 0.2
# Closing a connection takes a fraction of a millisecond.
_CLOSING: Final = 1.0


class StreamedAnswer:
    """One answer that is being read."""

    __slots__ = ("_body", "_decoder", "_failures", "_own_body", "_read_to_end", "_request_id", "_response")

    def __init__(self, response: httpx2.Response, decoder: Decoder, failures: Failures) -> None:
        own: ResponseBody | None = response.extensions.get(BODY)
        self._own_body: Final = own
        # A response holds its whole request: it is kept only where it is what closes the connection.
        self._response: Final = response if own is None else None
        self._body: Final = _body_of(response)
        self._request_id: Final = request_id_of(response.headers)
        self._decoder: Final = decoder
        self._failures: Final = failures
        self._read_to_end = False

    async def deltas(self) -> AsyncGenerator[Delta]:
        """What arrives, decoded. Raises a `ModelError` for what breaks before the end of the answer."""
        body, decoder, feed = self._body, self._decoder, self._decoder.feed
        failure: ModelError | None = None
        yield AnswerStart(self._request_id)
        try:
            async for data in body:
                try:
                    found = feed(data)
                except Exception as error:  # what the same bytes said before it is not lost
                    found, failure = decoder.taken, self._failures.of(error)
                del data  # the next bytes may be long in coming: until then, nothing of these is kept
                for delta in found:
                    yield delta
                found.clear()
                if decoder.ended or failure is not None:
                    break
            else:
                self._read_to_end = True
                for delta in decoder.finish():
                    yield delta
        except Exception as error:
            failure = self._failures.of(error)
        if decoder.ended:  # whatever fails from here on, the answer is complete
            for delta in await self._tail(body):
                yield delta
        elif failure is not None:
            raise failure

    async def _tail(self, body: AsyncIterator[bytes]) -> list[Delta]:
        """What follows the end of an answer, within a bound: the usage, and the end of the body."""
        tail: list[Delta] = []
        if self._read_to_end:
            return tail
        with suppress(Exception), anyio.move_on_after(_TAIL) as scope:
            if self._decoder.done:
                scope.deadline = anyio.current_time() + _LAST_BYTES
            async for data in body:
                try:
                    tail += self._decoder.feed(data)
                except Exception:  # an error after the end: what came with it is not lost
                    tail += self._decoder.taken
                if self._decoder.done:
                    scope.deadline = min(scope.deadline, anyio.current_time() + _LAST_BYTES)
            tail += self._decoder.finish()
            self._read_to_end = True
        return tail

    async def hang_up(self, deltas: AsyncGenerator[Delta]) -> None:
        """Close the connection, at once. An answer that was read to its end has given its connection back already."""
        if self._own_body is not None:
            self._own_body.close()
            if getattr(deltas, "ag_frame", None) is not None:  # else it has ended: the run read it, and was stopped
                with suppress(Exception):
                    await deltas.aclose()
        elif self._read_to_end:
            await deltas.aclose()
        else:
            await self._close_client_response(deltas)

    async def _close_client_response(self, deltas: AsyncGenerator[Delta]) -> None:
        """Close a response of any client. That takes several steps, which are not to be cut."""
        assert self._response is not None
        _cut(self._response)
        shield = BoundedShield("hang-up")
        closing = asyncio.create_task(_close(self._response, deltas), name="hang-up")
        await shield.wait((closing,), seconds=_CLOSING)
        if not closing.done():
            closing.cancel()
        if shield.interrupted:
            raise asyncio.CancelledError


class AnswerContext:
    """`async with` around the reading of one answer. A class, because a generator costs every stop more."""

    __slots__ = ("_answer", "_begin", "_deltas")

    def __init__(self, begin: Callable[[], Awaitable[StreamedAnswer]]) -> None:
        self._begin: Final = begin

    async def __aenter__(self) -> AsyncIterator[Delta]:
        self._answer: StreamedAnswer = await self._begin()
        self._deltas = self._answer.deltas()
        try:
            return self._deltas
        except BaseException:  # Ctrl-C: `async with` does not leave what it has not entered
            await self._answer.hang_up(self._deltas)
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._answer.hang_up(self._deltas)


async def _close(response: httpx2.Response, deltas: AsyncGenerator[Delta]) -> None:
    with suppress(Exception):
        await response.aclose()
    with suppress(Exception):
        await deltas.aclose()


def _body_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The bytes of a body. Without compression they need no decoding."""
    if "content-encoding" in response.headers:
        return _unpacked(response)
    own: ResponseBody | None = response.extensions.get(BODY)
    return response.aiter_raw() if own is None else own


async def _unpacked(response: httpx2.Response) -> AsyncIterator[bytes]:
    """A compressed body. One read may be unpacked to very much: the loop goes on after each piece of it."""
    async for data in response.aiter_bytes():
        yield data
        await anyio.lowlevel.checkpoint()


def _cut(response: httpx2.Response) -> None:
    """End the connection without waiting for anything: the provider sees the end of it now."""
    stream: Any = response.extensions.get("network_stream")
    with suppress(Exception):  # closed already, or not a socket
        stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
