"""A conversation with a name, in a store: it outlives the process."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from ..conversation.conversation import Conversation, ConversationState
from ..conversation.sealing import DEFAULT_CUT_NOTE, faults
from ..errors import ConfigurationError, SessionNotFound, StoreDamaged, StoreError
from ..interrupts import Answers, Interrupt, PendingTurn
from ..messages import Message
from ..receipt import Receipt
from .journal.journal import Journal
from .journal.recovery import Crash, Torn
from .journal.rows import NumberedEvent, Row, decode_messages, decode_row, encode, late_outcomes, unpack
from .journal.run_host import RunHost
from .queue.waiting import Applicant, Wish
from .records import Batch, Lease, RunBegin, RunEnd, RunRecord, Said, Snapshot
from .store import Store
from .stores.resolve import resolve_store

OnStoreFailure: TypeAlias = Literal["stop", "continue"]

# Where a turn that waits for a person is kept.
PENDING: Final = "conversation.pending"
# A lease is renewed while a run goes on; after a crash, others wait this long unless they can see that it is dead.
LEASE: Final = 30.0


class Session(Conversation):
    """A named conversation in a store, in memory as well while it is used here.

    name               what it is called in the store
    store              a `Store`, a path, or a URL such as "postgresql://..."; the user's own SQLite file by default
    wait               seconds to wait for a session that another process has, before `SessionBusy`
    lease              seconds after which a process that no longer renews its lease is taken for dead
    on_store_failure   "stop" a run that cannot be saved any more, or "continue" it in memory

    Raises `ConfigurationError` for anything that cannot work.
    """

    def __init__(
        self,
        name: str,
        store: object = None,
        *,
        wait: float = 0.0,
        lease: float = LEASE,
        on_store_failure: OnStoreFailure = "stop",
    ) -> None:
        super().__init__()
        self.name: Final = _checked_name(name)
        self.store: Final[Store] = resolve_store(store)
        self.wait: Final = _checked_seconds("session_wait", wait, least=0.0)
        self.lease: Final = _checked_seconds("lease", lease, least=0.001)
        if on_store_failure not in get_args(OnStoreFailure):
            raise ConfigurationError(f"on_store_failure={on_store_failure!r}.", todo="Use 'stop' or 'continue'.")
        self.on_store_failure: Final[OnStoreFailure] = on_store_failure
        self.crashes: tuple[Crash, ...] = ()
        """The runs that were found to have crashed when the session was last opened here."""
        self._saved: tuple[Message, ...] = ()
        self._stored_id: str | None = None
        self._owner: Final = uuid.uuid4().hex
        self._revision: int | None = None
        self._fence = 0
        self._behind: str | None = None
        self._not_pending = False
        self._journal: Journal | None = None
        self._applicant: Applicant | None = None

    def __repr__(self) -> str:
        return f"<Session {self.name!r} in {self.store.url}>"

    @property
    def id(self) -> str:
        """What tells this conversation from all others, in every process; known once it was opened."""
        return self._stored_id or super().id

    @property
    def must_be_opened(self) -> bool:
        """A session belongs to its store: a run takes it there first."""
        return True

    @property
    def saved(self) -> int:
        """How many messages the store is known to have."""
        return len(self._saved)

    # --- Reading without holding --------------------------------------------------------------------------------

    async def load(self) -> tuple[Message, ...]:
        """Read the conversation as it is stored now. What a run left that is not at rest is shown as if sealed.

        Raises a `StoreError`. Changes nothing in the store; while a run of this process holds it, nothing at all.
        """
        return self._show(await asyncio.wrap_future(self.store.load(self.name)))

    def load_sync(self) -> tuple[Message, ...]:
        """`load()`, for code without an event loop. It blocks."""
        return self._show(self.store.load(self.name).result())

    async def events(self, run_id: str, *, after: int = 0) -> list[NumberedEvent]:
        """The events of a run that are stored, after number `after`: each with the number that live readers got it by.

        Events are numbered from 1. Those of a run that is at rest end with `RunEnded`, unless it crashed. Raises a
        `StoreError`.
        """
        rows = self.store.rows(self.name, run_id, after=after)
        return list(unpack(await asyncio.wrap_future(rows), after))

    async def receipt(self, run_id: str) -> Receipt | None:
        """The receipt of a run as it is stored, with what became known after its end; None for a run without one.

        A run that goes on has none yet, and one that crashed never had. Raises a `StoreError`.
        """
        for run in await asyncio.wrap_future(self.store.runs(self.name)):
            if run.run_id == run_id:
                rows = await asyncio.wrap_future(self.store.rows(self.name, run_id, marks=True))
                return stored_receipt(run, rows)
        return None

    def _show(self, snapshot: Snapshot) -> tuple[Message, ...]:
        messages, pending = decode_messages(snapshot.messages), _pending_in(snapshot)
        for run_id, rows in snapshot.unfinished.items():
            torn = Torn(run_id, messages, pending, map(decode_row, rows))
            messages, pending = torn.conversation()
        if self.holder is None and self._behind is None:
            self._state, self._revision = ConversationState(messages, pending), None
            self._stored_id = snapshot.info.id
        return messages

    # --- Writing: for the run that holds it ---------------------------------------------------------------------

    def append(self, *messages: Message, replacing: int = 0) -> None:
        """Add messages, all in one step. The run's journal brings them into the store."""
        was_pending = self._state.pending is not None
        super().append(*messages, replacing=replacing)
        if self._journal is not None:
            self._journal.commit(messages, replacing=replacing)
            if was_pending:
                self._journal.set_value(PENDING, b"null")

    def suspend(self, pending: PendingTurn, *, replacing: int = 0) -> None:
        """Keep a turn that waits for a person, also for another process."""
        super().suspend(pending, replacing=replacing)
        if self._journal is not None:
            self._journal.commit((), replacing=replacing)
            self._journal.set_value(PENDING, encode(pending))

    def take_pending(self, answers: Answers, run_id: str) -> PendingTurn:
        """The pending turn with answers in it, for the run that goes on with it."""
        taken = super().take_pending(answers, run_id)
        if self._journal is not None:
            self._journal.commit(())
            self._journal.set_value(PENDING, encode(taken))
        return taken

    def cancel_pending(self, note: str = DEFAULT_CUT_NOTE) -> tuple[Interrupt, ...]:
        """Do not wait for the person any longer. The store hears of it with the next run."""
        asked = super().cancel_pending(note)
        if asked:
            self._not_pending, self._revision = True, None
        return asked

    # --- For the run's journal ----------------------------------------------------------------------------------

    def journal(self, host: RunHost) -> Journal:
        """The journal of the run that holds the session."""
        self._journal = Journal(self, host)
        return self._journal

    def release(self, run_id: str) -> None:
        """Give the session back. What could not be saved is forgotten here too, unless the run was to go on anyway."""
        if self.holder == run_id:
            left, self._journal = self._journal, None
            if left is not None and not left.all_saved:
                self._revision = None
                if left.opened and self.on_store_failure == "continue":
                    self._behind = run_id
                elif self._behind is None:
                    self._state = ConversationState(self._saved)
        super().release(run_id)

    async def open(self, patient: asyncio.Future[None], wish: Wish | None = None) -> Lease | Said:
        """Take the lease, and bring what is here up to date with the store. `patient` is done when time is up.

        `wish` says what to do when somebody else has it; `Said` means that the words of it were said by them. Seals
        what a crash has torn. Raises `SessionBusy` or another `StoreError`.
        """
        self._applicant = Applicant(self, self._owner, self._revision, wish or Wish())
        taken = await self._applicant.get(patient)
        if wish is None or isinstance(taken, Said):
            self._applicant.stop_watching()
        if isinstance(taken, Said):
            return taken
        try:
            if taken.snapshot is not None:
                await self._take_over(taken.lease, taken.snapshot)
        except BaseException:
            self._applicant.stop_watching()
            self.store.release(taken.lease)
            raise
        self._stored_id, self._fence = taken.lease.session_id, taken.lease.fence
        return taken.lease

    def stop_watching(self) -> bool:
        """The journal looks at the session's letters itself from now on. Whether one may have come before that."""
        return self._applicant is not None and self._applicant.stop_watching()

    @property
    def place(self) -> int | None:
        """The place in the store's line of a run that waits here for the session, when it has one."""
        return None if self._applicant is None else self._applicant.place

    @property
    def in_line(self) -> bool:
        """Whether a run here waits, or begins to wait, in line for the session, which somebody else has."""
        return self._applicant is not None and self._applicant.in_line

    def opened(self) -> None:
        """The journal takes what is written from now on."""
        if self._not_pending:
            self._not_pending = False
            if self.pending is not None:
                self.drop_pending()

    async def _take_over(self, lease: Lease, snapshot: Snapshot) -> None:
        """What is stored, sealed where a crash has torn it, becomes what is here."""
        revision = snapshot.info.revision
        crashes: list[Crash] = []
        if self._behind is not None and lease.fence == self._fence + 1:
            revision = await self._catch_up(lease, self._behind)
            snapshot.unfinished.pop(self._behind, None)
            stored, pending = self._state.messages, self._state.pending
        else:
            stored, pending = decode_messages(snapshot.messages), _pending_in(snapshot)
        for run_id, rows in snapshot.unfinished.items():
            torn = Torn(run_id, stored, pending, map(decode_row, rows))
            crash = Crash(run_id, torn.unknown, torn.kept_text)
            batch = _rewriting(run_id, stored, torn.conversation())
            batch.end = RunEnd("crashed", "crashed", time.time(), encode(crash))
            revision = await asyncio.wrap_future(self.store.write(lease, batch))
            stored, pending = torn.conversation()
            crashes.append(crash)
        found = faults(stored)
        if found:
            raise StoreDamaged(f"Session {self.name!r} is not a valid conversation: {'; '.join(found[:3])}.")
        self._state, self._saved = ConversationState(stored, pending), stored
        self._revision, self._behind = revision, None
        self.crashes, self.values = tuple(crashes), dict(snapshot.values)

    async def _catch_up(self, lease: Lease, run_id: str) -> int:
        """Save what an earlier run left in memory only. For when nobody else has written since."""
        batch = _rewriting(run_id, self._saved, (self._state.messages, self._state.pending))
        batch.begin = RunBegin("", time.time())
        batch.end = RunEnd("ended", "saved late", time.time())
        return await asyncio.wrap_future(self.store.write(lease, batch))

    def wrote(self, batch: Batch, revision: int) -> None:
        """A batch is in the store."""
        self._revision = revision
        if batch.rewrites:
            self._saved = (*self._saved[: batch.first_message], *batch.messages)


