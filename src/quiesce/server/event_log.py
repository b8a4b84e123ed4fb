"""The event log of a run: events are numbered and encoded once, for any number of readers.

The run never waits for a reader. A log is bounded: when it is full, the oldest events are dropped, and a reader that
has not read them gets a gap event with their numbers.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final, Protocol

import msgspec

from .._exact import base_value
from ..events import Event, RunEnded

# The most bytes and events that one `read()` returns, so that a long log is sent in steps.
_BATCH_BYTES: Final = 64 * 1024
_BATCH_EVENTS: Final = 1024
# The memory that Python needs for a frame besides its bytes.
_FRAME_OVERHEAD: Final = 64


class EventLog(Protocol):
    """The events of one run, numbered from 1."""

    @property
    def last(self) -> int:
        """The number of the newest event; 0 when there is none."""
        ...

    @property
    def size(self) -> int:
        """The memory that the log needs, in bytes."""
        ...

    def is_over(self, after: int) -> bool:
        """Whether there is no event after this number, and never will be."""
        ...

    def append(self, event: Event) -> None:
        """Add an event. Never waits and never raises, because the run calls it."""

    def close(self) -> None:
        """End the log, even if its last event is not the end of the run."""

    def begin(self, after: int) -> int:
        """The position of a reader that has seen so many events."""
        ...

    async def read(self, after: int) -> tuple[int, bytes] | None:
        """Some events after number `after` as server-sent events, and the number of the last of them.

        Waits until there is one; None when there will be none.
        """


class MemoryLog:
    """A log that lives as long as the process. Only for the run's own loop."""

    def __init__(self, max_bytes: int) -> None:
        self._max: Final = max_bytes
        self._frames: Final[list[bytes]] = []
        self._dropped = 0
        self._size = 0
        self._ended = False
        self._appended = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._dropped + len(self._frames)

    @property
    def size(self) -> int:
        """The memory that the log needs, in bytes."""
        return self._size

    def is_over(self, after: int) -> bool:
        """Whether there is no event after this number, and never will be."""
        return self._ended and after >= self.last

    def append(self, event: Event) -> None:
        """Add an event."""
        frame = encode(self.last + 1, event, time.time())
        self._frames.append(frame)
        self._size += len(frame) + _FRAME_OVERHEAD
        if self._size > self._max and len(self._frames) > 1:
            self._drop_oldest()
        self._ended = self._ended or isinstance(event, RunEnded)
        self._wake()

    def close(self) -> None:
        """End the log."""
        self._ended = True
        self._wake()

    def begin(self, after: int) -> int:
        """The position of a reader that has seen so many events."""
        return min(after, self.last)

    async def read(self, after: int) -> tuple[int, bytes] | None:
        """Some events after number `after`, and the number of the last of them."""
        while self.last <= after:
            if self._ended:
                return None
            await self._appended.wait()
        if after < self._dropped:
            return await self.earlier(after)
        frames: list[bytes] = []
        size = 0
        begin = after - self._dropped
        for frame in self._frames[begin : begin + _BATCH_EVENTS]:
            frames.append(frame)
            size += len(frame)
            if size > _BATCH_BYTES:
                break
        return after + len(frames), b"".join(frames)

    @property
    def dropped(self) -> int:
        """The number of the newest event that was dropped."""
        return self._dropped

    async def earlier(self, after: int) -> tuple[int, bytes]:
        """The gap event for events that are no longer in memory."""
        return self._dropped, encode_gap(after + 1, self._dropped)

    def _wake(self) -> None:
        self._appended.set()
        self._appended = asyncio.Event()

    def _drop_oldest(self) -> None:
        """Drop a quarter of the log at once, so that this is not needed for each event."""
        keep = self._max * 3 // 4
        count = 0
        while self._size > keep and count < len(self._frames) - 1:
            self._size -= len(self._frames[count]) + _FRAME_OVERHEAD
            count += 1
        del self._frames[:count]
        self._dropped += count


def encode(number: int, event: Event, at: float | None) -> bytes:
    """One event as a server-sent event. Any progress value of a tool can be encoded.

    `at` is the time of the event, in a field that clients other than the console ignore.
    """
    kind = str(event.__struct_config__.tag).encode()
    when = b"" if at is None else b"at: %.3f\n" % at
    return b"id: %d\nevent: %s\n%sdata: %s\n\n" % (number, kind, when, to_json(event))


def encode_gap(first: int, last: int) -> bytes:
    """The gap event for a range of missing events."""
    return b'id: %d\nevent: gap\ndata: {"type":"gap","first":%d,"last":%d}\n\n' % (last, first, last)


def to_json(value: Any) -> bytes:
    """`value` as JSON on one line; values that JSON cannot express become text."""
    try:
        return _ENCODER.encode(value)
    except Exception:
        try:
            plain = msgspec.to_builtins(value, enc_hook=_as_text, str_keys=True)
            return json.dumps(plain, default=_as_text).encode()
        except Exception as error:
            kind = getattr(getattr(value, "__struct_config__", None), "tag", "unknown")
            return json.dumps({"type": str(kind), "not_shown": type(error).__name__}).encode()


def _as_text(value: Any) -> Any:
    plain = base_value(value)
    return repr(value)[:1000] if plain is None else plain


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_as_text)
