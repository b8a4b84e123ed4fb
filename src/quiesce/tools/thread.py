"""A blocking function in a thread of its own.

One thread per call, not a pool: the thread has the call's name, a hung thread blocks no other call, and after a stop
only the threads that the receipt names are left. Python cannot end a thread: the policy `abandon` is for that.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from .._threads.loop_callback import made_again

live_threads: Final[dict[int, ThreadCall]] = {}
"""The calls that run in threads right now, in this process."""


class ThreadOutcome(Struct, frozen=True):
    """The value that a function returned, or the exception that it raised."""

    value: Any = None
    error: BaseException | None = None

    def get(self) -> Any:
        """The value. Raises what the function raised."""
        if self.error is not None:
            raise self.error
        return self.value


class ThreadCall:
    """A function that runs in a thread.

    `outcome` is set when the function ends, before the event loop is notified, so that a stop in the same instant
    cannot lose it. If the waiting task was cancelled, `on_orphan` is called with the outcome: in the loop, or in the
    thread once the loop has closed.
    """

    def __init__(self, function: Callable[[], Any], name: str, on_orphan: Callable[[ThreadOutcome], None]) -> None:
        self._function: Final = function
        self._on_orphan: Final = on_orphan
        self._loop: Final = asyncio.get_running_loop()
        self._context: Final = contextvars.copy_context()
        self._future: Final[asyncio.Future[None]] = self._loop.create_future()
        self.name: Final = name
        self._claims: Final[dict[str, str]] = {}
        self.identity: int | None = None
        self.outcome: ThreadOutcome | None = None

    async def wait(self) -> Any:
        """Start the thread and wait for its value or exception. A cancellation ends the wait, not the thread."""
        try:
            live_threads[id(self)] = self
            try:
                threading.Thread(target=self._work, name=self.name, daemon=True).start()
            except RuntimeError:  # the system has no room for another thread
                self.withdraw()
                raise
            await self._future
        finally:  # after a Ctrl-C, too, this task waits no more
            self._future.cancel()
        assert self.outcome is not None
        return self.outcome.get()

    def withdraw(self) -> bool:
        """Keep the function from being called; False when it has been. A Ctrl-C may come before or in `start()`."""
        withdrawn = self._claims.setdefault("first", "caller") == "caller"
        if withdrawn:
            live_threads.pop(id(self), None)
        return withdrawn

    @property
    def running(self) -> bool:
        """Whether the function has not ended yet."""
        return self.outcome is None

    def _work(self) -> None:
        self.identity = threading.get_ident()
        if self._claims.setdefault("first", "thread") != "thread":
            return
        try:
            outcome = ThreadOutcome(self._context.run(self._function))
        except BaseException as raised:  # it belongs to the call, not to this thread
            outcome = ThreadOutcome(error=raised)
        self.outcome = outcome
        try:
            self._loop.call_soon_threadsafe(made_again(self._resolve), outcome)
        except RuntimeError:  # the loop has closed
            self._on_orphan(outcome)
        finally:
            live_threads.pop(id(self), None)

    def _resolve(self, outcome: ThreadOutcome) -> None:
        if self._future.done():
            self._on_orphan(outcome)
        else:
            self._future.set_result(None)
