"""`GET /events`: the changes in the list of runs, as a stream for each reader.

A change is a number, and only the last change of each run is kept. A reader that is slow, or reconnects, therefore gets
each run that changed once, in its current state.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from itertools import islice
from operator import itemgetter
from typing import Final

import anyio

from .event_log import to_json
from .registry import RunRegistry, ServedRun
from .schemas import RunChanged, RunGone, RunsChange, RunsListed, RunView

# Deleted runs are remembered for readers that reconnect; after more than this they get the whole list again.
_MAX_DELETED: Final = 1000
# The list shows at most this many runs, the newest.
_LIST_LENGTH: Final = 200
# Seconds between two updates about new text or progress. Starts, stops and ends are sent at once.
UPDATE_INTERVAL: Final = 0.3


class RunLists:
    """The changes in the run lists of all owners. Only for the server's own loop."""

    def __init__(self, runs: RunRegistry) -> None:
        self._runs: Final = runs
        self._changes: Final[dict[str, RunListChanges]] = {}

    def read(self, owner: str, position: str, *, follow: bool) -> AsyncGenerator[bytes]:
        """The changes of one owner's list as server-sent events, from `position` on; see `RunListChanges.read`."""
        changes = self._changes.setdefault(owner, RunListChanges())
        return changes.read(position, self._runs.of(owner), follow=follow)

    def run_changed(self, run: ServedRun, *, urgent: bool = True) -> None:
        """Record a change of a run. Without a reader so far, nothing is recorded."""
        changes = self._changes.get(run.info.owner)
        if changes is not None:
            changes.run_changed(run.id, urgent=urgent)

    def run_deleted(self, run: ServedRun) -> None:
        """Record that a run was deleted."""
        changes = self._changes.get(run.info.owner)
        if changes is not None:
            changes.run_deleted(run.id)

    def close(self) -> None:
        """End all streams."""
        for changes in self._changes.values():
            changes.close()


class RunListChanges:
    """The changes in one owner's run list. Only for the server's own loop."""

    def __init__(self) -> None:
        # Numbers begin at 1 in each process, so a position also names the process.
        self._epoch: Final = uuid.uuid4().hex[:8]
        self._last = 0
        self._changed: Final[dict[str, int]] = {}
        self._deleted: Final[dict[str, int]] = {}
        self._oldest_position = 0
        self._last_urgent = 0
        self._recorded = asyncio.Event()
        self._closed = False

    def run_changed(self, run_id: str, *, urgent: bool) -> None:
        """Record a change of a run. Called for every event of every run, so it does little."""
        self._last += 1
        self._changed.pop(run_id, None)
        self._changed[run_id] = self._last
        if urgent:
            self._last_urgent = self._last
        self._wake()

    def run_deleted(self, run_id: str) -> None:
        """Record that a run was deleted."""
        self._last += 1
        self._changed.pop(run_id, None)
        self._deleted[run_id] = self._last_urgent = self._last
        if len(self._deleted) > _MAX_DELETED:
            oldest = next(iter(self._deleted))
            self._oldest_position = self._deleted.pop(oldest)
        self._wake()

    def close(self) -> None:
        """End the streams: there will be no more changes."""
        self._closed = True
        self._wake()

    # --- Reading ------------------------------------------------------------------------------------------------

    async def read(self, position: str, runs: Mapping[str, ServedRun], *, follow: bool) -> AsyncGenerator[bytes]:
        """Server-sent events from `position` on. For a position that is unknown here, the whole list comes first.

        `runs` is a live view of the owner's runs, the newest last. Without `follow` the stream ends after the list.
        """
        after = self._number(position)
        if after is None:
            after = self._last
            yield self._encode(after, RunsListed(_newest(runs)))
        while follow and not self._closed:
            frames = self._since(after, runs)
            if frames:
                after = self._last
                yield frames
            await self._wait_for_change(after)

    def _number(self, position: str) -> int | None:
        epoch, _, number = position.partition(".")
        if epoch != self._epoch or not (number.isascii() and number.isdigit()) or len(number) > 15:
            return None
        return int(number) if self._oldest_position <= int(number) <= self._last else None

    def _since(self, after: int, runs: Mapping[str, ServedRun]) -> bytes:
        changed = [
            (number, RunChanged(runs[run_id].view()))
            for run_id, number in _newer(self._changed, after)
            if run_id in runs
        ]
        deleted = [(number, RunGone(run_id)) for run_id, number in _newer(self._deleted, after)]
        return b"".join(
            self._encode(number, change) for number, change in sorted((*changed, *deleted), key=itemgetter(0))
        )

    def _encode(self, number: int, change: RunsChange) -> bytes:
        return encode_change(f"{self._epoch}.{number}", change)

    async def _wait_for_change(self, after: int) -> None:
        """Wait for a change after number `after`; if it is not urgent, until an urgent one or the interval's end."""
        while self._last <= after and not self._closed:
            await self._recorded.wait()
        with anyio.move_on_after(UPDATE_INTERVAL):
            while self._last_urgent <= after and not self._closed:
                await self._recorded.wait()

    def _wake(self) -> None:
        self._recorded.set()
        self._recorded = asyncio.Event()


def encode_change(position: str, change: RunsChange) -> bytes:
    """A change as a server-sent event; `position` is what a reader that reconnects names."""
    kind = str(change.__struct_config__.tag).encode()
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (position.encode(), kind, to_json(change))


def _newest(runs: Mapping[str, ServedRun]) -> tuple[RunView, ...]:
    return tuple(run.view() for run in islice(reversed(tuple(runs.values())), _LIST_LENGTH))


def _newer(numbers: dict[str, int], after: int) -> list[tuple[str, int]]:
    """The entries after a number. The dictionary is in the order of its numbers, so the newest are at its end."""
    found: list[tuple[str, int]] = []
    for run_id in reversed(numbers):
        if numbers[run_id] <= after:
            break
        found.append((run_id, numbers[run_id]))
    return found
