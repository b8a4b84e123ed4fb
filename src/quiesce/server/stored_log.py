"""The events of a run, read from the store of its session, with their original numbers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ..errors import StoreDamaged, StoreError
from ..events import Event, RunEnded
from ..sessions import Session
from ..sessions.journal.rows import NumberedEvent, unpack
from .event_log import MemoryLog, encode, encode_gap

_log: Final = logging.getLogger("quiesce.server")
# Rows that are read at once. One row may hold many text deltas.
_ROWS: Final = 200
# The position of a reader that has read everything.
_AT_END: Final = 10**15


class StoredEvents:
    """The events of one run that are in a store."""

    def __init__(self, session: Session, run_id: str) -> None:
        self._session: Final = session
        self._run_id: Final = run_id

    async def after(self, number: int, *, most: int | None = _ROWS) -> list[NumberedEvent]:
        """Some events after this number, up to one that cannot be read; none when there are no more.

        Raises a `StoreError`.
        """
        rows = self._session.store.rows(self._session.name, self._run_id, after=number, most=most)
        found: list[NumberedEvent] = []
        try:
            for each in unpack(await asyncio.wrap_future(rows), number):
                found.append(each)  # noqa: PERF402 - what came before the damage is kept
        except StoreDamaged as error:
            _log.warning("run %s is damaged; only its intact events are shown: %s", self._run_id, error)
        return found


class StoredLog:
    """The event log of a run of an earlier process. A reader continues after the last event that it has seen.

    A crashed run has no `RunEnded` in the store; this log adds one, with the next number.
    """

    size = 0

    def __init__(self, stored: StoredEvents, events: Sequence[NumberedEvent], end: RunEnded) -> None:
        self._stored: Final = stored
        self._saved: Final = events[-1].number if events else 0
        self._end: Final = None if events and isinstance(events[-1].event, RunEnded) else end

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._saved if self._end is None else self._saved + 1

    def is_over(self, after: int) -> bool:
        """Whether there is no event after this number."""
        return after >= self.last

    def append(self, event: Event) -> None:
        """Never called: the run is over."""

    def close(self) -> None:
        """There is nothing to close."""

    def begin(self, after: int) -> int:
        """The position of a reader that has seen so many events."""
        return _AT_END if after == self.last else after

    async def read(self, after: int) -> tuple[int, bytes] | None:
        """Some events after number `after`."""
        if after >= _AT_END:
            return None
        found = await self._stored.after(after) if after < self._saved else []
        if found:
            return found[-1].number, encode_all(after, found)
        if self._end is None:
            return None
        return _AT_END, encode(max(after, self._saved) + 1, self._end, None)


class JournaledLog(MemoryLog):
    """A log whose oldest events, when they no longer fit into memory, are read from the store."""

    def __init__(self, max_bytes: int, stored: StoredEvents) -> None:
        super().__init__(max_bytes)
        self._stored: Final = stored

    async def earlier(self, after: int) -> tuple[int, bytes]:
        """Events that are no longer in memory, from the store; a gap where the store does not have them either."""
        dropped = self.dropped
        try:
            found = [each for each in await self._stored.after(after) if each.number <= dropped]
        except StoreError as error:
            _log.warning("events of a run cannot be read from the store: %s", error)
            found = []
        return (found[-1].number, encode_all(after, found)) if found else await super().earlier(after)


def encode_all(after: int, events: Sequence[NumberedEvent]) -> bytes:
    """The events after number `after` as server-sent events, with a gap event where some are missing."""
    frames: list[bytes] = []
    for number, event in events:
        if number > after + 1:
            frames.append(encode_gap(after + 1, number - 1))
        frames.append(encode(number, event, None))
        after = number
    return b"".join(frames)
