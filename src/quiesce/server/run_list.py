"""What changed in the list of runs, for those who watch it: each at its own pace, and always the latest state.

A change is a number, and for each run only its last one is kept. So a reader that comes back, or is slow, gets each run
that changed meanwhile once, as it is now; what lay between is not repeated.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from .event_log import to_json
from .schemas import RunChanged, RunGone, RunsChange, RunsListed, RunView

if TYPE_CHECKING:
    from .usage import Record

# Runs that are gone are remembered for readers that come back; with more than this they get the whole list again.
_GONE: Final = 1000
# So many runs are in the list, the newest.
_LISTED: Final = 200
# What an answer being written adds is told so often at most. Starts, stops and ends are told at once.
PACE: Final = 0.3


class RunListChanges:
    """The changes in one key's runs. Only for the server's own loop."""

    def __init__(self) -> None:
        # Numbers begin anew with each process, so a place in them names the process too.
        self._epoch: Final = uuid.uuid4().hex[:8]
        self._last = 0
        self._at: Final[dict[str, int]] = {}
        self._gone: Final[dict[str, int]] = {}
        self._forgotten = 0
        self._waiting: Final[set[asyncio.Future[None]]] = set()
        self._urgent = 0
        self._closed = False

    def note(self, run_id: str, *, urgent: bool) -> None:
        """A run has changed. Called for every event of every run, so it does little."""
        self._last += 1
        self._at.pop(run_id, None)
        self._at[run_id] = self._last
        if urgent:
            self._urgent = self._last
        if self._waiting:
            self._wake()

    def note_gone(self, run_id: str) -> None:
        """A run is no longer known."""
        self._last += 1
        self._at.pop(run_id, None)
        self._gone[run_id] = self._urgent = self._last
        if len(self._gone) > _GONE:
            oldest = next(iter(self._gone))
            self._forgotten = self._gone.pop(oldest)
        self._wake()

    def close(self) -> None:
        """There will be no more changes."""
        self._closed = True
        self._wake()

    # --- Reading ------------------------------------------------------------------------------------------------

    async def read(self, place: str, runs: Mapping[str, Record]) -> AsyncIterator[bytes]:
        """Server-sent events from `place` on; for a reader that has no place here, the list as it is first.

        `runs` are the runs of this key as they are whenever one looks, the newest last.
        """
        after = self._number(place)
        if after is None:
            after = self._last
            yield self._encode(after, RunsListed(_listed(runs)))
        while not self._closed:
            frames = self._since(after, runs)
            if frames:
                after = self._last
                yield frames
            await self._something_new(after)

    def _number(self, place: str) -> int | None:
        epoch, _, number = place.partition(".")
        if epoch != self._epoch or not (number.isascii() and number.isdigit()) or len(number) > 15:
            return None
        return int(number) if self._forgotten <= int(number) <= self._last else None

    def _since(self, after: int, runs: Mapping[str, Record]) -> bytes:
        changed = [(number, RunChanged(runs[each].view())) for each, number in _newer(self._at, after) if each in runs]
        gone = [(number, RunGone(each)) for each, number in _newer(self._gone, after)]
        return b"".join(self._encode(number, change) for number, change in sorted((*changed, *gone), key=_by_number))

    def _encode(self, number: int, change: RunsChange) -> bytes:
        kind = str(change.__struct_config__.tag).encode()
        return b"id: %s.%d\nevent: %s\ndata: %s\n\n" % (self._epoch.encode(), number, kind, to_json(change))

    async def _something_new(self, after: int) -> None:
        """Wait for a change; for more than one, when it is only words that came."""
        while self._last <= after and not self._closed:
            await self._next_change(None)
        begun = asyncio.get_running_loop().time()
        while self._urgent <= after and not self._closed:
            left = begun + PACE - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await self._next_change(left)

    async def _next_change(self, seconds: float | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        finally:
            self._waiting.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()


def _listed(runs: Mapping[str, Record]) -> tuple[RunView, ...]:
    return tuple(record.view() for record in islice(reversed(tuple(runs.values())), _LISTED))


def _newer(numbers: dict[str, int], after: int) -> list[tuple[str, int]]:
    """The entries after a number. The dictionary is in the order of its numbers, so the newest are at its end."""
    found: list[tuple[str, int]] = []
    for run_id in reversed(numbers):
        if numbers[run_id] <= after:
            break
        found.append((run_id, numbers[run_id]))
    return found


def _by_number(change: tuple[int, RunsChange]) -> int:
    return change[0]
