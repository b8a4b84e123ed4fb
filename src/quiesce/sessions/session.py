"""A conversation with a name, in a store: it outlives the process."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from .._exact import exact_text
from .._threads.seconds import checked_seconds
from ..conversation.conversation import TASK, Conversation, ConversationState
from ..conversation.sealing import DEFAULT_CUT_NOTE, close_turn
from ..errors import (
    ConfigurationError,
    ConversationBusy,
    SessionNotFound,
    StateNotSaved,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from ..interrupts import Answers, ArgumentCheck, Interrupt, PendingCall, PendingTurn
from ..messages import Message
from ..receipt import Receipt
from ..task import Task
from .damage import PENDING, StoredConversation, damaged, read_undamaged, read_whole
from .journal import journal
from .journal.buffer import WRITER
from .journal.journal import Journal
from .journal.recovery import CRASH_NOTE, Crash, Sealing, seal_unfinished, set_messages
from .journal.rows import NumberedEvent, Row, encode, late_outcomes, unpack
from .journal.run_host import RunHost
from .queue.busy_policy import BusyPolicy
from .queue.waiting import SessionWaiter, observed
from .records import AcquiredSession, Lease, RunEnd, RunRecord, SentElsewhere, Snapshot, WriteBatch, holder
from .state import STATE, read_state, unsavable
from .store import SessionStore
from .stores.resolve import resolve_store

OnStoreFailure: TypeAlias = Literal["stop", "continue"]

# A lease is renewed while a run goes on. After a crash other processes wait this long, unless they see that it is dead.
LEASE: Final = 30.0
# Seconds between attempts to write what an earlier run left.
_PAUSE: Final = 0.25
_log: Final = logging.getLogger("quiesce")


class Unsaved(NamedTuple):
    """What a run that went on without its store could not save."""

    run_id: str
    batches: list[WriteBatch]


class _StoredState(msgspec.Struct):
    """What the store is known to hold of a session; `revision` is None when that has to be read again."""

    messages: tuple[Message, ...] = ()
    pending: PendingTurn | None = None
    session_id: str | None = None
    missing: bool = False
    revision: int | None = None
    writer: bytes | None = None
    state: bytes | None = None


class Session(Conversation):
    """A named conversation in a store, in memory as well while it is used here.

    name               what it is called in the store
    store              a `Store`, a path, or a URL such as "postgresql://..."; the user's own SQLite file by default
    wait               seconds to wait for a session that another process holds, before `SessionBusy`
    lease              seconds after which a process that no longer renews its lease counts as dead
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
        self.name: Final = checked_name(name)
        self.store: Final[SessionStore] = resolve_store(store)
        self.wait: Final = checked_seconds("session_wait", wait)
        self.lease: Final = checked_seconds("lease", lease, least=0.001)
        if on_store_failure not in get_args(OnStoreFailure):
            raise ConfigurationError(f"on_store_failure={on_store_failure!r}.", todo="Use 'stop' or 'continue'.")
        self.on_store_failure: Final[OnStoreFailure] = on_store_failure
        self.crashes: tuple[Crash, ...] = ()
        """The runs that were found to have crashed when the session was last opened here."""
        self.damage = ""
        """What is wrong with the stored conversation, as it was last read; empty when nothing is."""
        self._stored: Final = _StoredState()
        self._owner: Final = uuid.uuid4().hex
        self._unsaved: Unsaved | None = None
        self._pending_cancelled = False
        self._journal: Journal | None = None
        self._waiter: SessionWaiter | None = None

    def __repr__(self) -> str:
        return f"<Session {self.name!r} in {self.store.url}>"

    @property
    def id(self) -> str:
        """The id of this conversation, the same in every process; known once it was opened."""
        return self._stored.session_id or super().id

    @property
    def session_name(self) -> str:
        """The name of the session."""
        return self.name

    @property
    def must_be_opened(self) -> bool:
        """True: a run acquires the session from its store first."""
        return True

    @property
    def saved(self) -> int:
        """How many messages the store is known to have."""
        return len(self._stored.messages)

    # --- Reading without holding --------------------------------------------------------------------------------

    @property
    def loaded(self) -> bool:
        """Whether it was read from its store here, by `load()` or by a run. Before, it shows no messages."""
        return self._stored.session_id is not None or self._stored.missing

    async def load(self) -> tuple[Message, ...]:
        """Read the conversation as it is stored now. The turn of an unfinished run is shown as if sealed.

        A damaged conversation is shown up to the damage, which `damage` describes. Changes nothing in the store, and
        nothing here while a run of this process holds the session. Raises a `StoreError`: `SessionNotFound` for one
        that was never saved.
        """
        try:
            snapshot = await asyncio.wrap_future(self.store.load(self.name))
        except SessionNotFound:
            self._stored.missing = True
            raise
        return self._show(snapshot, await asyncio.wrap_future(self.store.runs(self.name)))

    def load_sync(self) -> tuple[Message, ...]:
        """`load()`, for code without an event loop. It blocks."""
        try:
            snapshot = self.store.load(self.name).result()
        except SessionNotFound:
            self._stored.missing = True
            raise
        return self._show(snapshot, self.store.runs(self.name).result())

    async def events(self, run_id: str, *, after: int = 0) -> list[NumberedEvent]:
        """The stored events of a run after number `after`, each with the number that live readers got.

        Numbers begin with 1. A run at rest ends with `RunEnded`, unless it crashed. Raises a `StoreError`.
        """
        rows = self.store.rows(self.name, run_id, after=after)
        return list(unpack(await asyncio.wrap_future(rows), after))

    async def receipt(self, run_id: str) -> Receipt | None:
        """The stored receipt of a run, with late outcomes; None for a run that goes on or has crashed.

        Raises a `StoreError`.
        """
        for run in await asyncio.wrap_future(self.store.runs(self.name)):
            if run.run_id == run_id:
                rows = await asyncio.wrap_future(self.store.rows(self.name, run_id, marks=True))
                return stored_receipt(run, rows)
        return None

    def _show(self, snapshot: Snapshot, runs: list[RunRecord]) -> tuple[Message, ...]:
        found, damage = read_undamaged(snapshot)
        if not damage and snapshot.unfinished:
            try:
                sealings, damage = seal_unfinished(self.name, found, snapshot.unfinished, _writer(snapshot, runs))
                found = sealings[-1].after
            except StoreDamaged as error:
                damage = error.what
        if damage:
            _log.warning("Session %r is damaged, and shown up to there. %s", self.name, damage)
        if self.holder is None and self._unsaved is None:
            self._state, self._stored.revision = ConversationState(*found), None
            self._stored.session_id, self.damage = snapshot.info.id, damage
            self.values = dict(snapshot.values)
            self._read_state(snapshot.values)
            if self._pending_cancelled:
                self.cancel_pending()
        return found.messages

    # --- Writing: for the run that holds it ---------------------------------------------------------------------

    def append(self, *messages: Message, replacing: int = 0) -> None:
        """Add messages, all in one step. The run's journal saves them."""
        was_pending = self._state.pending is not None
        super().append(*messages, replacing=replacing)
        if self._journal is not None:
            self._journal.commit(messages, replacing=replacing)
            self._save_state(self._journal)
            if was_pending:
                self._journal.set_value(PENDING, b"null")

    def suspend(self, pending: PendingTurn, *, replacing: int = 0) -> None:
        """Keep a turn that waits for a person, also for another process."""
        super().suspend(pending, replacing=replacing)
        if self._journal is not None:
            self._journal.commit((), replacing=replacing)
            self._save_state(self._journal)
            self._journal.set_value(PENDING, encode(pending))

    def set_task(self, task: Task) -> None:
        """Set the last task, which is a named value."""
        self.set_value(TASK, encode(task))

    def set_value(self, key: str, value: bytes) -> None:
        """Set a named value, which the run's journal saves with what happens next."""
        super().set_value(key, value)
        if self._journal is not None:
            self._journal.set_value(key, value)

    def take_pending(self, answers: Answers, check: ArgumentCheck, run_id: str) -> PendingTurn:
        """The pending turn with answers in it, for the run that continues it."""
        taken = super().take_pending(answers, check, run_id)
        if self._journal is not None:
            self._journal.commit(())
            self._journal.set_value(PENDING, encode(taken))
        return taken

    def note_answers(self, calls: tuple[PendingCall, ...], run_id: str) -> PendingTurn | None:
        """Note that more calls of the turn are answered. It is saved with the next event."""
        noted = super().note_answers(calls, run_id)
        if self._journal is not None and noted is not None:
            self._journal.set_value(PENDING, encode(noted))
        return noted

    def cancel_pending(self, note: str = DEFAULT_CUT_NOTE) -> tuple[Interrupt, ...]:
        """Stop waiting for the person. This is saved with the next run. A session need not be loaded for it."""
        asked = super().cancel_pending(note)
        self._pending_cancelled |= not self.loaded
        if asked:
            self._pending_cancelled, self._stored.revision = True, None
        return asked

    def _save_state(self, journal: Journal) -> None:
        """Save the state with the messages of the same batch, if it has changed and has a JSON form."""
        if self._shared_state is None or unsavable(self._shared_state) is not None:
            return  # `check_state` fails the run
        encoded = encode(self._shared_state)
        if encoded != self.values.get(STATE, b"{}"):
            journal.set_value(STATE, encoded)

    def check_state(self) -> None:
        """Raises `StateNotSaved` when the state holds what has no JSON form."""
        where = None if self._shared_state is None else unsavable(self._shared_state)
        if where is not None:
            raise StateNotSaved(f"{where} has no JSON form, so the state of session {self.name!r} cannot be saved.")

    def _read_state(self, values: Mapping[str, bytes]) -> None:
        """Show the stored state. If it is the one that was shown before, the state here stays, with its changes."""
        found = values.get(STATE)
        if self._shared_state is None or found != self._stored.state:
            self._show_state(found)
            self._stored.state = found

    def _show_state(self, found: bytes | None) -> None:
        self.replace_state(read_state(found))

    # --- For the run's journal ----------------------------------------------------------------------------------

    def journal(self, host: RunHost) -> Journal:
        """The journal of the run that holds the session."""
        self._journal = Journal(self, host)
        return self._journal

    def release(self, run_id: str) -> None:
        """Release the session. What was not saved is dropped here too, unless `on_store_failure` is "continue"."""
        if self.holder == run_id:
            left, self._journal, self._waiter = self._journal, None, None
            if left is not None and left.all_saved and (left.end_is_saved or left.sent_in is not None):
                self._stored.state = self.values.get(STATE)
            elif left is not None:
                self._stored.revision = None
                if left.opened and self.on_store_failure == "continue" and not left.interrupted:
                    self._unsaved = Unsaved(run_id, left.unsaved_batches())
                elif left.opened and self._unsaved is None:  # a run that never opened it has changed nothing
                    self._state = _closed(self._stored.messages, self._stored.pending)
                    self._show_state(self._stored.state)
        super().release(run_id)

    async def open(self, give_up: asyncio.Future[None], busy_policy: BusyPolicy | None = None) -> Lease | SentElsewhere:
        """Acquire the lease, load what is stored, and seal the runs that crashed. `give_up` is done when time is up.

        `busy_policy` says what to do while another process holds the session. `SentElsewhere` means that the run there
        has sent its prompt. Raises `SessionBusy` or another `StoreError`.
        """
        waiter = self._waiter = SessionWaiter(self, self._owner, self._stored.revision, busy_policy or BusyPolicy())
        taken = await waiter.get(give_up)
        if busy_policy is None or isinstance(taken, SentElsewhere):
            waiter.stop_watching()
        if isinstance(taken, SentElsewhere):
            return taken
        try:
            if taken.snapshot is not None:
                await self._load_snapshot(taken.lease, taken.snapshot)
        except BaseException:
            waiter.abandon()  # the run may have let go of the session meanwhile, and this waiter with it
            raise
        self._stored.session_id = taken.lease.session_id
        return taken.lease

    def abandon_opening(self) -> None:
        """Stop waiting for the lease; release it if it is granted later, or was already."""
        if self._waiter is not None:
            self._waiter.abandon()

    async def delete(self) -> None:
        """Delete the session from its store, while no run uses it.

        Raises `SessionNotFound`, `ConversationBusy` while a run here uses it, and `SessionBusy` while another process
        does. A lease that a run here could not give back, because the store failed, does not count.
        """
        if self.holder is None:
            await asyncio.wrap_future(self.store.load(self.name))  # so that none is made
        if self.holder is not None:  # a run that starts from now on asks the store later than this
            raise ConversationBusy(self.holder)
        mine = self.store.acquire(self.name, holder(self._owner), seconds=self.lease)
        mine.add_done_callback(self._give_back)  # and not here, where a cancellation may come before it
        await asyncio.wrap_future(mine)
        await asyncio.wrap_future(self.store.delete(self.name))

    def _give_back(self, acquired: Future[AcquiredSession]) -> None:
        if not acquired.cancelled() and acquired.exception() is None:
            self.store.release(acquired.result().lease)

    def stop_watching(self) -> bool:
        """Stop watching the queue, which the journal does from now on. Whether a prompt may have come before that."""
        return self._waiter is not None and self._waiter.stop_watching()

    @property
    def position(self) -> int | None:
        """The position in the queue of a run that waits here for the session, when it has one."""
        return None if self._waiter is None else self._waiter.position

    @property
    def is_queued(self) -> bool:
        """Whether a run here is in the queue for the session, or joins it now."""
        return self._waiter is not None and self._waiter.is_queued

    def opened(self) -> None:
        """Called by the journal once it is open: what was cancelled before is saved now."""
        if self._pending_cancelled:
            self._pending_cancelled = False
            if self.pending is not None:
                self.drop_pending()

    async def _load_snapshot(self, lease: Lease, snapshot: Snapshot) -> None:
        """Replace what is here by what is stored, with the turns of crashed runs sealed."""
        revision, unsaved = snapshot.info.revision, self._unsaved
        if unsaved is not None and self._goes_on_from(snapshot, unsaved):
            revision = await self._catch_up(lease, snapshot, unsaved)
            found = StoredConversation(self._state.messages, self._state.pending)
        else:
            found = read_whole(snapshot)
            if unsaved is not None:
                _log.warning("Run %s: what it could not save is dropped; other runs have continued.", unsaved.run_id)
        sealings: list[Sealing] = []
        if snapshot.unfinished:
            runs = await asyncio.wrap_future(self.store.runs(self.name))
            sealings, damage = seal_unfinished(self.name, found, snapshot.unfinished, _writer(snapshot, runs))
            if damage:
                raise damaged(self.name, damage)
        for each in sealings:  # written only when all of them are valid
            revision, found = await self._write(lease, each.batch()), each.after
        self._state = ConversationState(*found)
        self._stored.messages, self._stored.pending = found
        self._stored.revision, self._unsaved, self.damage = revision, None, ""
        self._stored.writer = snapshot.values.get(WRITER)
        self.crashes, self.values = tuple(each.crash for each in sealings), dict(snapshot.values)
        for each in sealings:
            self.values |= each.values
        if unsaved is None:
            self._read_state(self.values)

    def _goes_on_from(self, snapshot: Snapshot, unsaved: Unsaved) -> bool:
        """Whether no other run has written since the partly saved run, or sealed it."""
        writer = snapshot.values.get(WRITER)
        if snapshot.info.id != self._stored.session_id:
            return False
        if writer == unsaved.run_id.encode():
            return unsaved.run_id in snapshot.unfinished
        return writer == self._stored.writer

    async def _catch_up(self, lease: Lease, snapshot: Snapshot, unsaved: Unsaved) -> int:
        """Save what an earlier run left in memory only."""
        revision = snapshot.info.revision
        for batch in unsaved.batches:
            batch.release = False  # that was for the lease of the earlier run
            if batch is unsaved.batches[-1] and batch.end is None:
                batch.end = RunEnd("ended", "saved late", time.time())
            revision = await self._write(lease, batch)
            snapshot.values.update(batch.values)
        snapshot.unfinished.pop(unsaved.run_id, None)
        return revision

    async def _write(self, lease: Lease, batch: WriteBatch) -> int:
        """Write a batch, with retries for a while."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + journal.STORE_TIMEOUT
        while True:
            try:
                async with asyncio.timeout_at(give_up):
                    return await asyncio.shield(observed(self.store.write(lease, batch)))
            except TimeoutError:
                raise StoreUnavailable(f"The store did not answer within {journal.STORE_TIMEOUT:g} s.") from None
            except StoreError as error:
                if not error.retryable or loop.time() >= give_up:
                    raise
            await asyncio.sleep(_PAUSE)

    async def save(self, lease: Lease, values: Mapping[str, bytes]) -> None:
        """Write what was changed without a run: the messages, the turn that waited, and these values."""
        batch = WriteBatch("")
        set_messages(batch, self._stored.messages, self._state.messages)
        batch.values = dict(values)
        if self._state.pending is None and self.values.get(PENDING, b"null") != b"null":
            batch.values[PENDING] = b"null"
        self.wrote(batch, await self._write(lease, batch))
        self.values |= batch.values

    def wrote(self, batch: WriteBatch, revision: int) -> None:
        """Note that a batch is in the store."""
        self._stored.revision = revision
        self._stored.writer = batch.values.get(WRITER, self._stored.writer)
        if PENDING in batch.values:
            self._stored.pending = msgspec.json.decode(batch.values[PENDING], type=PendingTurn | None)
        if batch.rewrites:
            self._stored.messages = (*self._stored.messages[: batch.first_message], *batch.messages)


def stored_receipt(run: RunRecord, rows: Iterable[Row]) -> Receipt | None:
    """The receipt of a run, from its record and its journal."""
    if run.status != "ended":
        return None
    try:
        receipt = msgspec.json.decode(run.detail, type=Receipt | None)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise StoreDamaged(f"The receipt of run {run.run_id} cannot be read: {error}.") from error
    if receipt is not None:
        receipt.late.extend(late_outcomes(rows))
    return receipt


def _closed(messages: tuple[Message, ...], pending: PendingTurn | None) -> ConversationState:
    """The saved conversation, closed so that a prompt may follow. Before the next run, the store is read again."""
    closing = () if pending is not None else close_turn((), messages, CRASH_NOTE)
    return ConversationState((*messages, *closing), pending)


def _writer(snapshot: Snapshot, runs: list[RunRecord]) -> str:
    """The run that wrote to a session last. Old sessions do not record it: there it is the run that started last."""
    noted = snapshot.values.get(WRITER)
    return noted.decode(errors="replace") if noted is not None else runs[-1].run_id


def checked_name(name: str) -> str:
    """A name that a session may have. Raises `ConfigurationError`."""
    is_text = isinstance(name, str)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_text or not name.strip() or len(name) > 200 or not name.isprintable():
        raise ConfigurationError(
            f"A session cannot be named {repr(name)[:60]}.", todo="Use up to 200 printable characters, not all blank."
        )
    return exact_text(name)


__all__ = ["LEASE", "OnStoreFailure", "Session", "SessionNotFound", "StoreError"]
