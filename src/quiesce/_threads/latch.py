"""A value that is set once and waited for, without a lock that a waiting thread could leave held.

A signal handler may raise between any two instructions of the main thread. In the middle of a
`concurrent.futures.Future`, that leaves the future's lock held for ever, and the thread that sets the result hangs:
here, the thread in which all runs live. Every step below is one atomic operation on a built-in container, as in the
token.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Generic, TypeVar, cast

from .loop_callback import call_in_loop, made_again
from .seconds import lock_timeout

_T = TypeVar("_T")


class Latch(Generic[_T]):
    """A result or an exception: set once, from any thread; waited for by any number of threads and tasks."""

    __slots__ = ("_outcome", "_waiters")

    def __init__(self) -> None:
        self._outcome: Final[dict[str, tuple[_T | None, BaseException | None]]] = {}
        self._waiters: Final[dict[Hashable, Callable[[], None]]] = {}

    def set_result(self, result: _T) -> None:
        """Set the result, unless something was set before."""
        self._set((result, None))

    def set_exception(self, error: BaseException) -> None:
        """Set an exception, unless something was set before."""
        self._set((None, error))

    def _set(self, outcome: tuple[_T | None, BaseException | None]) -> None:
        self._outcome.setdefault("set", outcome)
        for key in tuple(self._waiters):
            self._wake(key)

    def _wake(self, key: Hashable) -> None:
        waiter = self._waiters.get(key)
        if waiter is not None:
            waiter()  # first: a Ctrl-C in between wakes it again, and none is forgotten
            self._waiters.pop(key, None)

    def done(self) -> bool:
        """Whether it is set."""
        return "set" in self._outcome

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until it is set, or for `timeout` seconds. Whether it is."""
        # A plain lock of this one wait: no other thread needs it when an exception leaves it held.
        waiting = threading.Lock()
        waiting.acquire()
        try:
            self._add(waiting, lambda: _release(waiting))
            return waiting.acquire(timeout=lock_timeout(timeout))
        finally:
            self._waiters.pop(waiting, None)

    def _add(self, key: Hashable, waiter: Callable[[], None]) -> None:
        self._waiters[key] = waiter
        if self.done():
            self._wake(key)

    def result(self, timeout: float | None = None) -> _T:
        """Wait, and return the result or raise the exception. Raises `TimeoutError` when it is not set by then."""
        if not self.done() and not self.wait(timeout):
            raise TimeoutError
        result, error = self._outcome["set"]
        if error is not None:
            raise error
        return cast("_T", result)

    def raised(self, error: BaseException) -> bool:
        """Whether this very exception was set, rather than raised by a signal handler in the thread that waited."""
        return self.done() and self._outcome["set"][1] is error

    def future(self) -> asyncio.Future[_T]:
        """A future of the running loop with the same outcome. Cancelling it changes nothing here."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        if self.done():
            self._fill(future)
            return future
        for each in tuple(self._waiters):  # those of tasks that were cancelled wait no longer
            if asyncio.isfuture(each) and each.done():
                self._waiters.pop(each, None)

        fill = made_again(functools.partial(self._fill, future))

        def wake() -> None:
            try:
                call_in_loop(loop, fill)
            except RuntimeError:  # that loop has closed, and its waiters with it
                return

        self._add(future, wake)
        return future

    def _fill(self, future: asyncio.Future[_T]) -> None:
        """Give a future the outcome, unless it has been cancelled."""
        if future.done():
            return
        result, error = self._outcome["set"]
        if error is None:
            future.set_result(cast("_T", result))
        else:
            future.set_exception(error)


def _release(waiting: threading.Lock) -> None:
    with suppress(RuntimeError):  # released already, by another thread that set it or in an attempt before
        waiting.release()
