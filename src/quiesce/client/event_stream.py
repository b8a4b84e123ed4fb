"""The event streams of a server, read to their end over any number of connections."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import httpx2
import msgspec
from msgspec import Struct

from ..errors import ServerProblem
from ..events import Event, RunEnded

_T = TypeVar("_T")
Connect: TypeAlias = Callable[[str], AbstractAsyncContextManager[httpx2.Response]]

# The wait before another connection, doubled each time.
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 2.0
_OK: Final = 200
_NO_CONTENT: Final = 204
# What a further connection may meet and not the one after it: no answer, and a server that is busy or coming back.
_PASSING: Final = (0, 429, 502, 503, 504)


class EventGap(Struct, frozen=True, tag="gap"):
    """The events from `first` to `last` are no longer kept by the server."""

    first: int
    last: int


class StreamedEvent(Struct, frozen=True):
    """An event of a run, its number, and when it happened (seconds since 1970) if the server knows."""

    number: int
    event: Event | EventGap
    at: float | None = None


class Frame(Struct, frozen=True):
    """One server-sent event."""

    id: str
    data: bytes
    at: float | None


async def read_frames(response: httpx2.Response) -> AsyncGenerator[Frame]:
    """The server-sent events of a response. Split as bytes: JSON may hold what Unicode calls a line break."""
    rest = b""
    chunks: Any = response.aiter_bytes()  # a generator, whatever its annotation says
    async with aclosing(chunks):
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n\n")
            for each in filter(None, map(_frame, whole)):
                yield each


def _frame(text: bytes) -> Frame | None:
    """One event; None for a comment, which keeps the connection open. Raises `ServerProblem`."""
    fields = dict(line.split(b": ", 1) for line in text.split(b"\n") if b": " in line)
    if b"data" not in fields:
        return None
    at = fields.get(b"at")
    try:
        return Frame(fields.get(b"id", b"").decode(), fields[b"data"], None if at is None else float(at))
    except ValueError as error:
        raise _garbled() from error


def _garbled() -> ServerProblem:
    problem = ServerProblem("A stream of events was not like one of a Quiesce server.")
    problem.status = _OK
    return problem


def decoded(decoder: msgspec.json.Decoder[_T], frame: Frame) -> _T | None:
    """The data of a frame; None for a kind that only a newer server has. Raises `ServerProblem`."""
    try:
        return decoder.decode(frame.data)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _garbled() from error


class ResumedStream:
    """Frames over several connections: after a loss, the next one begins where the last one ended.

    `patience` is how many seconds may pass without a frame or a connection before the loss is raised.
    """

    def __init__(self, connect: Connect, after: str, patience: float) -> None:
        self._connect: Final = connect
        self._after = after
        self._patience: Final = patience

    async def frames(self) -> AsyncGenerator[Frame]:
        """The frames. Ends when the server has no more; raises `ServerProblem` when it cannot be reached."""
        wait, alive, begun = _FIRST_WAIT, time.monotonic(), False
        while True:
            count = 0
            try:
                async with self._connect(self._after) as response, aclosing(read_frames(response)) as frames:
                    if response.status_code == _NO_CONTENT:
                        return
                    begun = True
                    async for frame in frames:
                        self._after = frame.id or self._after
                        count, wait, alive = count + 1, _FIRST_WAIT, time.monotonic()
                        yield frame
                if not count:  # the server ends a stream that has nothing more
                    return
            except ServerProblem as error:
                if not begun or error.status not in _PASSING or time.monotonic() - alive > self._patience:
                    raise
            await anyio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)


_event_decoder: Final[msgspec.json.Decoder[Event | EventGap]] = msgspec.json.Decoder(Event | EventGap)


async def numbered_events(connect: Connect, after: int, patience: float) -> AsyncGenerator[StreamedEvent]:
    """The events of a run after number `after`, to its end."""
    async with aclosing(ResumedStream(connect, str(after), patience).frames()) as frames:
        async for frame in frames:
            event = decoded(_event_decoder, frame)
            if event is None:
                continue
            if not frame.id.isdecimal():
                raise _garbled()
            yield StreamedEvent(int(frame.id), event, frame.at)
            if isinstance(event, RunEnded):
                return
