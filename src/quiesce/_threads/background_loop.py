"""The sync API's event loop: one background thread that runs the same core.

One loop that stays, not a new one for each call: a provider's connections belong to the loop that opened them.

A signal handler may raise in the thread that waits here, between any two instructions: Ctrl-C, the time limit of a task
queue, an alarm. Then what was asked for is withdrawn or cancelled, and no lock is left held.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import concurrent.futures
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from .latch import Latch
from .tasks import start_task

_T = TypeVar("_T")

# Seconds that a coroutine has to end in when the thread that waits for it is interrupted.
_ENDING: Final = 30.0


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, if one is running."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Request(Generic[_T]):
    """A function that a portal's loop is to call, in the context of the thread that asks."""

    def __init__(self, function: Callable[[], _T]) -> None:
        self._function: Final = function
        self._context: Final = contextvars.copy_context()
        self._context.run(_waiting.set, _avoided())
        self._claims: Final[dict[str, str]] = {}
        self.outcome: Final[Latch[_T]] = Latch()

    def answer(self) -> None:
        """Call the function, unless the request was withdrawn."""
        if self._claim("loop"):
            try:
                self.outcome.set_result(self._context.run(self._function))
            except BaseException as error:
                self.outcome.set_exception(error)

    def withdraw(self) -> bool:
        """Whether the function was not called yet: then it never is. However often it is asked."""
        return self._claim("caller")

    def _claim(self, who: str) -> bool:
        return self._claims.setdefault("claim", who) == who


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
        return threading.get_ident() == self._thread.ident

    def post(self, request: Request[Any]) -> None:
        """Have the loop's thread answer a request. Returns at once."""
        self._loop.call_soon_threadsafe(request.answer)

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function in the loop's thread, in the caller's context, and wait for what it returns or raises."""
        request = Request(function)
        try:
            self.post(request)
            return request.outcome.result()
        except BaseException:
            request.withdraw()
            raise

    def run(self, function: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine in the loop's thread and wait for it.

        An exception in the thread that waits, such as Ctrl-C, cancels it, and is raised when it has ended; another one
        meanwhile is raised at once.
        """
        ended: Latch[_T] = Latch()
        tasks: list[asyncio.Task[_T]] = []

        def begin() -> None:
            task = start_task(function(), loop=self._loop)
            tasks.append(task)
            task.add_done_callback(lambda task: _copy(task, ended))

        request = Request(begin)
        try:
            self.post(request)
            request.outcome.result()
            return ended.result()
        except BaseException as error:
            began = not request.withdraw() and not request.outcome.raised(error) and not ended.raised(error)
            if began and request.outcome.wait(_ENDING) and tasks:
                self._loop.call_soon_threadsafe(tasks[0].cancel)
                ended.wait(_ENDING)
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


def _copy(task: asyncio.Task[_T], latch: Latch[_T]) -> None:
    error = concurrent.futures.CancelledError() if task.cancelled() else task.exception()
    if error is None:
        latch.set_result(task.result())
    else:
        latch.set_exception(error)


_portals: Final[list[Portal]] = []
_starting: Final = threading.Lock()
_waiting: Final[contextvars.ContextVar[tuple[Portal, ...]]] = contextvars.ContextVar("quiesce_waiting", default=())
"""The portals whose threads wait, in a blocking call, for what this context does."""


def portal() -> Portal:
    """A portal that this thread may block on: not that of its own loop, nor one whose thread waits for this one."""
    return _found() or _new()


def _found() -> Portal | None:
    avoided = _avoided()
    return next((each for each in tuple(_portals) if each.usable and each not in avoided), None)


def _avoided() -> tuple[Portal, ...]:
    """The portal of this thread, and those that wait for what it does."""
    current = tuple([each for each in tuple(_portals) if each.usable and each.is_current])
    return (*_waiting.get(), *current)


def _new() -> Portal:
    """Make a portal with a thread of its own, or take one that another thread has just made.

    It is made in a helper thread: a signal handler cannot raise there, in the middle of the locks of `threading`.
    """
    made: Latch[Portal] = Latch()
    avoided = _avoided()

    def make() -> None:
        try:
            with _starting:
                _portals[:] = [each for each in _portals if each.usable]
                fitting = [each for each in _portals if each not in avoided]
                if not fitting:
                    fitting = [Portal(f"quiesce-sync-{len(_portals) + 1}")]
                    _portals.extend(fitting)
            made.set_result(fitting[0])
        except BaseException as error:
            made.set_exception(error)

    # Not `Thread.start()`: it waits in Python code, and a signal handler that raises there leaves a lock held on which
    # the new thread hangs. `_thread` is the documented low-level module; nothing else starts a thread in one step.
    _thread.start_new_thread(make, ())
    return made.result()


def close_portals() -> None:
    """End the background loops. They come back with the next sync call."""
    with _starting:
        for each in _portals:
            each.close()
        _portals.clear()
