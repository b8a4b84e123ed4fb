"""Sessions in one SQLite file: the default on disk. No server, many processes, write-ahead log."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import msgspec

from ...errors import (
    LeaseLost,
    SessionBusy,
    SessionNotFound,
)
from ..journal.rows import Row, encode
from ..queue.prompts import QueuedPrompt, QueueRequest, decide_lease
from ..queue.subscribers import Subscribers
from ..records import (
    AcquiredSession,
    AcquireRequest,
    Holder,
    Lease,
    RunRecord,
    SentElsewhere,
    SessionInfo,
    Snapshot,
    WriteBatch,
    up_to_gap,
)
from .sqlite_file import SQLiteFile
from .sqlite_journal import add_late, is_written, payloads_of, rows_after, write_batch
from .sqlite_listener import SQLiteListener
from .sqlite_queue import (
    add_prompt,
    mark_sent,
    prompts_of,
    remove_prompt,
    renew_position,
    return_prompts,
    take_prompt,
    withdraw,
)
from .store_thread import StoreThread

_INFO: Final = "name, id, created, updated, length, revision, fence, holder, expires"


class SQLiteStore(SQLiteFile):
    """Sessions in the file at `path`, which is made when it is first written.

    What is saved survives the end of the process, however it ends. `power_safe=True` makes every batch wait for the
    disk, so that it survives a power cut too; without it the last moments before one may be lost, never the rest.
    """

    def __init__(self, path: str | os.PathLike[str], *, power_safe: bool = False) -> None:
        super().__init__(path, power_safe=power_safe)
        self._subscribers: Final = Subscribers()
        self._listener: Final = SQLiteListener(self._subscribers, self._connected)
        self._thread: Final = StoreThread(f"quiesce-store-{self.path.name}", self._listener)

    @property
    def url(self) -> str:
        """Where this is."""
        return f"sqlite:///{self.path}"

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    # --- The protocol: each hands its work to the store's thread ------------------------------------------------

    def acquire(
        self, session: str, holder: Holder, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession]:
        """See `Store.acquire`."""
        return self._thread.submit(self._acquire, session, holder, seconds, known)

    def enqueue(self, session: str, request: QueueRequest) -> Future[int]:
        """See `Store.enqueue`."""
        return self._thread.submit(self._enqueue, session, request)

    def acquire_queued(
        self, session: str, holder: Holder, position: int, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession | SentElsewhere]:
        """See `Store.acquire_queued`."""
        return self._thread.submit(self._try_acquire, session, AcquireRequest(holder, seconds, known, position))

    def withdraw(self, session: str, position: int) -> Future[SentElsewhere | None]:
        """See `Store.withdraw`."""
        return self._thread.submit(self._withdraw, session, position)

    def queued_prompts(self, lease: Lease) -> Future[list[QueuedPrompt]]:
        """See `Store.queued_prompts`."""
        return self._thread.submit(self._queued_prompts, lease)

    def take_prompt(self, lease: Lease, position: int, run_id: str) -> Future[bool]:
        """See `Store.take_prompt`."""
        return self._thread.submit(self._take_prompt, lease, position, run_id)

    def return_prompts(self, lease: Lease, positions: Sequence[int]) -> Future[list[int]]:
        """See `Store.return_prompts`."""
        return self._thread.submit(self._return_prompts, lease, positions)

    def subscribe(self, session: str, function: Callable[[], None]) -> Callable[[], None]:
        """See `Store.subscribe`."""
        return self._subscribers.add(session, function)

    def renew(self, lease: Lease) -> Future[None]:
        """See `Store.renew`."""
        return self._thread.submit(self._renew, lease)

    def release(self, lease: Lease) -> Future[None]:
        """See `Store.release`."""
        return self._thread.submit(self._release, lease)

    def load(self, session: str) -> Future[Snapshot]:
        """See `Store.load`."""
        return self._thread.submit(self._load, session)

    def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
        """See `Store.write`."""
        return self._thread.submit(self._write, lease, batch)

    def add_late(self, session_id: str, run_id: str, payload: bytes) -> Future[bool]:
        """See `Store.add_late`."""
        return self._thread.submit(self._add_late, session_id, run_id, payload)

    def sessions(self) -> Future[list[SessionInfo]]:
        """See `Store.sessions`."""
        return self._thread.submit(self._sessions)

    def runs(self, session: str) -> Future[list[RunRecord]]:
        """See `Store.runs`."""
        return self._thread.submit(self._runs, session)

    def journal(self, session: str, run_id: str) -> Future[list[bytes]]:
        """See `Store.journal`."""
        return self._thread.submit(self._journal, session, run_id)

    def rows(
        self, session: str, run_id: str, *, after: int = 0, most: int | None = None, marks: bool = False
    ) -> Future[list[Row]]:
        """See `Store.rows`."""
        return self._thread.submit(self._numbered, session, run_id, after, most, marks)

    def delete(self, session: str) -> Future[None]:
        """See `Store.delete`."""
        return self._thread.submit(self._delete, session)

    def get(self, key: str) -> Future[bytes | None]:
        """See `Store.get`."""
        return self._thread.submit(self._get, key)

    def put(self, key: str, value: bytes) -> Future[None]:
        """See `Store.put`."""
        return self._thread.submit(self._put, key, value)

    def close(self) -> Future[None]:
        """See `Store.close`."""
        return self._thread.submit(self._close)

    # --- Writing ------------------------------------------------------------------------------------------------

    def _acquire(self, session: str, holder: Holder, seconds: float, known: int | None) -> AcquiredSession:
        taken = self._try_acquire(session, AcquireRequest(holder, seconds, known))
        assert isinstance(taken, AcquiredSession)
        return taken

    def _try_acquire(self, session: str, entry: AcquireRequest) -> AcquiredSession | SentElsewhere:
        """Take the session, with a place in its line or without one."""
        with self._transaction(durable=False) as db:
            info = self._ensure_session(db, session)
            position = entry.position
            busy, sent_in, orphaned, since = decide_lease(info, prompts_of(db, info.id), entry.holder, position)
            for each in orphaned:
                remove_prompt(db, each)
            if busy is not None and position is not None:
                renew_position(db, position, entry.seconds)
            elif position is not None and not sent_in:  # else it stays until its sender has heard that, and leaves
                remove_prompt(db, position)
            outcome = busy or (SentElsewhere(sent_in) if sent_in else self._grant(db, info, entry, since))
        if isinstance(outcome, SessionBusy):  # raised here, because the place is kept
            raise outcome
        return outcome

    def _grant(self, db: sqlite3.Connection, info: SessionInfo, entry: AcquireRequest, since: int) -> AcquiredSession:
        db.execute(
            "UPDATE sessions SET fence = fence + 1, holder = ?, expires = ? WHERE id = ?",
            (encode(entry.holder), time.time() + entry.seconds, info.id),
        )
        lease = Lease(info.name, info.id, info.fence + 1, info.revision, entry.seconds, entry.holder.owner, since)
        return AcquiredSession(lease, None if info.revision == entry.known else self._snapshot(db, info))

    def _ensure_session(self, db: sqlite3.Connection, session: str) -> SessionInfo:
        now = time.time()
        db.execute(
            "INSERT OR IGNORE INTO sessions (name, id, created, updated) VALUES (?, ?, ?, ?)",
            (session, uuid.uuid4().hex, now, now),
        )
        return self._info(db, session)

    def _enqueue(self, session: str, request: QueueRequest) -> int:
        with self._transaction(durable=False) as db:
            info = self._ensure_session(db, session)
            position = add_prompt(db, info, request)
        self._subscribers.tell(session)
        return position

    def _withdraw(self, session: str, position: int) -> SentElsewhere | None:
        with self._transaction(durable=False) as db:
            said = withdraw(db, position)
        self._subscribers.tell(session)
        return said

    def _queued_prompts(self, lease: Lease) -> list[QueuedPrompt]:
        with self._transaction(reading=True) as db:
            return prompts_of(db, lease.session_id)

    def _return_prompts(self, lease: Lease, positions: Sequence[int]) -> list[int]:
        with self._transaction(durable=False) as db:
            return return_prompts(db, lease.session_id, positions)

    def _take_prompt(self, lease: Lease, position: int, run_id: str) -> bool:
        with self._transaction(durable=False) as db:
            self._update_held(db, lease, "fence = fence", ())
            return take_prompt(db, lease.session_id, position, run_id)

    def _renew(self, lease: Lease) -> None:
        with self._transaction(durable=False) as db:
            self._update_held(db, lease, "expires = ?", (time.time() + lease.seconds,))

    def _release(self, lease: Lease) -> None:
        with self._transaction(durable=False) as db, suppress(LeaseLost):
            self._update_held(db, lease, "holder = NULL, expires = 0", ())
        self._subscribers.tell(lease.session)

    def _update_held(self, db: sqlite3.Connection, lease: Lease, change: str, values: tuple[Any, ...]) -> int:
        """Change the session's row, if the lease is the newest there is. Gives the revision."""
        row = db.execute(
            f"UPDATE sessions SET {change} WHERE id = ? AND fence = ? RETURNING revision",
            (*values, lease.session_id, lease.fence),
        ).fetchone()
        if row is None:
            raise LeaseLost(f"Another process writes session {lease.session!r} now.")
        return row[0]

    def _write(self, lease: Lease, batch: WriteBatch) -> int:
        batch.rows()  # encoded before the file is locked
        length = batch.first_message + len(batch.payloads())
        now = time.time()
        kept = "holder = NULL, expires = 0" if batch.release else f"expires = {now + lease.seconds!r}"
        with self._transaction(durable=batch.urgent) as db:
            is_new = not is_written(db, lease.session_id, batch)
            revision = self._update_held(
                db,
                lease,
                f"revision = revision + ?, updated = ?, length = CASE WHEN ? THEN ? ELSE length END, {kept}",
                (is_new, now, is_new and batch.rewrites, length),
            )
            if is_new:
                write_batch(db, lease.session_id, batch)
                mark_sent(db, lease.session_id, batch.sent_prompts)
        if batch.release or batch.sent_prompts:
            self._subscribers.tell(lease.session)
        return revision

    def _add_late(self, session_id: str, run_id: str, payload: bytes) -> bool:
        with self._transaction() as db:
            return add_late(db, session_id, run_id, payload)

    def _delete(self, session: str) -> None:
        with self._transaction() as db:
            info = self._info(db, session)
            busy = decide_lease(info, (), None, None).busy
            if busy is not None:
                raise busy
            for table in ("messages", "journal", "runs", "session_values", "letters"):
                db.execute(f"DELETE FROM {table} WHERE session = ?", (info.id,))
            db.execute("DELETE FROM sessions WHERE id = ?", (info.id,))

    def _put(self, key: str, value: bytes) -> None:
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO store_values (key, value) VALUES (?, ?)", (key, value))

    # --- Reading ------------------------------------------------------------------------------------------------

    def _load(self, session: str) -> Snapshot:
        with self._transaction(reading=True) as db:
            return self._snapshot(db, self._info(db, session))

    def _snapshot(self, db: sqlite3.Connection, info: SessionInfo) -> Snapshot:
        found = db.execute("SELECT position, payload FROM messages WHERE session = ? ORDER BY position", (info.id,))
        in_order, payloads = up_to_gap(found.fetchall())
        open_runs = db.execute(
            "SELECT run FROM runs WHERE session = ? AND status = 'running' ORDER BY started, run", (info.id,)
        ).fetchall()
        values = db.execute("SELECT key, value FROM session_values WHERE session = ?", (info.id,)).fetchall()
        unfinished = {run: payloads_of(db, info.id, run) for (run,) in open_runs}
        return Snapshot(info, payloads, unfinished, dict(values), in_order)

    def _sessions(self) -> list[SessionInfo]:
        with self._transaction(reading=True) as db:
            return [_session(row) for row in db.execute(f"SELECT {_INFO} FROM sessions ORDER BY updated DESC, name")]

    def _runs(self, session: str) -> list[RunRecord]:
        with self._transaction(reading=True) as db:
            info = self._info(db, session)
            found = db.execute(
                "SELECT run, agent, started, status, reason, ended, detail FROM runs WHERE session = ?"
                " ORDER BY started, run",
                (info.id,),
            )
            return [RunRecord(*row) for row in found]

    def _journal(self, session: str, run_id: str) -> list[bytes]:
        with self._transaction(reading=True) as db:
            return payloads_of(db, self._info(db, session).id, run_id)

    def _numbered(self, session: str, run_id: str, after: int, most: int | None, marks: bool) -> list[Row]:  # noqa: FBT001
        with self._transaction(reading=True) as db:
            return rows_after(db, self._info(db, session).id, run_id, after, most, marks=marks)

    def _get(self, key: str) -> bytes | None:
        with self._transaction(reading=True) as db:
            row = db.execute("SELECT value FROM store_values WHERE key = ?", (key,)).fetchone()
            return None if row is None else row[0]

    def _info(self, db: sqlite3.Connection, session: str) -> SessionInfo:
        row = db.execute(f"SELECT {_INFO} FROM sessions WHERE name = ?", (session,)).fetchone()
        if row is None:
            raise SessionNotFound(f"There is no session {session!r} in {self.url}.")
        return _session(row)

    def _close(self) -> None:
        self._drop_connection()
        self._thread.retire()


def _session(row: tuple[Any, ...]) -> SessionInfo:
    *plain, holder, expires = row
    return SessionInfo(
        *plain,
        holder=None if holder is None else msgspec.json.decode(holder, type=Holder),
        expires_in=max(0.0, expires - time.time()),
    )
