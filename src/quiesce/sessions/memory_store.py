"""A store in memory: the rules of all stores in their simplest form, for tests and for sessions that need not last."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from msgspec import Struct, field, structs

from ..errors import LeaseLost, SessionNotFound
from .records import Batch, Holder, Lease, RunRecord, SessionInfo, Snapshot, Taken, check_free
from .rows import A_MARK, Row

_T = TypeVar("_T")


class _Kept(Struct):
    """Everything about one session."""

    info: SessionInfo
    expires: float = 0.0
    messages: dict[int, bytes] = field(default_factory=dict[int, bytes])
    runs: dict[str, RunRecord] = field(default_factory=dict[str, RunRecord])
    journal: dict[str, dict[int, Row]] = field(default_factory=dict[str, dict[int, Row]])
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])


class MemoryStore:
    """Sessions that last as long as this object. `clock` is what leases expire by."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._sessions: Final[dict[str, _Kept]] = {}
        self._values: Final[dict[str, bytes]] = {}

    @property
    def url(self) -> str:
        """Where this is."""
        return "memory"

    def __repr__(self) -> str:
        return "MemoryStore()"

    def _done(self, function: Callable[..., _T], *args: Any) -> Future[_T]:
        outcome: Future[_T] = Future()
        try:
            with self._lock:
                outcome.set_result(function(*args))
        except Exception as error:
            outcome.set_exception(error)
        return outcome

    def acquire(self, session: str, holder: Holder, *, seconds: float, known: int | None = None) -> Future[Taken]:
        """See `Store.acquire`."""
        return self._done(self._acquire, session, holder, seconds, known)

    def renew(self, lease: Lease) -> Future[None]:
        """See `Store.renew`."""
        return self._done(self._renew, lease)

    def release(self, lease: Lease) -> Future[None]:
        """See `Store.release`."""
        return self._done(self._release, lease)

    def load(self, session: str) -> Future[Snapshot]:
        """See `Store.load`."""
        return self._done(self._load, session)

    def write(self, lease: Lease, batch: Batch) -> Future[int]:
        """See `Store.write`."""
        return self._done(self._write, lease, batch)

    def sessions(self) -> Future[list[SessionInfo]]:
        """See `Store.sessions`."""
        return self._done(lambda: sorted(map(self._info, self._sessions), key=lambda info: (-info.updated, info.name)))

    def runs(self, session: str) -> Future[list[RunRecord]]:
        """See `Store.runs`."""
        return self._done(lambda: sorted(self._kept(session).runs.values(), key=lambda run: (run.started, run.run_id)))

    def journal(self, session: str, run_id: str) -> Future[list[bytes]]:
        """See `Store.journal`."""
        return self._done(lambda: _payloads(self._kept(session).journal.get(run_id, {})))

    def rows(
        self, session: str, run_id: str, *, after: int = 0, most: int | None = None, marks: bool = False
    ) -> Future[list[Row]]:
        """See `Store.rows`."""

        def read() -> list[Row]:
            found = _in_order(self._kept(session).journal.get(run_id, {}))
            started = [at for at, row in enumerate(found) if row.number and row.number <= after + 1]
            found = found[started[-1] if started and after else 0 :]
            found = [row for row in found if marks or row.number != A_MARK]
            return found if most is None else found[: most + 1]

        return self._done(read)

    def delete(self, session: str) -> Future[None]:
        """See `Store.delete`."""
        return self._done(self._delete, session)

    def get(self, key: str) -> Future[bytes | None]:
        """See `Store.get`."""
        return self._done(self._values.get, key)

    def put(self, key: str, value: bytes) -> Future[None]:
        """See `Store.put`."""
        return self._done(self._values.__setitem__, key, value)

    def close(self) -> Future[None]:
        """See `Store.close`."""
        return self._done(lambda: None)

    # --- The rules ----------------------------------------------------------------------------------------------

    def _kept(self, session: str) -> _Kept:
        kept = self._sessions.get(session)
        if kept is None:
            raise SessionNotFound(f"There is no session {session!r} in memory.")
        return kept

    def _info(self, session: str) -> SessionInfo:
        kept = self._kept(session)
        return structs.replace(kept.info, expires_in=max(0.0, kept.expires - self._clock()))

    def _held(self, lease: Lease) -> _Kept:
        kept = self._sessions.get(lease.session)
        if kept is None or kept.info.id != lease.session_id or kept.info.fence != lease.fence:
            raise LeaseLost(f"Somebody else writes session {lease.session!r} now.")
        return kept

    def _acquire(self, session: str, holder: Holder, seconds: float, known: int | None) -> Taken:
        now = self._clock()
        if session not in self._sessions:
            self._sessions[session] = _Kept(SessionInfo(session, uuid.uuid4().hex, now, now, 0, 0, 0))
        check_free(self._info(session), holder)
        kept = self._sessions[session]
        kept.info = structs.replace(kept.info, fence=kept.info.fence + 1, holder=holder)
        kept.expires = now + seconds
        lease = Lease(session, kept.info.id, kept.info.fence, kept.info.revision, seconds, holder.owner)
        return Taken(lease, None if lease.revision == known else self._load(session))

    def _renew(self, lease: Lease) -> None:
        self._held(lease).expires = self._clock() + lease.seconds

    def _release(self, lease: Lease) -> None:
        try:
            kept = self._held(lease)
        except LeaseLost:
            return
        kept.info, kept.expires = structs.replace(kept.info, holder=None), 0.0

    def _write(self, lease: Lease, batch: Batch) -> int:
        kept = self._held(lease)
        run_id = batch.run_id
        if batch.begin is not None:
            kept.runs.setdefault(run_id, RunRecord(run_id, batch.begin.agent, batch.begin.started, "running"))
        rows = kept.journal.setdefault(run_id, {})
        for number, row in enumerate(batch.rows(), batch.first_row):
            rows.setdefault(number, row)
        if batch.rewrites:
            kept.messages = {at: kept.messages[at] for at in kept.messages if at < batch.first_message}
            kept.messages.update(enumerate(batch.payloads(), batch.first_message))
        kept.values.update(batch.values)
        end, run = batch.end, kept.runs.get(run_id)
        if end is not None and run is not None:
            kept.runs[run_id] = structs.replace(
                run, status=end.status, reason=end.reason, ended=end.ended, detail=end.detail
            )
        kept.info = structs.replace(
            kept.info, revision=kept.info.revision + 1, updated=self._clock(), length=len(kept.messages)
        )
        kept.expires = self._clock() + lease.seconds
        if batch.release:
            self._release(lease)
        return kept.info.revision

    def _load(self, session: str) -> Snapshot:
        kept = self._kept(session)
        running = sorted((run for run in kept.runs.values() if run.status == "running"), key=lambda run: run.started)
        unfinished = {run.run_id: _payloads(kept.journal.get(run.run_id, {})) for run in running}
        return Snapshot(self._info(session), _in_order(kept.messages), unfinished, dict(kept.values))

    def _delete(self, session: str) -> None:
        check_free(self._info(session), None)
        del self._sessions[session]


def _in_order(rows: dict[int, _T]) -> list[_T]:
    return [rows[number] for number in sorted(rows)]


def _payloads(rows: dict[int, Row]) -> list[bytes]:
    return [row.payload for row in _in_order(rows)]
