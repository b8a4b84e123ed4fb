"""The sync API's event loop: one background thread that runs the same core.

One loop that stays, not a new one for each call: a provider's connections belong to the loop that opened them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

_T = TypeVar("_T")


class Portal:
    """A thread with an event loop that other threads can call into."""

    def __init__(self, name: str) -> None:
        self._process: Final = os.getpid()
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def usable(self) -> bool:
        """Whether the thread is there. It is not in a process that was forked from the one that started it."""
        return self._process == os.getpid() and self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is in this very thread."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], _T], *, if_interrupted: Callable[[_T], object] | None = None) -> _T:
        """Call a function in the loop's thread, in the caller's context, and wait for what it returns or raises.

        When Ctrl-C ends the wait, `if_interrupted` gets what the function returns after all.
        """
        outcome: Future[_T] = Future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                outcome.set_result(context.run(function))
            except BaseException as error:
                outcome.set_exception(error)

        self._loop.call_soon_threadsafe(work)
        try:
            return outcome.result()
        except KeyboardInterrupt:
            if if_interrupted is not None:
                hand_over = if_interrupted
                outcome.add_done_callback(lambda late: None if late.exception() else hand_over(late.result()))
            raise

    def run(self, function: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine in the loop's thread and wait for it. Ctrl-C cancels it, and is raised when it has ended."""
        work = asyncio.run_coroutine_threadsafe(function(), self._loop)
        try:
            return work.result()
        except KeyboardInterrupt:
            work.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, let it settle, and end the thread."""
        atexit.unregister(self.close)
        if self.usable:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


_portals: Final[list[Portal]] = []
_starting: Final = threading.Lock()


def portal() -> Portal:
    """A portal that this thread may block on: not the one it is in."""
    with _starting:
        _portals[:] = [each for each in _portals if each.usable]
        for each in _portals:
            if not each.is_current:
                return each
        _portals.append(Portal(f"quiesce-sync-{len(_portals) + 1}"))
        return _portals[-1]


def close_portals() -> None:
    """End the background loops. They come back with the next sync call."""
    with _starting:
        for each in _portals:
            each.close()
        _portals.clear()
