"""A run's events, numbered and encoded once, for any number of readers at their own pace.

The run never waits for those who read here. A log is bounded: when it is full the oldest events go, and a reader that
had not come so far is told which are missing.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final, Protocol

import msgspec

from ..events import Event, RunEnded

# What one answer to `read()` holds at most, so that a long log goes out in steps.
_BATCH: Final = 64 * 1024
_MOST: Final = 1024
# What Python needs for a frame beside its bytes.
_FRAME: Final = 64


class EventLog(Protocol):
    """Where the events of one run can be read again. Events are numbered from 1."""

    @property
    def last(self) -> int:
        """The number of the newest event; 0 when there is none."""
        ...

    @property
    def size(self) -> int:
        """What the log holds in memory, in bytes."""
        ...

    def append(self, event: Event) -> None:
        """Write down what happened. Never waits and never raises: the run is what calls it."""
        ...

    def close(self) -> None:
        """There will be no more events, even if the last one was not the run's end."""
        ...

    def begin(self, after: int) -> int:
        """Where a reader goes on that says it has seen so many events."""
        ...

    async def read(self, after: int) -> tuple[int, bytes] | None:
        """Some events after number `after` as server-sent events, and the number of the last of them.

        Waits until there is one; None when there will be none.
        """
        ...


class MemoryLog:
    """A log that lives as long as the process. Only for the run's own loop."""

    def __init__(self, max_bytes: int) -> None:
        self._max: Final = max_bytes
        self._frames: Final[list[bytes]] = []
        self._dropped = 0
        self._size = 0
        self._ended = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._dropped + len(self._frames)

    @property
    def size(self) -> int:
        """What the log holds in memory."""
        return self._size

    def append(self, event: Event) -> None:
        """Write down what happened."""
        frame = encode(self.last + 1, event, time.time())
        self._frames.append(frame)
        self._size += len(frame) + _FRAME
        if self._size > self._max and len(self._frames) > 1:
            self._drop_oldest()
        self._ended = self._ended or isinstance(event, RunEnded)
        self._wake()

    def close(self) -> None:
        """There will be no more events."""
        self._ended = True
        self._wake()

    def begin(self, after: int) -> int:
        """Where a reader goes on that says it has seen so many events."""
        return min(after, self.last)

    async def read(self, after: int) -> tuple[int, bytes] | None:
        """Some events after number `after`, and the number of the last of them."""
        while self.last <= after:
            if self._ended:
                return None
            await self._something_new()
        if after < self._dropped:
            return await self.earlier(after)
        frames: list[bytes] = []
        size = 0
        begin = after - self._dropped
        for frame in self._frames[begin : begin + _MOST]:
            frames.append(frame)
            size += len(frame)
            if size > _BATCH:
                break
        return after + len(frames), b"".join(frames)

    @property
    def dropped(self) -> int:
        """The number of the newest event that is no longer here."""
        return self._dropped

    async def earlier(self, after: int) -> tuple[int, bytes]:
        """What a reader gets in place of events that are no longer here."""
        return self._dropped, encode_gap(after + 1, self._dropped)

    async def _something_new(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiting:  # cancelled while it waited: a reader that left leaves nothing here
                self._waiting.remove(waiter)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _drop_oldest(self) -> None:
        """Make room for a while: a quarter of what may be held, in one go, so that it is not done for each event."""
        keep = self._max * 3 // 4
        count = 0
        while self._size > keep and count < len(self._frames) - 1:
            self._size -= len(self._frames[count]) + _FRAME
            count += 1
        del self._frames[:count]
        self._dropped += count


def encode(number: int, event: Event, at: float | None) -> bytes:
    """One server-sent event. Works for whatever a tool reports as its progress.

    `at` is a field of ours, which other clients pass over: when it happened, for those who read it later.
    """
    kind = str(event.__struct_config__.tag).encode()
    when = b"" if at is None else b"at: %.3f\n" % at
    return b"id: %d\nevent: %s\n%sdata: %s\n\n" % (number, kind, when, to_json(event))


def encode_gap(first: int, last: int) -> bytes:
    """What a reader is told who asks for events that are no longer there."""
    return b'id: %d\nevent: gap\ndata: {"type":"gap","first":%d,"last":%d}\n\n' % (last, first, last)


def to_json(value: Any) -> bytes:
    """`value` as JSON on one line, whatever it is: what JSON has no word for becomes text."""
    try:
        return _ENCODER.encode(value)
    except Exception:
        try:
            plain = msgspec.to_builtins(value, enc_hook=_as_text, str_keys=True)
            return json.dumps(plain, default=_as_text).encode()
        except Exception as error:
            kind = getattr(getattr(value, "__struct_config__", None), "tag", "unknown")
            return json.dumps({"type": str(kind), "not_shown": type(error).__name__}).encode()


def _as_text(value: Any) -> str:
    return repr(value)[:1000]


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_as_text)
