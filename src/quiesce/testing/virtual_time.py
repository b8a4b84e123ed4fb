"""Virtual time: an event loop with a clock that jumps, and that counts its callbacks.

Timers fire in their order as soon as nothing else is left to do, so a test of a thirty-second grace takes a
millisecond, and the same test takes the same steps each time. Threads that run tools are waited for after each step,
so that each always ends after the same step; a thread that must block does so at a `Gate`, which the loop can see.
Processes are waited for as well, in real time, so the number of steps may differ from one trial to the next.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from .._threads.loop_end import NEVER
from ..processes.supervised import live_processes
from ..sessions.stores.store_thread import busy_threads
from ..tools.thread import live_threads

_T = TypeVar("_T")

# How long, in real seconds, to wait for a thread that is neither done nor at a gate, before time goes on without it.
THREAD_TIMEOUT: Final = 2.0
# Points of time that are nearer to each other are one.
_SAME_TIME: Final = 1e-9
# How long, in real seconds, to wait for a process to say or do something, before time goes on without it.
PROCESS_TIMEOUT: Final = 2.0
# How long, in real seconds, a loop with nothing left to do waits for the outside, before the test is called stuck.
STUCK_AFTER: Final = 20.0

_at_a_gate: Final[set[int]] = set()


class Stuck(AssertionError):
    """Nothing can happen any more: no timer, no callback, no input, and the coroutine has not ended."""


class Gate:
    """Holds back a thread until it is opened. Virtual time goes on while threads wait here."""

    def __init__(self) -> None:
        self._opened: Final = threading.Event()
        self._held: Final[set[int]] = set()

    def wait(self) -> None:
        """Block this thread until the gate is opened."""
        identity = threading.get_ident()
        self._held.add(identity)
        if not self._opened.is_set():
            _at_a_gate.add(identity)
        try:
            self._opened.wait()
        finally:
            _at_a_gate.discard(identity)

    def open(self) -> None:
        """Let them all go on. From this moment on they count as busy, though they have yet to wake up."""
        self._opened.set()
        _at_a_gate.difference_update(self._held)


class CountedSteps(asyncio.AbstractEventLoop):
    """The part of a virtual loop that counts callbacks; beside an event loop as the other base class.

    `before_step`, if set, is called before each callback that runs, and in the middle of each wait for a timer: a stop
    that comes while everything waits is another one than a stop at the end of the wait.
    """

    now = 0.0
    steps = 0
    before_step: Callable[[], None] | None = None

    def time(self) -> float:
        """The virtual time, in seconds from 0."""
        return self.now

    def _step(self, callback: Callable[..., Any], *args: Any) -> None:
        self.steps += 1
        if self.before_step is not None:
            self.before_step()
        callback(*args)
        wait_for_threads()

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """As always, and counted."""
        return super().call_soon(self._step, callback, *args, context=context)  # pyright: ignore[reportAbstractUsage]

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """As always, and counted."""
        return super().call_soon_threadsafe(self._step, callback, *args, context=context)  # pyright: ignore[reportAbstractUsage]


class VirtualLoop(CountedSteps, asyncio.SelectorEventLoop):
    """An event loop with a clock of its own."""

    def __init__(self) -> None:
        self._never: Final[list[asyncio.TimerHandle]] = []
        super().__init__(_VirtualSelector(self))

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """As always, and counted. A timer that never fires is only kept: time does not jump to it."""
        if when - self.time() > NEVER / 2:
            self._never.append(asyncio.TimerHandle(when, callback, args, self, context))
            return self._never[-1]
        return super().call_at(when, self._step, callback, *args, context=context)

    def close(self) -> None:
        """As always."""
        super().close()
        self._never.clear()


class _VirtualSelector(selectors.DefaultSelector):
    """A selector that turns waiting for time into a jump of the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop: Final = loop
        self._waits_until = -1.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            ready = super().select(STUCK_AFTER)
            if not ready:
                raise Stuck("Nothing can happen any more, and the coroutine has not ended.")
            return ready
        if live_processes:  # they live in real time
            ready = super().select(PROCESS_TIMEOUT)
            if ready:
                return ready
        return self._jump(timeout)

    def _jump(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Let the time pass. In the middle of it, a step is counted in which nothing but waiting goes on."""
        until = self._loop.now + timeout
        if self._loop.before_step is not None and abs(until - self._waits_until) > _SAME_TIME:
            self._waits_until = until
            self._loop.now += timeout / 2
            self._loop.steps += 1
            self._loop.before_step()
        else:
            self._loop.now += timeout
        return []


def wait_for_threads() -> None:
    """Wait until each thread that runs a tool has ended or stands at a gate, and no store has work to do."""
    if not live_threads and not busy_threads:
        return
    give_up = time.monotonic() + THREAD_TIMEOUT
    while _busy_threads() and time.monotonic() < give_up:
        time.sleep(0.00005)


def _busy_threads() -> bool:
    return bool(busy_threads) or any(call.identity not in _at_a_gate for call in live_threads.copy().values())


def run_virtual(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """`asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
