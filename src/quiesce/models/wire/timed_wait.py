"""Waiting for the next thing that happens on a connection, within a time limit."""

from __future__ import annotations

import asyncio
import math
from typing import Final

import httpx2


class TimedWait:
    """One wait after the other, each until `wake()` is called. One timer of the loop serves many of them."""

    __slots__ = ("_deadline", "_error", "_loop", "_timer", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = math.inf
        self._error: type[httpx2.TimeoutException] = httpx2.ReadTimeout

    def begin(self, seconds: float | None, error: type[httpx2.TimeoutException]) -> asyncio.Future[None]:
        """A future to await: done with `wake()`, or with `error` after so many seconds. One at a time."""
        self._waiter = self._loop.create_future()
        self._deadline, self._error = math.inf if seconds is None else self._loop.time() + seconds, error
        if self._timer is None or self._timer.when() > self._deadline:
            self._arm()
        return self._waiter

    def wake(self) -> None:
        """Something has happened."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def stop(self) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self.stop()
        if self._deadline < math.inf:
            self._timer = self._loop.call_at(self._deadline, self._on_time)

    def _on_time(self) -> None:
        """The deadline of an earlier wait, or of the present one. A wait that begins later arms the timer again."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._deadline:
            self._arm()
        else:
            self._waiter.set_exception(self._error("Nothing arrived in time."))
