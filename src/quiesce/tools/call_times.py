"""When one tool call started, ended and was abandoned."""

from __future__ import annotations

import asyncio
from typing import Final


class CallTimes:
    """The times of one call, on the clock of the event loop it was made in. Each is None until it has come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._started: float | None = None
        self._ended: float | None = None
        self._abandoned: float | None = None

    def mark_started(self) -> None:
        """The tool's function is about to run."""
        self._started = self._loop.time()

    def mark_ended(self) -> None:
        """The call has a result, or waits for a person."""
        self._ended = self._loop.time()

    def mark_abandoned(self) -> None:
        """The run no longer waits for the call."""
        self._abandoned = self._loop.time()

    @property
    def started(self) -> bool:
        """Whether the tool's function has begun."""
        return self._started is not None

    @property
    def abandoned(self) -> bool:
        """Whether the run no longer waits for the call."""
        return self._abandoned is not None

    @property
    def duration(self) -> float | None:
        """Seconds from the start to the end, or to the moment at which the call was abandoned; None without a start."""
        end = self._abandoned if self._ended is None else self._ended
        return None if self._started is None or end is None else end - self._started

    @property
    def lateness(self) -> float:
        """Seconds from the moment at which the call was abandoned to its end."""
        return 0.0 if self._abandoned is None or self._ended is None else self._ended - self._abandoned
