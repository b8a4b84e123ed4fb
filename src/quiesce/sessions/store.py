"""What a store is: a place where sessions outlive the process.

`Store` is what you write to keep sessions in a place of your own: four blocking methods, for one process.
`SessionStore` is what a session uses, and what the stores here offer: SQLite, Postgres, memory. It includes
`Coordination`, by which several processes share a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from .journal.rows import Row
from .queue.prompts import QueuedPrompt, QueueRequest
from .records import AcquiredSession, Holder, Lease, RunRecord, SentElsewhere, SessionInfo, Snapshot, WriteBatch


@runtime_checkable
class Store(Protocol):
    """A place of your own for sessions: for each of them a list of records, which only grows.

    The methods may block. They are called in a thread of their own, one at a time. An `OSError` means that the store
    cannot be reached: the call is repeated for a while. Any other failure ends the run. The name of a session may be
    any printable text.

    Only one process at a time may use a session in such a store.
    """

    def append(self, session: str, number: int, record: bytes) -> None:
        """Store record `number` of a session; the first one, which makes the session, is number 0. Durable on return.

        May be repeated with the same number after a failure. Raises `FileExistsError` when there is such a record
        already, so that a second process that writes the session is noticed, and stopped.
        """
        ...

    def read(self, session: str) -> Sequence[bytes]:
        """The records of a session in order; empty when there is no such session."""
        ...

    def names(self) -> Iterable[str]:
        """The names of all sessions."""
        ...

    def delete(self, session: str) -> None:
        """Delete a session with all its records."""
        ...


class Coordination(Protocol):
    """How several processes share a session: one of them has its lease, the others wait in its queue.

    A lease that was superseded by a newer one is refused with `LeaseLost`, and then nothing is written.
    """

    def acquire(
        self, session: str, holder: Holder, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession]:
        """Acquire the session, which is made if there is none. Fails with `SessionBusy` while another process holds it.

        The result has everything that is stored, unless that is still at the revision `known`. A lease that has
        expired, whose holder's process has ended, or that the same `owner` had, is taken over. Queued prompts go first.
        """
        ...

    def renew(self, lease: Lease) -> Future[None]:
        """Hold the lease for another `lease.seconds`. A write does that too."""
        ...

    def release(self, lease: Lease) -> Future[None]:
        """Release the session. No failure when another process holds it by now."""
        ...

    def enqueue(self, session: str, request: QueueRequest) -> Future[int]:
        """Queue a prompt for a session; gives its position, which grows with time.

        A position that is not renewed, by `acquire_queued`, within the request's seconds is skipped.
        """
        ...

    def acquire_queued(
        self, session: str, holder: Holder, position: int, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession | SentElsewhere]:
        """Acquire the session if this position is the first in the queue, and leave the queue; else renew the position.

        `SentElsewhere` when the run that had the session has sent the queued prompt. Fails with `SessionBusy`; its
        `overtaken` says that a later prompt asks all before it to stop.
        """
        ...

    def withdraw(self, session: str, position: int) -> Future[SentElsewhere | None]:
        """Give a position up. `SentElsewhere` when a run has taken the queued prompt, and has sent it or will."""
        ...

    def queued_prompts(self, lease: Lease) -> Future[list[QueuedPrompt]]:
        """The prompts that wait for the session, in order."""
        ...

    def take_prompt(self, lease: Lease, position: int, run_id: str) -> Future[bool]:
        """Take a queued prompt, to be sent in a run. False when it was withdrawn, and is not to be sent.

        It counts as sent when a `WriteBatch` is written that has its position among its `sent_prompts`.
        """
        ...

    def return_prompts(self, lease: Lease, positions: Sequence[int]) -> Future[list[int]]:
        """Return prompts that a run has taken and will not send; gives the positions of those that were withdrawn."""
        ...

    def subscribe(self, session: str, function: Callable[[], None]) -> Callable[[], None]:
        """Call `function`, in any thread, when the session's holder or queue changes; sometimes when nothing has.

        Returns a function that ends the subscription.
        """
        ...


@runtime_checkable
class SessionStore(Coordination, Protocol):
    """Holds sessions: for each the conversation, a journal of every run, and some named values.

    Every method returns at once, with a future that any thread, or any event loop through `asyncio.wrap_future`, can
    wait for. Calls are carried out in order. A future that is done means that the change is durable. Failures are
    `StoreError`s. A call whose future is cancelled before it has begun is not carried out.
    """

    @property
    def url(self) -> str:
        """Where this is, for people; without passwords."""
        ...

    def load(self, session: str) -> Future[Snapshot]:
        """Everything that is needed to go on. Fails with `SessionNotFound`."""
        ...

    def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
        """Write a batch, all of it or nothing; gives the session's new revision.

        May be repeated: a batch whose first row is stored changes nothing, whatever was written after it. Nor does one
        without rows that ends a run that has ended.
        """
        ...

    def add_late(self, session_id: str, run_id: str, payload: bytes) -> Future[bool]:
        """Add to a run's journal what became known after its end, as a mark; the same payload once only.

        Needs no lease and changes nothing else. False when there is no such session, by its id, or run.
        """
        ...

    def sessions(self) -> Future[list[SessionInfo]]:
        """All sessions, the one that was written last first."""
        ...

    def runs(self, session: str) -> Future[list[RunRecord]]:
        """The runs of a session, in order. Fails with `SessionNotFound`."""
        ...

    def rows(
        self, session: str, run_id: str, *, after: int = 0, most: int | None = None, marks: bool = False
    ) -> Future[list[Row]]:
        """The rows of a run's journal that have events after number `after`, and perhaps one before; `unpack` them.

        Not more than `most` of those that are new. With `marks`, rows that are only for recovery are among them.
        """
        ...

    def find_run(self, run_id: str) -> Future[list[str]]:
        """The names of the sessions that have a run with this id: in most stores one, or none."""
        ...

    def delete_run(self, session: str, run_id: str) -> Future[None]:
        """Remove an ended run and its journal; what it said stays in the conversation. Fails with `SessionNotFound`.

        A run that has not ended stays. Needs no lease.
        """
        ...

    def delete(self, session: str) -> Future[None]:
        """Remove a session and everything that belongs to it. Fails with `SessionNotFound`, or with `SessionBusy`."""
        ...

    def close(self) -> Future[None]:
        """Finish all calls, and close files and connections. The next call opens them again."""
        ...
