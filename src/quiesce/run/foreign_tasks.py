"""Tasks with code of other people that a run awaits: hooks, middleware, models. A stop does not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from .._threads.tasks import start_task
from ..cancellation import BoundedShield
from ..cancellation.raised import ENDS_PROGRAM, EndedElsewhere, is_own_error
from ..errors import RunError

_T = TypeVar("_T")

# A task that was cancelled gets this long to unwind, because delivering a cancellation takes a pass of the loop or two.
_UNWINDING: Final = 0.1


class ForeignTasks:
    """The tasks that a run has started for hooks and models. `abandoned` are those that a stop did not wait for."""

    __slots__ = ("_awaited", "_closing", "abandoned")

    def __init__(self) -> None:
        self.abandoned: Final[list[asyncio.Task[Any]]] = []
        # An empty set is three times as large as an empty dictionary.
        self._awaited: Final[dict[asyncio.Task[Any], None]] = {}
        self._closing: Final[dict[asyncio.Task[Any], None]] = {}

    async def run(
        self, work: Coroutine[Any, Any, _T], name: str, adopt: Callable[[asyncio.Task[Any]], bool] | None = None
    ) -> _T:
        """Await a coroutine in a task of its own, so that a stop does not have to wait for it.

        A stop cancels the task and goes on; settling gives it a moment to unwind, and names it on the receipt when it
        does not. A task that `adopt` takes is not cancelled and no longer the run's. A task that is closing its
        connection is not cancelled, unless that takes too long.
        """
        self._awaited[task := start_task(work, name=name)] = None  # in one line: no Ctrl-C comes in between
        # As `asyncio.wait`, which has two coroutines and a set for it: every run waits here for its model.
        ended: asyncio.Future[None] = task.get_loop().create_future()
        task.add_done_callback(partial(_wake, ended))
        try:
            await ended
        except asyncio.CancelledError:
            if adopt is not None and adopt(task):
                self._awaited.pop(task, None)
            else:
                self._abandon(task)
            raise
        except GeneratorExit:  # the loop was closed
            self.abandoned.append(task)
            self._awaited.pop(task, None)
            raise
        self._awaited.pop(task, None)
        self._closing.pop(task, None)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if isinstance(error, ENDS_PROGRAM):
            raise EndedElsewhere(error)
        if error is not None and not isinstance(error, Exception) and is_own_error(error):
            raise RunError(f"The {name} raised {type(error).__name__}: {error}.") from error
        return task.result()

    def abandon_awaited(self) -> None:
        """Abandon the tasks that a Ctrl-C in the middle of `run` has left."""
        for task in tuple(self._awaited):
            self._abandon(task)

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task, unless it is closing its connection, and wait for it no more. Done again after a Ctrl-C."""
        if task not in self._closing:
            task.cancel()
        if task not in self.abandoned:
            self.abandoned.append(task)
        _take_error(task)
        self._awaited.pop(task, None)

    def note_closing(self) -> None:
        """The task that calls this has nothing left to do but to close its connection.

        Many libraries would never give the connection back to its pool if that were cut. The run's own task is not
        concerned: what it reads itself is closed in one step.
        """
        if not self._awaited and not self.abandoned:
            return
        task = asyncio.current_task()
        assert task is not None
        self._closing[task] = None

    def note_closed(self) -> None:
        """The task that calls this has closed its connection, and goes on with middleware, which a stop may cut."""
        task = asyncio.current_task()
        if task in self._closing:
            self._closing.pop(task, None)
            if task in self.abandoned:
                task.cancel()

    async def wait_for_abandoned(
        self, shield: BoundedShield, *, seconds: float, unless: asyncio.Future[None] | None = None
    ) -> None:
        """Wait for cancelled tasks, within a bound; then cancel those that are still closing a connection."""
        abandoned = [task for task in self.abandoned if not task.done()]
        await shield.wait(abandoned, seconds=seconds, unless=unless)
        if unless is not None and unless.done():
            return
        late = [task for task in abandoned if task in self._closing and not task.done() and not task.cancelling()]
        for task in late:
            task.cancel()
        await shield.wait(late, seconds=_UNWINDING)

    def let_go(self) -> None:
        """All of them have ended: forget them, and with their errors the frames that these came from."""
        self.abandoned.clear()
        self._closing.clear()


def _wake(waiter: asyncio.Future[None], task: asyncio.Task[Any]) -> None:
    """The task has ended. After a Ctrl-C in here, which no task would learn of, the waiter is woken all the same."""
    try:
        if not waiter.done():
            waiter.set_result(None)
    except KeyboardInterrupt:
        if not waiter.done():
            waiter.set_result(None)
        raise
    if waiter.cancelled():
        _take_error(task)


def _take_error(task: asyncio.Task[Any]) -> None:
    """Take the error of a task without a waiter, if it has ended: asyncio would log it as never retrieved."""
    if task.done() and not task.cancelled():
        task.exception()
