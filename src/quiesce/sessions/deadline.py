"""The time limit for saving one batch, with all its retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# A timer that is later than this is late because the program was suspended, and not because of the store.
_SUSPENDED: Final = 1.0


class Deadline:
    """Calls a function when some seconds have passed since it was set, unless it is cleared. Only for one loop."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float, on_missed: Callable[[], None]) -> None:
        """Start the timer, unless it runs."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._on_timer, seconds, on_missed)

    def clear(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self, seconds: float, on_missed: Callable[[], None]) -> None:
        assert self._timer is not None
        late = self._loop.time() - self._timer.when()
        self._timer = None
        if late > _SUSPENDED:  # the store has had no time to answer
            self.set(seconds, on_missed)
        else:
            on_missed()
