"""The SQLite file of a store: opened when needed, one transaction at a time, its errors as `StoreError`s."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from ...errors import StoreDamaged, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from .dialect import Access, Operation, Repeated, Rows, Statement, for_sqlite
from .schema import READABLE_FROM, READABLE_FROM_KEY, SQLITE_MIGRATIONS, check_readable

_T = TypeVar("_T")

# How long a transaction waits for one of another process.
_LOCK_TIMEOUT: Final = 5.0


class SQLiteFile:
    """The file at `path`, and the connection to it. Only for one thread."""

    def __init__(
        self, path: str | os.PathLike[str], notify: Callable[[str], None], *, power_safe: bool = False
    ) -> None:
        self.path: Final = Path(path).expanduser().absolute()
        self._notify: Final = notify
        self._power_safe: Final = power_safe
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._relaxed = False

    @property
    def url(self) -> str:
        """Where this is."""
        return f"sqlite:///{self.path}"

    def run(self, access: Access, operation: Callable[[], Operation[_T]]) -> _T:
        """Carry an operation out in one transaction, then notify this process; others see that the file has changed."""
        notified: list[str] = []
        with self._transaction(access) as db:
            outcome = _carry_out(db, operation(), notified)
        for session in notified:
            self._notify(session)
        return outcome

    @contextmanager
    def _transaction(self, access: Access) -> Generator[sqlite3.Connection]:
        """One transaction. Anything that goes wrong undoes it; an error of SQLite becomes a `StoreError`."""
        try:
            db = self.connected()
            if access != "read":
                self._relax(db, relaxed=access == "relaxed")
            db.execute("BEGIN" if access == "read" else "BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            self.close()
            raise self._explain(error) from error

    def _relax(self, db: sqlite3.Connection, *, relaxed: bool) -> None:
        """A lease need not survive a power cut, so acquiring one need not wait for the disk."""
        if self._power_safe and relaxed is not self._relaxed:
            db.execute(f"PRAGMA synchronous = {'NORMAL' if relaxed else 'FULL'}")
            self._relaxed = relaxed

    def connected(self) -> sqlite3.Connection:
        """The connection, opened when there is none in this process. Raises a `StoreError` or a `sqlite3.Error`."""
        if self._connection is None or self._process != os.getpid():
            self._process = os.getpid()
            self._connection = self._connect()
            self._relaxed = False
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreReadOnly(detail=f"The folder of {self.path} cannot be made: {error.strerror}.") from error
        with suppress(OSError):  # only a new file: closing one that is in use would drop SQLite's locks
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        db = sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
        try:
            db.create_function("quiesce_now", 0, time.time)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {'FULL' if self._power_safe else 'NORMAL'}")
            self._migrate(db)
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        """Bring the schema to the newest version, each step in its own transaction. A newer one stays as it is."""
        newest = len(SQLITE_MIGRATIONS)
        while (version := _version(db)) < newest:
            db.execute("BEGIN IMMEDIATE")
            try:
                if _version(db) == version:  # no other process was faster
                    for statement in SQLITE_MIGRATIONS[version]:
                        db.execute(statement)
                    values = (READABLE_FROM_KEY, b"%d" % READABLE_FROM)
                    db.execute("INSERT OR REPLACE INTO store_values (key, value) VALUES (?, ?)", values)
                    db.execute(f"PRAGMA user_version = {version + 1}")
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
        if version > newest:
            found = db.execute("SELECT value FROM store_values WHERE key = ?", (READABLE_FROM_KEY,)).fetchone()
            check_readable(version, newest, None if found is None else found[0], str(self.path))

    def close(self) -> None:
        """Close the connection. The next operation opens another."""
        db, self._connection = self._connection, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _explain(self, error: sqlite3.Error) -> StoreError:
        text = f"{self.path}: {error}."
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_FULL:
                return StoreFull(detail=text)
            case sqlite3.SQLITE_CANTOPEN if self._may_be_opened():
                return StoreUnavailable(
                    todo="Check the limit of open files (ulimit -n), then prompt again.", detail=text
                )
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_AUTH:
                return StoreReadOnly(detail=text)
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return StoreUnavailable(detail=text)
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return StoreDamaged(detail=text)
            case sqlite3.SQLITE_IOERR:
                return StoreFull(
                    todo="Check the disk: it is full, over quota, or broken. Then prompt again.", detail=text
                )
            case _:
                return StoreError(detail=text)

    def _may_be_opened(self) -> bool:
        """Whether the file can be opened as far as permissions go."""
        allowed = os.access(self.path, os.R_OK | os.W_OK) and os.access(self.path.parent, os.W_OK)
        return allowed and self.path.is_file()


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _carry_out(db: sqlite3.Connection, operation: Operation[_T], notified: list[str]) -> _T:
    rows: Rows = ()
    try:
        step = next(operation)
        while True:
            match step:
                case Statement(text, parameters):
                    text, order = for_sqlite(text)
                    given = parameters if order is None else [parameters[at] for at in order]
                    rows = db.execute(text, given).fetchall()
                case Repeated(text, given):
                    text, order = for_sqlite(text)
                    db.executemany(text, given if order is None else [[row[at] for at in order] for row in given])
                    rows = ()
                case _:
                    notified.append(step.session)
                    rows = ()
            step = operation.send(rows)
    except StopIteration as done:
        return done.value
