"""Noticing that another process has written to a SQLite file, which sends no notifications."""

from __future__ import annotations

import queue
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...errors import StoreError
from ..queue.subscribers import Subscribers
from .store_thread import Job, Jobs

# While a session is held or waited for, one number in shared memory is read this often.
CHECK_EVERY: Final = 0.05


class SQLiteListener:
    """Checks whether another process has written, while a session has subscribers here."""

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
        """Wait for a job; check when none comes."""
        try:
            return jobs.get(timeout=CHECK_EVERY)
        except queue.Empty:
            with suppress(StoreError, sqlite3.Error):  # it will show with the next write, if it lasts
                self.check()
            return None

    def wake(self) -> None:
        """The queue wakes the thread by itself."""

    def check(self) -> None:
        """Notify the subscribers of each session whose holder or queue has changed."""
        db = self._connected()
        # It changes whenever another connection has written. It is in shared memory: the file is not read.
        version = db.execute("PRAGMA data_version").fetchone()[0]
        sessions = self._subscribers.sessions
        known = db is self._connection and version == self._version
        if known and all(session in self._seen for session in sessions):
            return
        before, self._seen = self._seen, {session: _queue_version(db, session) for session in sessions}
        self._connection, self._version = db, version  # not before this was read: it may fail
        for session, now in self._seen.items():
            if now != before.get(session):
                self._subscribers.tell(session)


def _queue_version(db: sqlite3.Connection, session: str) -> tuple[object, ...] | None:
    """A value that differs when the holder of the session, or its queue, has changed."""
    return db.execute(
        "SELECT id, fence, holder IS NULL,"
        " (SELECT count(*) || ' ' || max(place) || ' ' || sum(said_in <> '') || ' ' || sum(expires > 0)"
        " FROM letters WHERE session = id)"
        " FROM sessions WHERE name = ?",
        (session,),
    ).fetchone()
