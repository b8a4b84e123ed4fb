"""Sessions in Postgres: for processes on many machines. Needs `pip install quiesce[postgres]`."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from ...errors import (
    LeaseLost,
    SessionBusy,
    SessionNotFound,
    StoreError,
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
from .postgres_database import PostgresDatabase
from .postgres_journal import add_late, is_written, payloads_of, rows_after, write_batch
from .postgres_listener import PostgresListener
from .postgres_queue import (
    NOW,
    add_prompt,
    mark_sent,
    prompts_of,
    remove_prompt,
    renew_position,
    return_prompts,
    take_prompt,
    tell,
    withdraw,
)
from .store_thread import StoreThread

_T = TypeVar("_T")

_INFO: Final = f"name, id, created, updated, length, revision, fence, holder, greatest(0, expires - {NOW})"


class PostgresStore(PostgresDatabase):
    """Sessions in the database at `url`; the tables, named `quiesce_...`, are made when they are first needed.

    One connection, used by one thread. Raises `MissingExtra` when asyncpg is not installed.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._subscribers: Final = Subscribers()
        self._listener: Final = PostgresListener(self._subscribers, self._get_loop, self._reach)
        self._thread: Final = StoreThread("quiesce-store-postgres", self._listener)

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r})"

    # --- The protocol: each hands its work to the store's thread ------------------------------------------------

    def acquire(
        self, session: str, holder: Holder, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession]:
        """See `Store.acquire`."""
        return self._submit(lambda db: self._acquire(db, session, holder, seconds, known), urgent=False)

    def enqueue(self, session: str, request: QueueRequest) -> Future[int]:
        """See `Store.enqueue`."""
        return self._submit(lambda db: self._enqueue(db, session, request), urgent=False)

    def acquire_queued(
        self, session: str, holder: Holder, position: int, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession | SentElsewhere]:
        """See `Store.acquire_queued`."""

        entry = AcquireRequest(holder, seconds, known, position)
        return self._thread.submit(
            lambda: _raised(self._run(lambda db: self._try_acquire(db, session, entry), urgent=False))
        )

    def withdraw(self, session: str, position: int) -> Future[SentElsewhere | None]:
        """See `Store.withdraw`."""

        async def work(db: Any) -> SentElsewhere | None:
            said = await withdraw(db, position)
            await tell(db, session)
            return said

        return self._submit(work, urgent=False)

    def queued_prompts(self, lease: Lease) -> Future[list[QueuedPrompt]]:
        """See `Store.queued_prompts`."""
        return self._submit(lambda db: prompts_of(db, lease.session_id))

    def take_prompt(self, lease: Lease, position: int, run_id: str) -> Future[bool]:
        """See `Store.take_prompt`."""

        async def work(db: Any) -> bool:
            await self._update_held(db, lease, "fence = fence")
            return await take_prompt(db, lease.session_id, position, run_id)

        return self._submit(work, urgent=False)

    def return_prompts(self, lease: Lease, positions: Sequence[int]) -> Future[list[int]]:
        """See `Store.return_prompts`."""
        return self._submit(lambda db: return_prompts(db, lease.session_id, positions), urgent=False)

    def subscribe(self, session: str, function: Callable[[], None]) -> Callable[[], None]:
        """See `Store.subscribe`."""
        forget = self._subscribers.add(session, function)
        if not self._listener.is_listening:
            self._thread.submit(self._begin_to_listen)

        def end() -> None:
            forget()
            self._listener.wake()

        return end

    def renew(self, lease: Lease) -> Future[None]:
        """See `Store.renew`."""
        return self._submit(lambda db: self._renew(db, lease), urgent=False)

    def release(self, lease: Lease) -> Future[None]:
        """See `Store.release`."""
        return self._submit(lambda db: self._release(db, lease), urgent=False)

    def load(self, session: str) -> Future[Snapshot]:
        """See `Store.load`."""

        async def work(db: Any) -> Snapshot:
            return await self._snapshot(db, await self._info(db, session))

        return self._submit(work)

    def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
        """See `Store.write`."""
        return self._submit(lambda db: self._write(db, lease, batch), urgent=batch.urgent)

    def add_late(self, session_id: str, run_id: str, payload: bytes) -> Future[bool]:
        """See `Store.add_late`."""
        return self._submit(lambda db: add_late(db, session_id, run_id, payload))

    def sessions(self) -> Future[list[SessionInfo]]:
        """See `Store.sessions`."""

        async def work(db: Any) -> list[SessionInfo]:
            found = await db.fetch(f"SELECT {_INFO} FROM quiesce_sessions ORDER BY updated DESC, name")
            return [_session(row) for row in found]

        return self._submit(work)

    def runs(self, session: str) -> Future[list[RunRecord]]:
        """See `Store.runs`."""

        async def work(db: Any) -> list[RunRecord]:
            info = await self._info(db, session)
            found = await db.fetch(
                "SELECT run, agent, started, status, reason, ended, detail FROM quiesce_runs WHERE session = $1"
                " ORDER BY started, run",
                info.id,
            )
            return [RunRecord(*row) for row in found]

        return self._submit(work)

    def journal(self, session: str, run_id: str) -> Future[list[bytes]]:
        """See `Store.journal`."""

        async def work(db: Any) -> list[bytes]:
            return await payloads_of(db, (await self._info(db, session)).id, run_id)

        return self._submit(work)

    def rows(
        self, session: str, run_id: str, *, after: int = 0, most: int | None = None, marks: bool = False
    ) -> Future[list[Row]]:
        """See `Store.rows`."""

        async def work(db: Any) -> list[Row]:
            info = await self._info(db, session)
            return await rows_after(db, info.id, run_id, after, most, marks=marks)

        return self._submit(work)

    def delete(self, session: str) -> Future[None]:
        """See `Store.delete`."""
        return self._submit(lambda db: self._delete(db, session))

    def get(self, key: str) -> Future[bytes | None]:
        """See `Store.get`."""
        return self._submit(lambda db: db.fetchval("SELECT value FROM quiesce_store_values WHERE key = $1", key))

    def put(self, key: str, value: bytes) -> Future[None]:
        """See `Store.put`."""

        async def work(db: Any) -> None:
            await db.execute(
                "INSERT INTO quiesce_store_values (key, value) VALUES ($1, $2)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                key,
                value,
            )

        return self._submit(work)

    def close(self) -> Future[None]:
        """See `Store.close`."""
        return self._thread.submit(self._close)

    # --- Writing ------------------------------------------------------------------------------------------------

    async def _acquire(
        self, db: Any, session: str, holder: Holder, seconds: float, known: int | None
    ) -> AcquiredSession:
        taken = _raised(await self._try_acquire(db, session, AcquireRequest(holder, seconds, known)))
        assert isinstance(taken, AcquiredSession)
        return taken

    async def _try_acquire(
        self, db: Any, session: str, entry: AcquireRequest
    ) -> AcquiredSession | SentElsewhere | SessionBusy:
        """Take the session, with a place in its line or without one. What is in the way is returned, not raised."""
        position = entry.position
        info = await self._ensure_session(db, session)
        busy, sent_in, orphaned, since = decide_lease(info, await prompts_of(db, info.id), entry.holder, position)
        for each in orphaned:
            await remove_prompt(db, each)
        if busy is not None:
            if position is not None:
                await renew_position(db, position, entry.seconds)
            return busy
        if sent_in:  # the letter stays until its sender has heard that, and leaves
            return SentElsewhere(sent_in)
        if position is not None:
            await remove_prompt(db, position)
        await db.execute(
            f"UPDATE quiesce_sessions SET fence = fence + 1, holder = $2, expires = {NOW} + $3 WHERE id = $1",
            info.id,
            encode(entry.holder),
            entry.seconds,
        )
        lease = Lease(session, info.id, info.fence + 1, info.revision, entry.seconds, entry.holder.owner, since)
        return AcquiredSession(lease, None if info.revision == entry.known else await self._snapshot(db, info))

    async def _ensure_session(self, db: Any, session: str) -> SessionInfo:
        await db.execute(
            f"INSERT INTO quiesce_sessions (name, id, created, updated) VALUES ($1, $2, {NOW}, {NOW})"
            " ON CONFLICT (name) DO NOTHING",
            session,
            uuid.uuid4().hex,
        )
        return await self._info(db, session, locked=True)

    async def _enqueue(self, db: Any, session: str, request: QueueRequest) -> int:
        info = await self._ensure_session(
            db, session
        )  # locked, so that places are given in the order in which they count
        await tell(db, session)
        return await add_prompt(db, info, request)

    async def _renew(self, db: Any, lease: Lease) -> None:
        await self._update_held(db, lease, f"expires = {NOW} + $3", lease.seconds)

    async def _release(self, db: Any, lease: Lease) -> None:
        with suppress(LeaseLost):
            await self._update_held(db, lease, "holder = NULL, expires = 0")
        await tell(db, lease.session)

    async def _update_held(self, db: Any, lease: Lease, change: str, *values: Any) -> int:
        """Change the session's row, if the lease is the newest there is. Gives the revision."""
        revision = await db.fetchval(
            f"UPDATE quiesce_sessions SET {change} WHERE id = $1 AND fence = $2 RETURNING revision",
            lease.session_id,
            lease.fence,
            *values,
        )
        if revision is None:
            raise LeaseLost(f"Another process writes session {lease.session!r} now.")
        return revision

    async def _write(self, db: Any, lease: Lease, batch: WriteBatch) -> int:
        kept = "holder = NULL, expires = $3" if batch.release else f"expires = {NOW} + $3"
        change = f"revision = revision + 1, updated = {NOW}, {kept}"
        revision = await self._update_held(db, lease, change, 0.0 if batch.release else lease.seconds)
        if not await is_written(db, lease.session_id, batch):
            if batch.rewrites:
                await self._update_held(db, lease, "length = $3", batch.first_message + len(batch.payloads()))
            await write_batch(db, lease.session_id, batch)
            await mark_sent(db, lease.session_id, batch.sent_prompts)
        if batch.release or batch.sent_prompts:
            await tell(db, lease.session)
        return revision

    async def _delete(self, db: Any, session: str) -> None:
        info = await self._info(db, session, locked=True)
        _raised(decide_lease(info, (), None, None).busy)
        for table in ("messages", "journal", "runs", "session_values", "letters"):
            await db.execute(f"DELETE FROM quiesce_{table} WHERE session = $1", info.id)
        await db.execute("DELETE FROM quiesce_sessions WHERE id = $1", info.id)

    # --- Reading ------------------------------------------------------------------------------------------------

    async def _info(self, db: Any, session: str, *, locked: bool = False) -> SessionInfo:
        lock = " FOR UPDATE" if locked else ""
        row = await db.fetchrow(f"SELECT {_INFO} FROM quiesce_sessions WHERE name = $1{lock}", session)
        if row is None:
            raise SessionNotFound(f"There is no session {session!r} in {self.url}.")
        return _session(row)

    async def _snapshot(self, db: Any, info: SessionInfo) -> Snapshot:
        found = await db.fetch(
            "SELECT position, payload FROM quiesce_messages WHERE session = $1 ORDER BY position", info.id
        )
        in_order, payloads = up_to_gap(found)
        running = await db.fetch(
            "SELECT run FROM quiesce_runs WHERE session = $1 AND status = 'running' ORDER BY started, run", info.id
        )
        values = await db.fetch("SELECT key, value FROM quiesce_session_values WHERE session = $1", info.id)
        unfinished = {run["run"]: await payloads_of(db, info.id, run["run"]) for run in running}
        return Snapshot(info, payloads, unfinished, dict(values), in_order)

    # --- The thread -------------------------------------------------------------------------------------------

    def _submit(self, work: Callable[[Any], Awaitable[_T]], *, urgent: bool = True) -> Future[_T]:
        return self._thread.submit(lambda: self._run(work, urgent=urgent))

    def _begin_to_listen(self) -> None:
        with suppress(StoreError):  # the lookout tries again
            self._get_loop().run_until_complete(self._listener.begin())

    def _close(self) -> None:
        self._thread.retire()
        self._shut()


def _raised(outcome: _T | SessionBusy) -> _T:
    if isinstance(outcome, SessionBusy):
        raise outcome
    return outcome


def _session(row: Any) -> SessionInfo:
    *plain, holder, expires_in = row
    return SessionInfo(
        *plain,
        holder=None if holder is None else msgspec.json.decode(holder, type=Holder),
        expires_in=expires_in,
    )
