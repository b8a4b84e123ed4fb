"""A store in a SQL database, whichever it is: each call is one operation, in one transaction, in the store's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from ...errors import SessionBusy, SessionNotFound
from ..journal.rows import Row
from ..queue.prompts import QueuedPrompt, QueueRequest
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
)
from . import sql_sessions
from .dialect import Access, Operation
from .sql_journal import add_late, delete_run, find_run, rows_after, runs_of, snapshot_of
from .sql_queue import prompts_of, return_prompts
from .store_thread import StoreListener, StoreThread

_T = TypeVar("_T")


class Database(Protocol):
    """A database that carries operations out. Only for the store's thread."""

    @property
    def url(self) -> str:
        """Where this is, without passwords."""
        ...

    def run(self, access: Access, operation: Callable[[], Operation[_T]]) -> _T:
        """Carry an operation out in one transaction, perhaps more than once. Failures are `StoreError`s."""
        ...

    def close(self) -> None:
        """Close the connection. The next operation opens another."""
        ...


class SQLStore:
    """The methods of `SessionStore` on a database."""

    def __init__(self, database: Database, subscribers: Subscribers, listener: StoreListener, name: str) -> None:
        self._database: Final = database
        self._subscribers: Final = subscribers
        self._listener: Final = listener
        self._thread: Final = StoreThread(f"quiesce-store-{name}", listener)

    @property
    def url(self) -> str:
        """Where this is, without passwords."""
        return self._database.url

    def _submit(self, access: Access, operation: Callable[..., Operation[_T | SessionBusy]], *args: Any) -> Future[_T]:
        return self._thread.submit(self._run, access, partial(operation, *args))

    def _run(self, access: Access, operation: Callable[[], Operation[_T | SessionBusy]]) -> _T:
        outcome = self._database.run(access, operation)
        if isinstance(outcome, SessionBusy):  # raised after the commit
            raise outcome
        return outcome

    def _submit_for(
        self, session: str, access: Access, then: Callable[[SessionInfo], Operation[_T]], *, locked: bool = False
    ) -> Future[_T]:
        """Carry an operation out that needs what is known of a session. Fails with `SessionNotFound`."""

        def operation() -> Operation[_T]:
            info = yield from sql_sessions.find_session(session, locked=locked)
            if info is None:
                raise SessionNotFound(f"There is no session {session!r}.", detail=f"It was looked for in {self.url}.")
            return (yield from then(info))

        return self._submit(access, operation)

    # --- Coordination -------------------------------------------------------------------------------------------

    def acquire(
        self, session: str, holder: Holder, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession]:
        """See `Coordination.acquire`."""
        request = AcquireRequest(holder, seconds, known)
        return self._submit("durable", sql_sessions.acquire, session, request)  # pyright: ignore[reportReturnType]

    def acquire_queued(
        self, session: str, holder: Holder, position: int, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession | SentElsewhere]:
        """See `Coordination.acquire_queued`."""
        request = AcquireRequest(holder, seconds, known, position)
        return self._submit("durable", sql_sessions.acquire, session, request)

    def renew(self, lease: Lease) -> Future[None]:
        """See `Coordination.renew`."""
        return self._submit("relaxed", sql_sessions.renew, lease)

    def release(self, lease: Lease) -> Future[None]:
        """See `Coordination.release`."""
        return self._submit("relaxed", sql_sessions.release, lease)

    def enqueue(self, session: str, request: QueueRequest) -> Future[int]:
        """See `Coordination.enqueue`."""
        return self._submit("relaxed", sql_sessions.enqueue, session, request)

    def withdraw(self, session: str, position: int) -> Future[SentElsewhere | None]:
        """See `Coordination.withdraw`."""
        return self._submit("relaxed", sql_sessions.withdraw, session, position)

    def queued_prompts(self, lease: Lease) -> Future[list[QueuedPrompt]]:
        """See `Coordination.queued_prompts`."""
        return self._submit("read", prompts_of, lease.session_id)

    def take_prompt(self, lease: Lease, position: int, run_id: str) -> Future[bool]:
        """See `Coordination.take_prompt`."""
        return self._submit("relaxed", sql_sessions.take_prompt, lease, position, run_id)

    def return_prompts(self, lease: Lease, positions: Sequence[int]) -> Future[list[int]]:
        """See `Coordination.return_prompts`."""
        return self._submit("relaxed", return_prompts, lease.session_id, positions)

    def subscribe(self, session: str, function: Callable[[], None]) -> Callable[[], None]:
        """See `Coordination.subscribe`."""
        remove = self._subscribers.add(session, function)

        def end() -> None:
            remove()
            self._listener.wake()

        return end

    # --- Reading and writing ------------------------------------------------------------------------------------

    def load(self, session: str) -> Future[Snapshot]:
        """See `SessionStore.load`."""
        return self._submit_for(session, "read", snapshot_of)

    def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
        """See `SessionStore.write`. The batch is encoded here, before the database is locked."""
        batch.rows()
        batch.payloads()
        return self._submit("durable" if batch.urgent else "relaxed", sql_sessions.write, lease, batch)

    def add_late(self, session_id: str, run_id: str, payload: bytes) -> Future[bool]:
        """See `SessionStore.add_late`."""
        return self._submit("durable", add_late, session_id, run_id, payload)

    def sessions(self) -> Future[list[SessionInfo]]:
        """See `SessionStore.sessions`."""
        return self._submit("read", sql_sessions.list_sessions)

    def runs(self, session: str) -> Future[list[RunRecord]]:
        """See `SessionStore.runs`."""
        return self._submit_for(session, "read", runs_of)

    def rows(
        self, session: str, run_id: str, *, after: int = 0, most: int | None = None, marks: bool = False
    ) -> Future[list[Row]]:
        """See `SessionStore.rows`."""
        return self._submit_for(session, "read", lambda info: rows_after(info.id, run_id, after, most, marks=marks))

    def find_run(self, run_id: str) -> Future[list[str]]:
        """See `SessionStore.find_run`."""
        return self._submit("read", find_run, run_id)

    def delete_run(self, session: str, run_id: str) -> Future[None]:
        """See `SessionStore.delete_run`."""
        return self._submit_for(session, "durable", lambda info: delete_run(info.id, run_id))

    def delete(self, session: str) -> Future[None]:
        """See `SessionStore.delete`."""
        return self._submit_for(session, "durable", sql_sessions.delete_session, locked=True)

    def close(self) -> Future[None]:
        """See `SessionStore.close`."""
        return self._thread.submit(self._close)

    def _close(self) -> None:
        self._thread.retire()
        self._database.close()
