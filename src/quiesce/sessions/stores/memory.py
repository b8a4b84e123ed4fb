"""A store in memory, for tests and for sessions that need not last."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from msgspec import Struct, field, structs

from ...errors import LeaseLost, SessionNotFound
from ..journal.rows import Row
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
)
from .content import AddedLate, Created, Record, RunDeleted, SessionContent, as_record

_T = TypeVar("_T")
# When a withdrawn position expired, on any clock.
_LONG_AGO: Final = -1e12


class Waiting(Struct):
    """A queued prompt, and when its position expires."""

    prompt: QueuedPrompt
    expires: float


class HeldSession(Struct):
    """A session: its content, its lease and its queue."""

    name: str
    content: SessionContent
    fence: int = 0
    holder: Holder | None = None
    expires: float = 0.0
    queue: dict[int, Waiting] = field(default_factory=dict[int, Waiting])


class MemoryStore:
    """Sessions that last as long as this object. `clock` is what leases expire by."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._sessions: Final[dict[str, HeldSession]] = {}
        self._subscribers: Final = Subscribers()
        self._last_position = 0

    @property
    def url(self) -> str:
        """Where this is."""
        return "memory"

    def __repr__(self) -> str:
        return "MemoryStore()"

    def _submit(self, function: Callable[..., _T], *args: Any, notify: str | None = None) -> Future[_T]:
        """Call a function, one at a time; then notify the subscribers of a session."""
        outcome: Future[_T] = Future()
        try:
            with self._lock:
                outcome.set_result(function(*args))
        except Exception as error:
            outcome.set_exception(error)
        else:
            if notify is not None:
                self._subscribers.tell(notify)
        return outcome

    # --- Coordination -------------------------------------------------------------------------------------------

    def acquire(
        self, session: str, holder: Holder, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession]:
        """See `Coordination.acquire`."""
        return self._submit(self._acquire, session, AcquireRequest(holder, seconds, known))  # pyright: ignore[reportReturnType]

    def acquire_queued(
        self, session: str, holder: Holder, position: int, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession | SentElsewhere]:
        """See `Coordination.acquire_queued`."""
        return self._submit(self._acquire, session, AcquireRequest(holder, seconds, known, position))

    def renew(self, lease: Lease) -> Future[None]:
        """See `Coordination.renew`."""
        return self._submit(self._renew, lease)

    def release(self, lease: Lease) -> Future[None]:
        """See `Coordination.release`."""
        return self._submit(self._release, lease, notify=lease.session)

    def enqueue(self, session: str, request: QueueRequest) -> Future[int]:
        """See `Coordination.enqueue`."""
        return self._submit(self._enqueue, session, request, notify=session)

    def withdraw(self, session: str, position: int) -> Future[SentElsewhere | None]:
        """See `Coordination.withdraw`."""
        return self._submit(self._withdraw, session, position, notify=session)

    def queued_prompts(self, lease: Lease) -> Future[list[QueuedPrompt]]:
        """See `Coordination.queued_prompts`."""
        return self._submit(lambda: self._queued_prompts(self._held(lease)))

    def take_prompt(self, lease: Lease, position: int, run_id: str) -> Future[bool]:
        """See `Coordination.take_prompt`."""
        return self._submit(lambda: _set_taken_by(self._held(lease), position, run_id))

    def return_prompts(self, lease: Lease, positions: Sequence[int]) -> Future[list[int]]:
        """See `Coordination.return_prompts`."""

        def return_them() -> list[int]:
            held = self._held(lease)
            return [position for position in positions if not _set_taken_by(held, position, "")]

        return self._submit(return_them)

    def subscribe(self, session: str, function: Callable[[], None]) -> Callable[[], None]:
        """See `Coordination.subscribe`."""
        return self._subscribers.add(session, function)

    # --- Reading and writing ------------------------------------------------------------------------------------

    def load(self, session: str) -> Future[Snapshot]:
        """See `SessionStore.load`."""
        return self._submit(lambda: self._snapshot(self._existing(session)))

    def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
        """See `SessionStore.write`."""
        changes_queue = batch.release or batch.sent_prompts
        return self._submit(self._write, lease, batch, notify=lease.session if changes_queue else None)

    def add_late(self, session_id: str, run_id: str, payload: bytes) -> Future[bool]:
        """See `SessionStore.add_late`."""
        return self._submit(self._add_late, session_id, AddedLate(run_id, payload))

    def sessions(self) -> Future[list[SessionInfo]]:
        """See `SessionStore.sessions`."""

        def read() -> list[SessionInfo]:
            infos = [self._info(held) for held in self._all()]
            return sorted(infos, key=lambda info: (-info.updated, info.name))

        return self._submit(read)

    def runs(self, session: str) -> Future[list[RunRecord]]:
        """See `SessionStore.runs`."""
        return self._submit(self._runs, session)

    def rows(
        self, session: str, run_id: str, *, after: int = 0, most: int | None = None, marks: bool = False
    ) -> Future[list[Row]]:
        """See `SessionStore.rows`."""
        return self._submit(lambda: self._existing(session).content.rows(run_id, after, most, marks=marks))

    def find_run(self, run_id: str) -> Future[list[str]]:
        """See `SessionStore.find_run`."""
        return self._submit(lambda: [held.name for held in self._all() if held.content.has_run(run_id)])

    def delete_run(self, session: str, run_id: str) -> Future[None]:
        """See `SessionStore.delete_run`."""
        return self._submit(self._delete_run, session, RunDeleted(run_id))

    def delete(self, session: str) -> Future[None]:
        """See `SessionStore.delete`."""
        return self._submit(self._delete, session)

    def close(self) -> Future[None]:
        """See `SessionStore.close`."""
        return self._submit(lambda: None)

    # --- Where the content is: here in memory, in `LocalStore` in another store too -----------------------------

    def _all(self) -> Iterable[HeldSession]:
        return self._sessions.values()

    def _find(self, session: str) -> HeldSession | None:
        return self._sessions.get(session)

    def _create(self, session: str, created: Created) -> HeldSession:
        return self._sessions.setdefault(session, HeldSession(session, SessionContent(created)))

    def _save(self, held: HeldSession, record: Record) -> None:
        held.content.apply(record)

    # --- The rules ----------------------------------------------------------------------------------------------

    def _existing(self, session: str) -> HeldSession:
        held = self._find(session)
        if held is None:
            raise SessionNotFound(f"There is no session {session!r}.")
        return held

    def _held(self, lease: Lease) -> HeldSession:
        held = self._find(lease.session)
        if held is None or held.content.created.id != lease.session_id or held.fence != lease.fence:
            raise LeaseLost(f"Another process writes session {lease.session!r} now.")
        return held

    def _ensure_session(self, session: str) -> HeldSession:
        return self._find(session) or self._create(session, Created(uuid.uuid4().hex, self._clock()))

    def _info(self, held: HeldSession) -> SessionInfo:
        content, expires_in = held.content, max(0.0, held.expires - self._clock())
        return SessionInfo(
            *(held.name, content.created.id, content.created.at, content.updated, content.length, content.revision),
            *(held.fence, held.holder, expires_in),
        )

    def _runs(self, session: str) -> list[RunRecord]:
        return self._existing(session).content.runs()

    def _snapshot(self, held: HeldSession) -> Snapshot:
        in_order, messages = held.content.messages()
        return Snapshot(self._info(held), messages, held.content.unfinished(), dict(held.content.values), in_order)

    def _queued_prompts(self, held: HeldSession) -> list[QueuedPrompt]:
        now = self._clock()
        return [structs.replace(each.prompt, expires_in=each.expires - now) for each in held.queue.values()]

    def _enqueue(self, session: str, request: QueueRequest) -> int:
        held = self._ensure_session(session)
        self._last_position += 1
        prompt = QueuedPrompt(self._last_position, request.kind, request.sender, held.fence, 0.0, request.body)
        held.queue[prompt.position] = Waiting(prompt, self._clock() + request.seconds)
        return prompt.position

    def _withdraw(self, session: str, position: int) -> SentElsewhere | None:
        held = self._sessions.get(session)
        if held is None or position not in held.queue:
            return None
        waiting = held.queue[position]
        waiting.expires = _LONG_AGO
        prompt = waiting.prompt
        may_be_sent = prompt.taken_by and (prompt.sent_in or prompt.fence == held.fence)
        return SentElsewhere(prompt.taken_by) if may_be_sent else None

    def _acquire(self, session: str, request: AcquireRequest) -> AcquiredSession | SentElsewhere:
        held, now, position = self._ensure_session(session), self._clock(), request.position
        info, queue = self._info(held), held.queue
        busy, sent_in, orphaned, since = decide_lease(info, self._queued_prompts(held), request.holder, position)
        for each in orphaned:
            queue.pop(each, None)
        if busy is not None:
            if position in queue:
                queue[position].expires = now + request.seconds
            raise busy
        if sent_in:  # the prompt stays until the process that queued it has read this, and withdraws it
            return SentElsewhere(sent_in)
        if position is not None:
            queue.pop(position, None)
        held.fence, held.holder, held.expires = held.fence + 1, request.holder, now + request.seconds
        lease = Lease(session, info.id, held.fence, info.revision, request.seconds, request.holder.owner, since)
        return AcquiredSession(lease, None if lease.revision == request.known else self._snapshot(held))

    def _renew(self, lease: Lease) -> None:
        self._held(lease).expires = self._clock() + lease.seconds

    def _release(self, lease: Lease) -> None:
        held = self._sessions.get(lease.session)
        if held is not None and held.content.created.id == lease.session_id and held.fence == lease.fence:
            held.holder, held.expires = None, 0.0

    def _write(self, lease: Lease, batch: WriteBatch) -> int:
        held = self._held(lease)
        record = as_record(batch, self._clock())
        if not held.content.holds(record):
            self._save(held, record)
            for position, sent_in in batch.sent_prompts.items():
                if position in held.queue:
                    held.queue[position].prompt = structs.replace(held.queue[position].prompt, sent_in=sent_in)
        revision, held.expires = held.content.revision, self._clock() + lease.seconds
        if batch.release:
            self._release(lease)
        return revision

    def _add_late(self, session_id: str, record: AddedLate) -> bool:
        names = [name for name, held in self._sessions.items() if held.content.created.id == session_id]
        held = self._find(names[0]) if names else None
        if held is None or not held.content.has_run(record.run_id):
            return False
        if not held.content.holds(record):
            self._save(held, record)
        return True

    def _delete_run(self, session: str, record: RunDeleted) -> None:
        held = self._existing(session)
        if not held.content.holds(record):
            self._save(held, record)
            if held.holder is None:  # a write of the run that lands late would bring it back
                held.fence += 1

    def _delete(self, session: str) -> None:
        busy = decide_lease(self._info(self._existing(session)), (), None, None).busy
        if busy is not None:
            raise busy
        del self._sessions[session]


def _set_taken_by(held: HeldSession, position: int, run_id: str) -> bool:
    """Note the run that will send a prompt, or with "" that none will. False when the prompt was withdrawn."""
    waiting = held.queue.get(position)
    if waiting is None or waiting.expires == _LONG_AGO:
        return False
    waiting.prompt = structs.replace(waiting.prompt, taken_by=run_id)
    return True
