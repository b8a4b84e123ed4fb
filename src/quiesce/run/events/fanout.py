"""The fan-out of a run's events to its readers, in batches, with back-pressure."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, Self

from ...errors import ConfigurationError
from ...events import Event
from .history import EventHistory

_log: Final = logging.getLogger("quiesce")

# The run waits for a reader that is this many events behind.
HIGH_WATER: Final = 1024
# After so many events the run lets the loop run other tasks, which a model that never waits would starve.
CHECKPOINT_EVERY: Final = 256
# So many events are kept for late readers before they are joined.
_COMPACT_EVERY: Final = 2 * CHECKPOINT_EVERY
# With so many events queued, the barrier is flushed; with twice as many unsaved, the run waits for it.
BARRIER_FULL: Final = 16_384
# Among the keys of the taps: the fanout above.
_ABOVE: Final = -1
_keys: Final = itertools.count()


class SaveBarrier(Protocol):
    """Holds events back until they are saved, and then delivers them."""

    @property
    def add(self) -> Callable[[Any], None]:
        """Queue an event. Never waits. Looked up for each event: it may be another function the next time."""
        ...

    @property
    def queued(self) -> int:
        """How many events are queued and in no write yet."""
        ...

    def flush(self) -> None:
        """Begin to write what is queued. Never waits."""

    @property
    def backlog(self) -> int:
        """How many events are not saved yet."""
        ...


class EventFanout:
    """Hands each event to every reader. Only for the run's own loop.

    The events of a child run go to the fanout `above` it too, wrapped, and slow readers there make the child wait as
    well.
    """

    __slots__ = (
        "__weakref__",
        "_above",
        "_buffers",
        "_history",
        "_keep",
        "_loop",
        "_room",
        "_taps",
        "_told",
        "_wrap",
        "barrier",
        "closed",
        "last",
        "since_checkpoint",
    )

    def __init__(self, above: EventFanout | None = None, wrap: Callable[[Event], Event] | None = None) -> None:
        self._above: Final = above
        self._wrap: Final = wrap
        self._loop: Final = asyncio.get_running_loop()
        self._buffers: Final[list[_Buffer]] = []
        self._taps: Final[dict[int, Callable[[Event], None]]] = {}
        self._history: Final = EventHistory()
        self._keep: Final = self._history.recent.append
        self.last: Event | None = None
        """The last event, from the moment in which it is delivered."""
        self._told: Final[dict[int, None]] = {}
        self.closed = False
        """Whether the last event was delivered."""
        self._room: asyncio.Future[None] | None = None
        self.barrier: SaveBarrier | None = None
        """Holds events back before they are delivered; None delivers them at once."""
        self.since_checkpoint = 0

    def push(self, event: Event) -> None:
        """Hand an event to all readers. Never waits; `checkpoint()` is where the run waits for slow ones.

        After the last event there are none: a later one is dropped.
        """
        if self.last is not None:
            return
        self.since_checkpoint += 1
        barrier = self.barrier
        if barrier is not None:
            barrier.add(event)
            return
        self._keep(event)
        if self.since_checkpoint > _COMPACT_EVERY:
            self._compact()
        for buffer in self._buffers:
            buffer.events.append(event)
            wake = buffer.wake
            if wake is not None and not wake.done():
                wake.set_result(None)
        if self._taps:
            for key in tuple(self._taps):
                self._call(key, event)
        if self._above is not None and self._above.last is None and self._wrap is not None:
            self._above.push(self._wrap(event))

    def _call(self, key: int, event: Event) -> None:
        try:
            self._taps[key](event)
        except Exception:  # a tap must not be able to harm the run, or the other taps
            _log.exception("A tap raised; it gets no more events.")
            self._taps.pop(key, None)

    def deliver(self, events: Sequence[Event]) -> None:
        """Hand out events that were held back at the barrier."""
        self._history.recent.extend(events)
        if len(self._history.recent) > _COMPACT_EVERY:
            self._compact()
        for buffer in self._buffers:
            buffer.events.extend(events)
            wake = buffer.wake
            if wake is not None and not wake.done():
                wake.set_result(None)
        if self._taps:
            for event in events:
                for key in tuple(self._taps):
                    self._call(key, event)
        if self._above is not None and self._above.last is None and self._wrap is not None:
            for event in events:
                self._above.push(self._wrap(event))
        self.make_room()

    def _compact(self) -> None:
        self._history.compact()
        self.since_checkpoint = min(self.since_checkpoint, CHECKPOINT_EVERY)

    async def checkpoint(self) -> None:
        """Let others run, and wait until neither a reader nor the barrier is too far behind."""
        if len(self._history.recent) > CHECKPOINT_EVERY:
            self._history.compact()
        self.since_checkpoint = 0
        await asyncio.sleep(0)
        fanout: EventFanout | None = self
        while fanout is not None:
            await fanout._wait_for_room()
            fanout = fanout._above

    async def _wait_for_room(self) -> None:
        while self._crowded():
            if self._room is None or self._room.done():
                self._room = self._loop.create_future()
            # asyncio.wait, unlike a plain await, does not cancel a future that other runs of the tree wait for.
            await asyncio.wait((self._room,))

    def _crowded(self) -> bool:
        barrier = self.barrier
        if barrier is not None and barrier.queued >= BARRIER_FULL:
            barrier.flush()
            if barrier.backlog >= 2 * BARRIER_FULL:
                return True
        return any(len(buffer.events) >= HIGH_WATER for buffer in self._buffers)

    def close(self, last: Event) -> None:
        """Deliver the last event, and end the readers after it.

        Called again after a Ctrl-C in the middle of it, this delivers what is missing: each step has its effect once.
        """
        self.barrier = None
        last = self.last = self.last or last
        recent, told = self._history.recent, self._told
        if not recent or recent[-1] is not last:
            recent.append(last)
        for buffer in self._buffers:
            buffer.end(last)
        for key in tuple(self._taps):
            if key not in told:
                told[key] = self._call(key, last)
        if self._above is not None and self._wrap is not None and _ABOVE not in told:
            told[_ABOVE] = self._above.push(self._wrap(last))
        self.closed = True
        told.clear()

    def leave_loop(self, *, with_taps: bool = False) -> None:
        """The loop is gone, and what waits in it is not woken. Events that are not saved are dropped.

        `with_taps` drops the taps as well.
        """
        self._room = None
        for buffer in self._buffers:
            buffer.wake = None
        if self.barrier is not None:
            self.barrier = _Dropping()
        if with_taps:
            self._taps.clear()
            self._buffers.clear()

    def reader(self, *, history: bool = True) -> Reader:
        """A reader of all events from the first one; without `history` from now on; after the end, of the last one."""
        buffer = _Buffer()
        if self.last is None:
            self._buffers.append(buffer)
        else:
            buffer.ended = True
        if history:
            return Reader(self, buffer, self._history.events())
        return Reader(self, buffer, () if self.last is None else (self.last,))

    def tap(self, function: Callable[[Event], None]) -> Callable[[], None]:
        """Call `function` with each event, synchronously. Returns the function that removes it."""
        key = next(_keys)
        self._taps[key] = function
        return lambda: self._taps.pop(key, None) and None

    def forget(self, buffer: _Buffer) -> None:
        """Remove the buffer of a reader that was closed."""
        if buffer in self._buffers:
            self._buffers.remove(buffer)
        self.make_room()

    def forget_soon(self, buffer: _Buffer) -> None:
        """Remove the buffer of a reader that the garbage collector found, in any thread."""
        with suppress(RuntimeError):  # the loop has closed, and its readers with it
            self._loop.call_soon_threadsafe(self.forget, buffer)

    def make_room(self) -> None:
        """Wake the runs that wait for a reader: it has caught up or left."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


