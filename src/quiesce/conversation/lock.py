"""The lock of a conversation: one run at a time writes, the others wait in the order in which they came."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ..errors import ConversationBusy


class ConversationLock:
    """Held by one run; the others queue. For any thread.

    `blocked` says that queued runs wait although no run holds the lock: an approval is pending. A run that answers it
    does not wait for that, and goes before the others.
    """

    __slots__ = ("_answering", "_blocked", "_holder", "_lock", "_queue")

    def __init__(self, blocked: Callable[[], bool]) -> None:
        self._blocked: Final = blocked
        self._lock = threading.RLock()  # re-entrant: a signal handler may come in between
        self._holder: str | None = None
        self._queue: Final[dict[str, Callable[[], None]]] = {}
        self._answering: Final[dict[str, None]] = {}

    @property
    def holder(self) -> str | None:
        """The id of the run that holds the lock."""
        return self._holder

    @property
    def queued(self) -> tuple[str, ...]:
        """The ids of the runs that wait, in order."""
        return tuple(self._queue.copy())

    def acquire(self, run_id: str) -> None:
        """Take the lock. Raises `ConversationBusy` when another run holds it."""
        with self._lock:
            if self._holder not in (None, run_id):
                raise ConversationBusy(self._holder)
            self._holder = run_id

    def queue(self, run_id: str, on_acquired: Callable[[], None], *, answers: bool = False) -> None:
        """Wait for the lock. `on_acquired` is called, in any thread, when the run holds it; perhaps at once.

        `answers` says that the run answers a pending approval.
        """
        with self._lock:
            if answers:
                self._answering[run_id] = None
            self._queue[run_id] = on_acquired
            self._grant_next()

    def release(self, run_id: str) -> None:
        """Give the lock, or the position in the queue, back. The next run gets the lock."""
        with self._lock:
            self._queue.pop(run_id, None)
            self._answering.pop(run_id, None)
            if self._holder == run_id:
                self._holder = None
            self._grant_next()

    def reset(self) -> None:
        """In a forked child: the runs that hold it or wait for it are the parent's, as is a thread that is in it."""
        self._lock = threading.RLock()
        self._holder = None
        self._queue.clear()
        self._answering.clear()

    def _grant_next(self) -> None:
        while self._holder is None and self._queue and (run_id := self._next()) is not None:
            on_acquired = self._queue.pop(run_id)
            self._answering.pop(run_id, None)
            self._holder = run_id
            on_acquired()

    def _next(self) -> str | None:
        answering = (run_id for run_id in self._queue if run_id in self._answering)
        return next(answering, None if self._blocked() else next(iter(self._queue), None))
