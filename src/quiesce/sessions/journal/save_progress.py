"""How much of a run is saved, and which steps of the run wait for more."""

from __future__ import annotations

import asyncio
from typing import Final


class SaveProgress:
    """Counts the entries that are in the store. Only for the run's own loop."""

    def __init__(self) -> None:
        self.written = 0
        self.ended = False
        """Whether the run's end is in the store."""
        self.interrupted = False
        """Whether a write was interrupted in the middle: how much is saved is not known any more."""
        self._waiters: Final[list[tuple[int, asyncio.Future[None]]]] = []

    @property
    def has_waiters(self) -> bool:
        """Whether a step of the run waits for a write."""
        return bool(self._waiters)

    def wait_for(self, count: int) -> asyncio.Future[None]:
        """A future that is done when `count` entries are saved, or it is known that they cannot be."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((count, done))
        return done

    def add(self, count: int, *, ended: bool) -> None:
        """Count entries that were saved just now."""
        self.written += count
        self.ended = ended

    def wake(self) -> None:
        """Let the steps continue that wait for no more than what is saved."""
        self._wake(self.written)

    def wake_all(self) -> None:
        """Let all steps continue: nothing more will be saved for them."""
        self._wake(float("inf"))

    def _wake(self, written: float) -> None:
        for each in self._waiters.copy():
            count, waiter = each
            if count <= written:
                if not waiter.done():
                    waiter.set_result(None)
                self._waiters.remove(each)
