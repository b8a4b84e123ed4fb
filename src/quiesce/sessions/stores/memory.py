"""A store in memory: the rules of all stores in their simplest form, for tests and for sessions that need not last."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from msgspec import Struct, field, structs

from ...errors import LeaseLost, SessionNotFound
from ..journal.rows import A_MARK, LATE_ROWS, Row
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

_T = TypeVar("_T")
# When the place of a sender who has left expired, on any clock.
_LONG_AGO: Final = 1e12


class _Kept(Struct):
    """Everything about one session."""

    info: SessionInfo
    expires: float = 0.0
    messages: dict[int, bytes] = field(default_factory=dict[int, bytes])
    runs: dict[str, RunRecord] = field(default_factory=dict[str, RunRecord])
    journal: dict[str, dict[int, Row]] = field(default_factory=dict[str, dict[int, Row]])
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    queued_prompts: dict[int, tuple[QueuedPrompt, float]] = field(default_factory=dict[int, tuple[QueuedPrompt, float]])


class MemoryStore:
    """Sessions that last as long as this object. `clock` is what leases expire by."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._sessions: Final[dict[str, _Kept]] = {}
        self._subscribers: Final = Subscribers()
        self._last_position = 0

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

    def acquire(
        self, session: str, holder: Holder, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession]:
        """See `Store.acquire`."""
        return self._done(self._acquire, session, AcquireRequest(holder, seconds, known))  # pyright: ignore[reportReturnType]

    def enqueue(self, session: str, request: QueueRequest) -> Future[int]:
        """See `Store.enqueue`."""
        return self._then_notify(session, self._enqueue, session, request)

    def acquire_queued(
        self, session: str, holder: Holder, position: int, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession | SentElsewhere]:
        """See `Store.acquire_queued`."""
        return self._done(self._acquire, session, AcquireRequest(holder, seconds, known, position))

    def withdraw(self, session: str, position: int) -> Future[SentElsewhere | None]:
        """See `Store.withdraw`."""
        return self._then_notify(session, self._withdraw, session, position)

    def queued_prompts(self, lease: Lease) -> Future[list[QueuedPrompt]]:
        """See `Store.queued_prompts`."""
        return self._done(lambda: self._queued_prompts(self._held(lease)))

    def take_prompt(self, lease: Lease, position: int, run_id: str) -> Future[bool]:
        """See `Store.take_prompt`."""

        def take() -> bool:
            queued_prompts = self._held(lease).queued_prompts
            prompt, expires = queued_prompts.get(position, (None, -_LONG_AGO))
            if prompt is None or expires == -_LONG_AGO:
                return False
            queued_prompts[position] = (structs.replace(prompt, taken_by=run_id), expires)
            return True

        return self._done(take)

    def return_prompts(self, lease: Lease, positions: Sequence[int]) -> Future[list[int]]:
        """See `Store.return_prompts`."""

        def give_back() -> list[int]:
            queued_prompts = self._held(lease).queued_prompts
            there = {
                position for position in positions if queued_prompts.get(position, (None, -_LONG_AGO))[1] != -_LONG_AGO
            }
            for position in there:
                prompt, expires = queued_prompts[position]
                queued_prompts[position] = (structs.replace(prompt, taken_by=""), expires)
            return [position for position in positions if position not in there]

        return self._done(give_back)

    def subscribe(self, session: str, function: Callable[[], None]) -> Callable[[], None]:
        """See `Store.subscribe`."""
        return self._subscribers.add(session, function)

    def _then_notify(self, session: str, function: Callable[..., Any], *args: Any) -> Future[Any]:
        outcome = self._done(function, *args)
        if outcome.exception() is None:
            self._subscribers.tell(session)
        return outcome

    def renew(self, lease: Lease) -> Future[None]:
        """See `Store.renew`."""
        return self._done(self._renew, lease)

    def release(self, lease: Lease) -> Future[None]:
        """See `Store.release`."""
        return self._then_notify(lease.session, self._release, lease)

    def load(self, session: str) -> Future[Snapshot]:
        """See `Store.load`."""
        return self._done(self._load, session)

    def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
        """See `Store.write`."""
        if batch.release or batch.sent_prompts:
            return self._then_notify(lease.session, self._write, lease, batch)
        return self._done(self._write, lease, batch)

    def add_late(self, session_id: str, run_id: str, payload: bytes) -> Future[bool]:
        """See `Store.add_late`."""

        def add() -> bool:
            for kept in self._sessions.values():
                if kept.info.id == session_id and run_id in kept.runs:
                    rows = kept.journal.setdefault(run_id, {})
                    if payload not in _payloads(rows):
                        rows[max((LATE_ROWS, *rows)) + 1] = Row(payload, A_MARK)
                    return True
            return False

        return self._done(add)

    def sessions(self) -> Future[list[SessionInfo]]:
        """See `Store.sessions`."""
        return self._done(lambda: sorted(map(self._info, self._sessions), key=lambda info: (-info.updated, info.name)))

    def runs(self, session: str) -> Future[list[RunRecord]]:
        """See `Store.runs`."""
        return self._done(lambda: sorted(self._kept(session).runs.values(), key=lambda run: (run.started, run.run_id)))

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
            raise LeaseLost(f"Another process writes session {lease.session!r} now.")
        return kept

    def _ensure_session(self, session: str) -> _Kept:
        now = self._clock()
        if session not in self._sessions:
            self._sessions[session] = _Kept(SessionInfo(session, uuid.uuid4().hex, now, now, 0, 0, 0))
        return self._sessions[session]

    def _queued_prompts(self, kept: _Kept) -> list[QueuedPrompt]:
        now = self._clock()
        return [structs.replace(prompt, expires_in=expires - now) for prompt, expires in kept.queued_prompts.values()]

    def _enqueue(self, session: str, request: QueueRequest) -> int:
        kept = self._ensure_session(session)
        self._last_position += 1
        prompt = QueuedPrompt(self._last_position, request.kind, request.sender, kept.info.fence, 0.0, request.body)
        kept.queued_prompts[prompt.position] = (prompt, self._clock() + request.seconds)
        return prompt.position

    def _withdraw(self, session: str, position: int) -> SentElsewhere | None:
        kept = self._sessions.get(session)
        if kept is None or position not in kept.queued_prompts:
            return None
        prompt, _ = kept.queued_prompts[position]
        kept.queued_prompts[position] = (prompt, -_LONG_AGO)
        return SentElsewhere(prompt.taken_by) if prompt.taken_by else None

    def _acquire(self, session: str, entry: AcquireRequest) -> AcquiredSession | SentElsewhere:
        kept, now, position = self._ensure_session(session), self._clock(), entry.position
        busy, sent_in, orphaned, since = decide_lease(
            self._info(session), self._queued_prompts(kept), entry.holder, position
        )
        for each in orphaned:
            kept.queued_prompts.pop(each, None)
        if busy is not None:
            if position is not None and position in kept.queued_prompts:
                kept.queued_prompts[position] = (kept.queued_prompts[position][0], now + entry.seconds)
            raise busy
        if sent_in:  # the letter stays until its sender has heard that, and leaves
            return SentElsewhere(sent_in)
        if position is not None:
            kept.queued_prompts.pop(position, None)
        kept.info = structs.replace(kept.info, fence=kept.info.fence + 1, holder=entry.holder)
        kept.expires = now + entry.seconds
        info = kept.info
        lease = Lease(session, info.id, info.fence, info.revision, entry.seconds, entry.holder.owner, since)
        return AcquiredSession(lease, None if lease.revision == entry.known else self._load(session))

    def _renew(self, lease: Lease) -> None:
        self._held(lease).expires = self._clock() + lease.seconds

    def _release(self, lease: Lease) -> None:
        try:
            kept = self._held(lease)
        except LeaseLost:
            return
        kept.info, kept.expires = structs.replace(kept.info, holder=None), 0.0

    def _write(self, lease: Lease, batch: WriteBatch) -> int:
        kept = self._held(lease)
        run_id = batch.run_id
        if batch.begin is not None:
            kept.runs.setdefault(run_id, RunRecord(run_id, batch.begin.agent, batch.begin.started, "running"))
        rows = kept.journal.setdefault(run_id, {})
        if _is_written(kept, batch):
            return kept.info.revision
        rows.update(enumerate(batch.rows(), batch.first_row))
        if batch.rewrites:
            kept.messages = {at: kept.messages[at] for at in kept.messages if at < batch.first_message}
            kept.messages.update(enumerate(batch.payloads(), batch.first_message))
        kept.values.update(batch.values)
        for position, sent_in in batch.sent_prompts.items():
            if position in kept.queued_prompts:
                prompt, expires = kept.queued_prompts[position]
                kept.queued_prompts[position] = (structs.replace(prompt, sent_in=sent_in), expires)
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
        in_order, messages = up_to_gap(sorted(kept.messages.items()))
        return Snapshot(self._info(session), messages, unfinished, dict(kept.values), in_order)

    def _delete(self, session: str) -> None:
        busy = decide_lease(self._info(session), (), None, None).busy
        if busy is not None:
            raise busy
        del self._sessions[session]


def _is_written(kept: _Kept, batch: WriteBatch) -> bool:
    """Whether a batch is there already. There may be others after it by now, which it must not undo."""
    if batch.rows():
        return batch.first_row in kept.journal[batch.run_id]
    run = kept.runs.get(batch.run_id)
    return batch.end is not None and run is not None and run.status != "running"


def _in_order(rows: dict[int, _T]) -> list[_T]:
    return [rows[number] for number in sorted(rows)]


def _payloads(rows: dict[int, Row]) -> list[bytes]:
    return [row.payload for row in _in_order(rows)]
