"""A thread that works for a store: jobs in order, one at a time, and gone again when there is nothing to do."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

# A thread with nothing to do ends after so many seconds; the next job starts another one.
IDLE: Final = 1.0

busy_workers: Final[dict[int, Worker]] = {}
"""The workers that have something to do right now, in this process. Virtual time waits for them."""


class Worker:
    """Carries out functions in a thread of its own."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self._jobs: Final[queue.SimpleQueue[Callable[[], None]]] = queue.SimpleQueue()
        self._lock: Final = threading.Lock()
        self._thread: threading.Thread | None = None
        self._waiting = 0
        self._retiring = False
        self.identity: int | None = None

    def submit(self, function: Callable[..., _T], *args: Any) -> Future[_T]:
        """Have a function called after all those before it; the future has what it returns or raises."""
        outcome: Future[_T] = Future()

        def job() -> None:
            if not outcome.set_running_or_notify_cancel():
                return
            try:
                value = function(*args)
            except BaseException as error:
                outcome.set_exception(error)
            else:
                outcome.set_result(value)

        with self._lock:
            self._waiting += 1
            busy_workers[id(self)] = self
            self._jobs.put(job)
            if self._thread is None or not self._thread.is_alive():  # not alive: in a process that was forked
                self._retiring = False
                self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
                self._thread.start()
        return outcome

    def _work(self) -> None:
        self.identity = threading.get_ident()
        while True:
            try:
                job = self._jobs.get(timeout=IDLE)
            except queue.Empty:
                with self._lock:
                    if self._waiting:
                        continue
                    self._thread = None
                return
            job()
            del job  # or what it refers to would live on until the next one comes
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    busy_workers.pop(id(self), None)
                    if self._retiring:
                        self._thread = None
                        return

    def retire(self) -> None:
        """Let the thread end with the job that calls this, unless there is more to do."""
        self._retiring = True