class _Dropping:
    """A barrier that drops the events: they cannot be saved any more."""

    queued = backlog = 0

    def add(self, event: Event) -> None:
        """Drop an event."""

    def flush(self) -> None:
        """Nothing is queued."""


class _Buffer:
    """The events that a reader has not read yet. Not part of the reader, so that a dropped reader can be collected."""

    __slots__ = ("ended", "events", "wake")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.wake: asyncio.Future[None] | None = None
        self.ended = False

    def end(self, last: Event) -> None:
        """Add the last event, once."""
        if not self.ended:
            self.ended = self.events.append(last) is None  # in one step: a Ctrl-C comes before or after it
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)


class Reader:
    """An async iterator over a run's events, which ends after the last one.

    The run does not wait for a reader that was dropped or closed. A reader is for one task: a second one that reads
    from it while the first waits gets a `ConfigurationError`.
    """

    __slots__ = ("_buffer", "_fanout", "ready")

    def __init__(self, fanout: EventFanout, buffer: _Buffer, earlier: Iterable[Event] = ()) -> None:
        self._fanout: Final = fanout
        self._buffer: Final = buffer
        self.ready: Iterator[Event] = iter(earlier)
        """The next events, as far as nothing is to be waited for. The run does not wait until these are read."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        for event in self.ready:
            return event
        buffer = self._buffer
        while not buffer.events:
            if buffer.ended:
                raise StopAsyncIteration
            if buffer.wake is not None:
                raise ConfigurationError(
                    "Another task waits for an event of this reader already, and each event goes to one of them only.",
                    todo="Give each task a reader of its own, with run.events().",
                )
            buffer.wake = asyncio.get_running_loop().create_future()
            try:
                await buffer.wake
            finally:
                buffer.wake = None
        batch, buffer.events = buffer.events, []
        self.ready = iter(batch)
        self._fanout.make_room()
        return next(self.ready)

    def close(self) -> None:
        """Stop reading. The run goes on without this reader."""
        self._fanout.forget(self._buffer)

    def __del__(self) -> None:
        if not self._buffer.ended:
            self._fanout.forget_soon(self._buffer)
