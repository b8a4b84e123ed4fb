"""The thread of a store: it runs jobs in order, one at a time, and ends when it has been idle for a while."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from ...errors import StoreError, StoreUnavailable

_log: Final = logging.getLogger("quiesce")
_T = TypeVar("_T")
Job: TypeAlias = Callable[[], None]
Jobs: TypeAlias = "queue.SimpleQueue[Job]"

# A thread with nothing to do ends after so many seconds; the next job starts another one.
IDLE: Final = 1.0
_NO_THREAD: Final = "No thread can be started: end some, or raise the limit. Then prompt again."

busy_threads: Final[dict[int, StoreThread]] = {}
"""The threads that have a job right now, in this process. Virtual time waits for them."""


class StoreListener(Protocol):
    """Watches for changes between the jobs of a store's thread, while sessions have subscribers."""

    @property
    def wanted(self) -> bool:
        """Whether a session has subscribers."""
        ...

    def wait(self, jobs: Jobs) -> Job | None:
        """In the store's thread: wait for a job and watch meanwhile. Called again when it returns without one."""
        ...

    def wake(self) -> None:
        """There is a job, or no subscriber is left. From any thread."""
        ...


class StoreThread:
    """Runs functions in a thread of its own."""

    def __init__(self, name: str, listener: StoreListener | None = None) -> None:
        self.name: Final = name
        self._listener: Final = listener
        self._jobs: Final[Jobs] = queue.SimpleQueue()
        self._lock: Final = threading.Lock()
        self._thread: threading.Thread | None = None
        self._retiring = False
        self.identity: int | None = None

    def submit(self, function: Callable[..., _T], *args: Any) -> Future[_T]:
        """Call a function after those that were submitted before; the future has what it returns or raises."""
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
            # In an order in which each step may be the last one: a Ctrl-C can come between any two.
            if self._thread is None or not self._thread.is_alive():  # not alive: in a process that was forked
                self._retiring = False
                self._thread = thread = threading.Thread(target=self._work, name=self.name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    self._thread = None
                    outcome.set_exception(StoreUnavailable(detail=f"{self.name}: {error}.", todo=_NO_THREAD))
                    return outcome
            self._jobs.put(job)
            busy_threads[id(self)] = self
        if self._listener is not None:
            self._listener.wake()
        return outcome

    def _work(self) -> None:
        with self._lock:
            if self._thread is not threading.current_thread():  # a Ctrl-C came while it began, and then another thread
                return
        self.identity = threading.get_ident()
        while True:
            job = self._next()
            if job is None:
                with self._lock:
                    if not self._jobs.empty() or self._is_listening:
                        continue
                    self._thread = None
                return
            job()
            del job  # or it would keep its objects alive until the next one comes
            with self._lock:
                if self._jobs.empty():
                    busy_threads.pop(id(self), None)
                    if self._retiring:
                        self._thread = None
                        return

    @property
    def _is_listening(self) -> bool:
        return self._listener is not None and self._listener.wanted

    def _next(self) -> Job | None:
        if self._listener is not None and self._listener.wanted:
            try:
                return self._listener.wait(self._jobs)
            except StoreError:  # no descriptor is free for it: it is tried again after the next job
                pass
            except Exception:  # jobs are done all the same
                _log.exception("%s: changes by other processes are not noticed for a moment", self.name)
        try:
            return self._jobs.get(timeout=IDLE)
        except queue.Empty:
            return None

    def retire(self) -> None:
        """Let the thread end with the job that calls this, unless there is more to do."""
        self._retiring = True
