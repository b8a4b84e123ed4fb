"""When the next write to the store is due: soon after the last one, or after a pause when that one failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ...errors import StoreError

# Seconds between writes, unless a step of the run waits for them; a slow store gets fewer and larger writes.
LINGER: Final = 0.02
LONGEST_LINGER: Final = 0.1
_SLOWNESS: Final = 4
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


class WriteTimer:
    """At most one write is scheduled at a time. Only for the run's own loop."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._wrote_at = 0.0
        self._linger = LINGER
        self._pause = _FIRST_PAUSE
        self.last_failure: StoreError | None = None
        """Why the last write failed; None when it did not."""

    @property
    def is_set(self) -> bool:
        """Whether a write is scheduled."""
        return self._timer is not None

    def schedule(self, write: Callable[[], None]) -> None:
        """Write when the pause between two writes is over: in the next step of the loop, if it is over already."""
        pause = self._wrote_at + self._linger - self._loop.time()
        self._timer = self._loop.call_soon(write) if pause <= 0 else self._loop.call_later(pause, write)

    def schedule_retry(self, write: Callable[[], None]) -> None:
        """Write again after a pause, which gets longer with each failure."""
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        self._timer = self._loop.call_later(self._pause, write)

    def cancel(self) -> None:
        """Cancel the timer, or clear the one that has just fired."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_write(self) -> None:
        """Note that a write was sent to the store."""
        self.cancel()
        self._wrote_at = self._loop.time()

    def on_written(self) -> None:
        """Note that the store has answered the last write."""
        self._linger = min(LONGEST_LINGER, max(LINGER, _SLOWNESS * (self._loop.time() - self._wrote_at)))
        self._pause, self.last_failure = _FIRST_PAUSE, None
