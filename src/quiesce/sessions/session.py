"""A conversation with a name, in a store: it outlives the process."""

from __future__ import annotations

import asyncio
import time
import uuid
from concurrent.futures import Future
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from ..errors import ConfigurationError, SessionBusy, SessionNotFound, StoreDamaged, StoreError
from ..messages import Message
from ..transcript import faults
from . import journal
from .base import Store
from .journal import Journal, RunHost
from .memory import Conversation
from .records import Batch, Lease, RunBegin, RunEnd, Snapshot, Taken, decode_messages, decode_row, encode, holder
from .recovery import Crash, Torn
from .where import resolve_store

OnStoreFailure: TypeAlias = Literal["stop", "continue"]

# A lease is renewed while a run goes on; after a crash, others wait this long unless they can see that it is dead.
LEASE: Final = 30.0
# How often a session that somebody else has is asked for again while `wait` lasts.
_ASK_AGAIN: Final = 0.2


class _Behind(NamedTuple):
    """A run that went on in memory, and the length of the conversation at its end."""

    run_id: str
    length: int


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
        self.saved = 0
        """How many of the messages are known to be in the store."""
        self._stored_id: str | None = None
        self._owner: Final = uuid.uuid4().hex
        self._revision: int | None = None
        self._fence = 0
        self._behind: _Behind | None = None
        self._journal: Journal | None = None

    def __repr__(self) -> str:
        return f"<Session {self.name!r} in {self.store.url}>"

    @property
    def id(self) -> str:
        """What tells this conversation from all others, in every process; known once it was opened."""
        return self._stored_id or super().id

    # --- Reading without holding --------------------------------------------------------------------------------

    async def load(self) -> tuple[Message, ...]:
        """Read the conversation as it is stored now. What a run left that is not at rest is shown as if sealed.

        Raises a `StoreError`. Changes nothing in the store; while a run of this process holds it, nothing at all.
        """
        return self._show(await asyncio.wrap_future(self.store.load(self.name)))

    def load_sync(self) -> tuple[Message, ...]:
        """`load()`, for code without an event loop. It blocks."""
        return self._show(self.store.load(self.name).result())

    def _show(self, snapshot: Snapshot) -> tuple[Message, ...]:
        messages = decode_messages(snapshot.messages)
        for rows in snapshot.unfinished.values():
            messages = (*messages, *Torn(messages, map(decode_row, rows)).sealed())
        if self.holder is None:
            self._messages, self.saved, self._revision = messages, len(snapshot.messages), None
            self._stored_id = snapshot.info.id
        return messages

    # --- For runs -----------------------------------------------------------------------------------------------

    def append(self, *messages: Message) -> None:
        """Add messages, all in one step. The run's journal brings them into the store."""
        super().append(*messages)
        if self._journal is not None:
            self._journal.commit(messages)

    def journal(self, host: RunHost) -> Journal:
        """The journal of the run that holds the session."""
        self._journal = Journal(self, host)
        return self._journal

    def release(self, run_id: str) -> None:
        """Give the session back. What could not be saved is forgotten here too, unless the run was to go on anyway."""
        if self.holder == run_id:
            journal, self._journal = self._journal, None
            if journal is not None and not journal.all_saved:
                self._revision = None
                if journal.opened and self.on_store_failure == "continue":
                    self._behind = _Behind(run_id, len(self._messages))
                self._messages = self._messages[: self.saved if self._behind is None else self._behind.length]
        super().release(run_id)

    async def open(self, patient: asyncio.Future[None]) -> Lease:
        """Take the lease, and bring what is here up to date with the store. `patient` is done when time is up.

        Seals what a crash has torn. Raises `SessionBusy` or another `StoreError`. For the run's journal.
        """
        taken = await self._acquire(patient)
        try:
            if taken.snapshot is not None:
                await self._take_over(taken.lease, taken.snapshot)
        except BaseException:
            self.store.release(taken.lease)
            raise
        self._stored_id, self._fence = taken.lease.session_id, taken.lease.fence
        return taken.lease

    async def _acquire(self, patient: asyncio.Future[None]) -> Taken:
        loop = asyncio.get_running_loop()
        busy_until, away_until = loop.time() + self.wait, loop.time() + journal.PATIENCE
        while True:
            asked = self.store.acquire(self.name, holder(self._owner), seconds=self.lease, known=self._revision)
            try:
                return await asyncio.shield(asyncio.wrap_future(asked))
            except asyncio.CancelledError:
                asked.add_done_callback(self._give_back)
                raise
            except StoreError as error:
                again = isinstance(error, SessionBusy) or error.retryable
                left = (busy_until if isinstance(error, SessionBusy) else away_until) - loop.time()
                if not again or patient.done() or left <= 0:
                    raise
            await asyncio.wait((patient,), timeout=min(_ASK_AGAIN, left))

    def _give_back(self, asked: Future[Taken]) -> None:
        """Nobody waits for this lease any more."""
        if not asked.cancelled() and asked.exception() is None:
            self.store.release(asked.result().lease)

    async def _take_over(self, lease: Lease, snapshot: Snapshot) -> None:
        """What is stored, sealed where a crash has torn it, becomes what is here; what is new here follows it."""
        stored = decode_messages(snapshot.messages)
        crashes: list[Crash] = []
        revision = snapshot.info.revision
        new = self._messages[self.saved if self._behind is None else self._behind.length :]
        behind = await self._catch_up(lease, snapshot)
        if behind:
            stored, revision = (*stored[: self.saved], *behind), None
        for run_id, rows in snapshot.unfinished.items():
            torn = Torn(stored, map(decode_row, rows))
            crash = Crash(run_id, torn.unknown, torn.kept_text)
            batch = Batch(run_id)
            batch.messages, batch.first_message = list(torn.sealed()), len(stored)
            batch.end = RunEnd("crashed", "crashed", time.time(), encode(crash))
            revision = await asyncio.wrap_future(self.store.write(lease, batch))
            stored = (*stored, *batch.messages)
            crashes.append(crash)
        found = faults((*stored, *new))
        if found:
            raise StoreDamaged(f"Session {self.name!r} is not a valid conversation: {'; '.join(found[:3])}.")
        self._messages = (*stored, *new)
        self.saved, self._revision, self._behind = len(stored), revision, None
        self.crashes, self.values = tuple(crashes), dict(snapshot.values)

    async def _catch_up(self, lease: Lease, snapshot: Snapshot) -> tuple[Message, ...]:
        """Save what an earlier run left in memory only, unless somebody else has written since. Gives what it was."""
        behind = self._behind
        if behind is None or lease.fence != self._fence + 1:
            return ()
        batch = Batch(behind.run_id)
        batch.messages, batch.first_message = list(self._messages[self.saved : behind.length]), self.saved
        batch.begin = RunBegin("", time.time())
        batch.end = RunEnd("ended", "saved late", time.time())
        await asyncio.wrap_future(self.store.write(lease, batch))
        snapshot.unfinished.pop(behind.run_id, None)
        return tuple(batch.messages)

    def wrote(self, messages: int, revision: int) -> None:
        """So many more messages are in the store. For the run's journal."""
        self.saved += messages
        self._revision = revision


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
