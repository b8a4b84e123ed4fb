"""Events on their way from a run to its readers, in batches, with back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from .events import Event

# A reader that falls this far behind makes the run wait for it.
HIGH_WATER: Final = 1024
# After so many events without a pause the run lets the loop breathe, or a model that never waits would starve it.
BREATH: Final = 256


class Broadcast:
    """Hands each event to every reader. Only for the run's own loop.

    A child run's broadcast feeds the one `above` it: its events go there too, wrapped, and slow readers up there make
    the child wait as well.
    """

    def __init__(self, above: Broadcast | None = None, wrap: Callable[[Event], Event] | None = None) -> None:
        self._above: Final = above
        self._wrap: Final = wrap
        self._readers: Final[list[Reader]] = []
        self._taps: Final[list[Callable[[Event], None]]] = []
        self._last: Event | None = None
        self._room: asyncio.Future[None] | None = None
        self.unbreathed = 0

    def push(self, event: Event) -> None:
        """Hand an event to all readers. Never waits; `breathe()` is where the run waits for slow ones."""
        self.unbreathed += 1
        for reader in self._readers:
            reader.put(event)
        if self._taps:
            for tap in tuple(self._taps):
                tap(event)
        if self._above is not None and self._above._last is None and self._wrap is not None:
            self._above.push(self._wrap(event))

    async def breathe(self) -> None:
        """Let others run, and wait until no reader is too far behind."""
        self.unbreathed = 0
        await asyncio.sleep(0)
        broadcast: Broadcast | None = self
        while broadcast is not None:
            await broadcast._wait_for_room()
            broadcast = broadcast._above

    async def _wait_for_room(self) -> None:
        while any(reader.backlog >= HIGH_WATER for reader in self._readers):
            if self._room is None or self._room.done():
                self._room = asyncio.get_running_loop().create_future()
            # asyncio.wait, unlike a plain await, leaves the future to the others of the tree that wait for it too.
            await asyncio.wait((self._room,))

    def close(self, last: Event) -> None:
        """Hand out the last event there will ever be."""
        self.push(last)
        self._last = last
        for reader in self._readers:
            reader.end()

    def reader(self) -> Reader:
        """A reader of all events from now on; of the last one alone when everything is over."""
        reader = Reader(self)
        if self._last is None:
            self._readers.append(reader)
        else:
            reader.put(self._last)
            reader.end()
        return reader

    def tap(self, function: Callable[[Event], None]) -> Callable[[], None]:
        """Call `function` with each event, synchronously. Returns the function that takes it off again."""
        self._taps.append(function)
        return lambda: self._taps.remove(function)

    def forget(self, reader: Reader) -> None:
        """Stop handing events to a reader."""
        if reader in self._readers:
            self._readers.remove(reader)
        self.make_room()

    def make_room(self) -> None:
        """A reader has caught up or left."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


class Reader:
    """One reader's place in the stream of events: an async iterator that ends after the run's last event."""

    __slots__ = ("__weakref__", "_batch", "_broadcast", "_ended", "_next", "_wake")

    def __init__(self, broadcast: Broadcast) -> None:
        self._broadcast: Final = broadcast
        self._batch: list[Event] = []
        self._next: Iterator[Event] = iter(())
        self._wake: asyncio.Future[None] | None = None
        self._ended = False

    def put(self, event: Event) -> None:
        """Take an event; the first of a batch wakes the one who waits."""
        self._batch.append(event)
        wake = self._wake
        if wake is not None and not wake.done():
            wake.set_result(None)

    def end(self) -> None:
        """Take no more events."""
        self._ended = True

    @property
    def backlog(self) -> int:
        """How many events nobody has looked at yet."""
        return len(self._batch)

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> Event:
        for event in self._next:
            return event
        while not self._batch:
            if self._ended:
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        batch, self._batch = self._batch, []
        self._next = iter(batch)
        self._broadcast.make_room()
        return next(self._next)

    def close(self) -> None:
        """Leave. The run goes on without this reader."""
        self._broadcast.forget(self)
