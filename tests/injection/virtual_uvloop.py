"""Virtual time on uvloop: the same points as on asyncio's own loop, with libuv below them.

uvloop has no selector that could be replaced. A short timer of libuv looks whether the loop has run anything since it
looked last; when it has not, the loop is idle, and the clock jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any

import uvloop

from quiesce._threads.loop_end import NEVER
from quiesce.processes.supervised import live_processes
from quiesce.testing.virtual_time import PROCESS_TIMEOUT, STUCK_AFTER, CountedSteps

LOOK_EVERY = 0.001
SAME_TIME = 1e-9


class VirtualUvloop(CountedSteps, uvloop.Loop):
    """As `VirtualLoop`: a clock that jumps, and `before_step` before each callback and in the middle of each wait."""

    def __init__(self) -> None:
        super().__init__()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._never: list[asyncio.TimerHandle] = []
        self._numbers = itertools.count()
        self._steps_before = -1
        self._idle_since = time.monotonic()
        self._waits_until = -1.0
        super().call_later(LOOK_EVERY, self._look)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, self._step, (callback, *args), self, context)
        if when - self.now > NEVER / 2:
            self._never.append(handle)
        else:
            heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def close(self) -> None:
        super().close()
        self._never.clear()
        self._timers.clear()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are left out when their time comes."""

    # --- The clock ----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        super().call_later(LOOK_EVERY, self._look)
        if self.steps != self._steps_before:
            self._steps_before = self.steps
            self._idle_since = time.monotonic()
            return
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        idle = time.monotonic() - self._idle_since
        if not self._timers:
            if idle > STUCK_AFTER:
                self.stop()  # the runner then says that the coroutine has not ended
        elif not live_processes or idle > PROCESS_TIMEOUT:
            self._jump(self._timers[0][0])

    def _jump(self, until: float) -> None:
        if self.before_step is not None and until > self.now and abs(until - self._waits_until) > SAME_TIME:
            self._waits_until = until
            self.now += (until - self.now) / 2
            self.steps += 1
            self.before_step()
            return
        self.now = max(self.now, until)
        while self._timers and self._timers[0][0] <= self.now:
            uvloop.Loop.call_soon(self, _run_timer, heapq.heappop(self._timers)[2])  # its callback is counted


def _run_timer(handle: asyncio.TimerHandle) -> None:
    if not handle.cancelled():  # by now: another timer of the same time may have done so
        handle._run()
