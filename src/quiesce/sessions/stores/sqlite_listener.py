"""Noticing that another process has written to a SQLite file, which sends no notifications."""

from __future__ import annotations

import queue
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...errors import StoreError
from ..queue.subscribers import Subscribers
from .sqlite_queue import queue_version
from .store_thread import Job, Jobs

# While a session is held or waited for, one number in shared memory is looked at this often.
CHECK_EVERY: Final = 0.05


class SQLiteListener:
    """Looks now and then whether another process has written, while a session has subscribers here."""

    def __init__(self, subscribers: Subscribers, connected: Callable[[], sqlite3.Connection]) -> None:
        self._subscribers: Final = subscribers
        self._connected: Final = connected
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._seen: dict[str, tuple[object, ...] | None] = {}

    @property
    def wanted(self) -> bool:
        """Whether a session has subscribers."""
        return bool(self._subscribers)

    def wait(self, jobs: Jobs) -> Job | None:
        """Wait for a job; look when none comes."""
        try:
            return jobs.get(timeout=CHECK_EVERY)
        except queue.Empty:
            with suppress(StoreError, sqlite3.Error):  # it will show with the next write, if it lasts
                self.check()
            return None

    def wake(self) -> None:
        """The queue wakes the thread by itself."""

    def check(self) -> None:
        """Tell those who watch a session that has changed hands, or whose line has changed."""
        db = self._connected()
        # Another number whenever another connection has written: a look at shared memory, nothing is read.
        version = db.execute("PRAGMA data_version").fetchone()[0]
        sessions = self._subscribers.sessions
        known = db is self._connection and version == self._version
        if known and all(session in self._seen for session in sessions):
            return
        self._connection, self._version = db, version
        before, self._seen = self._seen, {session: queue_version(db, session) for session in sessions}
        for session, now in self._seen.items():
            if now != before.get(session):
                self._subscribers.tell(session)