def stored_receipt(run: RunRecord, rows: Iterable[Row]) -> Receipt | None:
    """The receipt of a run, from its record and its journal."""
    if run.status != "ended":
        return None
    try:
        receipt = msgspec.json.decode(run.detail, type=Receipt | None)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"The receipt of run {run.run_id} cannot be read: {error}.") from error
    if receipt is not None:
        receipt.late.extend(late_outcomes(rows))
    return receipt


def _pending_in(snapshot: Snapshot) -> PendingTurn | None:
    found = snapshot.values.get(PENDING, b"null")
    try:
        return msgspec.json.decode(found, type=PendingTurn | None)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise StoreDamaged(f"What waits for a person cannot be read: {error}.") from error


def _rewriting(
    run_id: str, before: tuple[Message, ...], after: tuple[tuple[Message, ...], PendingTurn | None]
) -> Batch:
    """A batch that makes of one state of the conversation another."""
    messages, pending = after
    same = 0
    while same < min(len(before), len(messages)) and before[same] is messages[same]:
        same += 1
    batch = Batch(run_id)
    batch.first_message, batch.messages = same, list(messages[same:])
    batch.cuts = same < len(before)
    batch.values = {PENDING: encode(pending)}
    return batch


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise ConfigurationError(
            f"A session cannot be named {name[:50]!r}.", todo="Use up to 200 printable characters, not all blank."
        )
    return name


def _checked_seconds(what: str, seconds: float, *, least: float) -> float:
    if not least <= seconds < float("inf"):
        raise ConfigurationError(f"{what}={seconds!r} makes no sense.", todo="Use a number of seconds.")
    return seconds


__all__ = ["LEASE", "OnStoreFailure", "Session", "SessionNotFound", "StoreError"]
