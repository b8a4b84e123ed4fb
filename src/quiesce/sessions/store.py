"""What a store is: a place where sessions outlive the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from .journal.rows import Row
from .queue.prompts import QueuedPrompt, QueueRequest
from .records import AcquiredSession, Holder, Lease, RunRecord, SentElsewhere, SessionInfo, Snapshot, WriteBatch


@runtime_checkable
class Store(Protocol):
    """Holds sessions: for each the conversation, a journal of every run, and some named values.

    Every method returns at once, with a future that any thread, or any event loop through `asyncio.wrap_future`, can
    wait for. Calls are carried out in order. A future that is done means that the change is durable. Failures are
    `StoreError`s. Writing needs a lease; a lease that was superseded by a newer one is refused with `LeaseLost`, and
    then nothing is written.
    """

    @property
    def url(self) -> str:
        """Where this is, for people; without passwords."""
        ...

    def acquire(
        self, session: str, holder: Holder, *, seconds: float, known: int | None = None
    ) -> Future[AcquiredSession]:
        """Take the session, which is made if there is none. Fails with `SessionBusy` while another process holds it.

        Comes with everything that is stored, unless that is still at the revision `known`. A lease that has expired,
        whose holder's process is gone, or that the same `owner` had, is taken over. Those who wait in line go first.
        """
        ...

    # --- The line -----------------------------------------------------------------------------------------------

    def enqueue(self, session: str, request: QueueRequest) -> Future[int]:
        """Get in line for a session, with words for those who came before; gives the place, which grows with time.

        A place that is not asked for again within the request's seconds is passed over by others.
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
        """Give a place up. `SentElsewhere` when the words that came with it were taken, and so are said, or will be."""
        ...

    def queued_prompts(self, lease: Lease) -> Future[list[QueuedPrompt]]:
        """The line behind the holder of a lease, in order."""
        ...

    def take_prompt(self, lease: Lease, position: int, run_id: str) -> Future[bool]:
        """Take the words of a letter, to be said in a run. False when the sender has left, and they are not to be said.

        They are said with a `WriteBatch` that has this place among its `sent_prompts`.
        """
        ...

    def return_prompts(self, lease: Lease, positions: Sequence[int]) -> Future[list[int]]:
        """Give letters back whose words a run has taken and will not say; gives those whose sender has left since."""
        ...

    def subscribe(self, session: str, function: Callable[[], None]) -> Callable[[], None]:
        """Call `function`, in whichever thread, when the session changes hands or its line changes; perhaps in vain.

        Returns the way to end that.
        """
        ...

    # --- Holding, reading and writing ---------------------------------------------------------------------------

    def renew(self, lease: Lease) -> Future[None]:
        """Hold the lease for another `lease.seconds`. A write does that too."""
        ...

    def release(self, lease: Lease) -> Future[None]:
        """Give the session back. No failure when another process holds it by now."""
        ...

    def load(self, session: str) -> Future[Snapshot]:
        """Everything that is needed to go on. Fails with `SessionNotFound`."""
        ...

    def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
        """Put a batch into the store, all of it or nothing; gives the session's new revision.

        May be repeated: a batch whose first row is there changes nothing, whatever was written after it. Nor does one
        without rows that ends a run that has ended.
        """
        ...

    def add_late(self, session_id: str, run_id: str, payload: bytes) -> Future[bool]:
        """Put something that a run learnt after its end into its journal, as a mark; the same once only.

        Needs no lease and changes nothing else. False when the session, by its id, or the run is not there.
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
        """The same with numbers: the rows that have events after number `after`, and perhaps one before; `unpack` them.

        Not more than `most` of those that are new. With `marks`, what is only for recovery is among them.
        """
        ...

    def delete(self, session: str) -> Future[None]:
        """Remove a session and everything that belongs to it. Fails with `SessionNotFound`, or with `SessionBusy`."""
        ...

    def close(self) -> Future[None]:
        """Finish what was asked for and let go of files and connections. The next call opens them again."""
        ...
