"""The journal of one run: everything that happens is in the store before anybody outside sees it.

What the run says goes into a queue. The queue is written in batches, one at a time: while one is on its way the next
one gathers, so that a fast answer costs a write for hundreds of chunks, and a slow one a write for each. When a batch
is durable its events go on to the readers. `durable()` is for the moments that must not be passed before everything
so far is saved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final

from ...errors import LeaseLost, SessionBusy, StoreError, StoreUnavailable
from ...events import RunEnded, SessionRecovered, StoreFailed
from ...messages import Message
from ...receipt import LateOutcome
from ..deadline import Deadline
from ..queue.inbox import SessionInbox
from ..queue.lease import HeldLease
from ..records import SentElsewhere, WriteBatch
from .buffer import WRITER, WriteBuffer
from .delivery import EventDelivery
from .opening import SessionOpening
from .rows import Commit, JournalRow, ToolIntended
from .run_host import RunHost
from .save_progress import SaveProgress
from .write_timer import WriteTimer

if TYPE_CHECKING:
    from ..session import Session

# Seconds for which a write to a store that cannot be reached is tried again before the run stops or goes on without.
STORE_TIMEOUT: Final = 10.0
TOO_SOON: Final = "The run ended before its session was open; the prompt is not in it."


class State(Enum):
    """How a journal stands with its store."""

    OPENING = "opening"
    OPEN = "open"
    DEGRADED = "degraded"
    FAILED = "failed"
    CLOSED = "closed"


class Journal:
    """Brings one run into the store. Only for the run's own loop."""

    def __init__(self, session: Session, host: RunHost) -> None:
        self._session: Final = session
        self._host: Final = host
        self._buffer: Final = WriteBuffer(host.run_id, host.agent)
        self._readers: Final = EventDelivery(host.deliver)
        self.sent_in: str | None = None
        """The run, in another process, that has said this run's prompt."""
        self._saved: Final = SaveProgress()
        self._in_flight: WriteBatch | None = None
        self._timer: Final = WriteTimer()
        self.add: Callable[[JournalRow], None] = self._buffer.add
        """Queue an event. It reaches the readers when it is saved.

        While the journal is idle, the next event begins a write. Else this is the buffer's own method, without a check.
        """
        self._deadline: Final = Deadline(self._on_deadline)
        self._closing: tuple[RunEnded, bytes] | None = None
        self._held: HeldLease | None = None
        self.state = State.OPENING
        self.error: StoreError | None = None
        self._opening: Final = SessionOpening(self._open, session.name)

    # --- Opening ------------------------------------------------------------------------------------------------

    async def _open(self, give_up: asyncio.Future[None]) -> None:
        """Take the session. Never raises: what went wrong is in `error`."""
        try:
            lease = await self._session.open(give_up, self._host.busy_policy)
        except StoreError as error:
            if isinstance(error, SessionBusy) and error.overtaken:
                self.state = State.FAILED
                self._host.prompt_receiver.stop_remotely()
            else:
                self._end_with(StoreUnavailable(TOO_SOON) if give_up.done() else error)
            return
        except asyncio.CancelledError:
            self._end_with(StoreUnavailable("The session was not opened: the program is ending."))
            raise
        if isinstance(lease, SentElsewhere):
            self.sent_in = lease.run_id
            return
        if give_up.done():
            self._session.stop_watching()
            self._session.store.release(lease)
            self._end_with(StoreUnavailable(TOO_SOON))
            return
        self._held = HeldLease(self._session.store, lease, self._host.prompt_receiver, self._end_with)
        if self._session.stop_watching():
            self._held.inbox.fetch()
        self.state = State.OPEN
        self.add = self._add_and_begin
        self.set_value(WRITER, self._host.run_id.encode())
        self._session.opened()
        for crash in self._session.crashes:
            self.add(SessionRecovered(crash.run_id, crash.unknown))
        self._begin()

    def stop_waiting(self) -> None:
        """Wait no longer for a session that another process has: the run is to stop."""
        self._opening.stop_waiting()

    @property
    def is_queued(self) -> bool:
        """Whether another process holds the session and this run waits for it."""
        return self.state is State.OPENING and not self._opening.task.done() and self._session.is_queued

    @property
    def opening(self) -> asyncio.Task[None]:
        """The task that acquires the session."""
        return self._opening.task

    @property
    def opened(self) -> bool:
        """Whether the session was opened."""
        return self._held is not None

    # --- Taking -------------------------------------------------------------------------------------------------

    def _add_and_begin(self, event: JournalRow) -> None:
        self._buffer.add(event)
        self._begin()

    def commit(self, messages: tuple[Message, ...], *, replacing: int = 0) -> None:
        """Queue messages that are in the conversation now, some of them in place of the last ones before.

        What the journal says up to here is settled by them.
        """
        if self.state is not State.CLOSED:
            self._buffer.replace(messages, replacing)
            self._buffer.mark()
            self.add(Commit(len(messages)))

    def set_value(self, key: str, value: bytes) -> None:
        """Queue a named value of the session; it is saved in one step with the events and messages around it."""
        self._session.values[key] = value
        self._buffer.set_value(key, value)

    @property
    def inbox(self) -> SessionInbox | None:
        """What other processes say to the run, once the session is open."""
        return None if self._held is None else self._held.inbox

    def mark_sent(self, position: int) -> None:
        """The words of a letter are in what is committed next: say so in the same step."""
        self._buffer.mark_sent(position)

    async def intend(self, call_id: str) -> None:
        """Note that a tool is about to run, and wait until that is saved."""
        self._buffer.mark()
        self.add(ToolIntended(call_id))
        await self.durable()

    async def durable(self) -> None:
        """Wait until everything so far is saved, or the run has been told to go on without.

        When the run is to be stopped because the store failed, this waits to be cancelled: nothing is done after it
        that is not written down before.
        """
        if self._saved.written < self._taken and self.state is not State.DEGRADED:
            await self.attempted()
            if self.state is State.FAILED:
                await asyncio.get_running_loop().create_future()

    def attempted(self) -> asyncio.Future[None]:
        """A future that is done when everything so far is saved, or it is known that it cannot be."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._saved.written >= self._taken or self.state in (State.DEGRADED, State.FAILED, State.CLOSED):
            done.set_result(None)
        else:
            done = self._saved.wait_for(self._taken)
            self._begin()
        return done

    @property
    def _taken(self) -> int:
        """How many entries there were so far. Counted when asked, so that taking one costs next to nothing."""
        in_flight = 0 if self._in_flight is None else self._in_flight.count
        return self._saved.written + in_flight + len(self._buffer)

    @property
    def queued(self) -> int:
        """How many entries are not on their way to the store yet."""
        return len(self._buffer)

    @property
    def backlog(self) -> int:
        """How many entries are not saved yet and hold the run up."""
        return 0 if self.state is State.DEGRADED else self._taken - self._saved.written

    @property
    def busy(self) -> bool:
        """Whether something is on its way to the store."""
        return self._in_flight is not None

    @property
    def failed(self) -> bool:
        """Whether the run is to end because the store failed."""
        return self.state is State.FAILED

    @property
    def must_save(self) -> bool:
        """Whether a run that is not saved has failed."""
        return self.opened and self._session.on_store_failure == "stop"

    @property
    def all_saved(self) -> bool:
        """Whether everything that was taken is in the store."""
        if self.sent_in is not None:
            return True
        return (self._saved.ended or self._saved.written >= self._taken) and self.opened and self.error is None

    def save_late(self, outcome: LateOutcome) -> bool:
        """Note what became of a call that was given up, once the run's end is written down. From any thread.

        False when it is not: then the outcome is an event like any other.
        """
        if self._closing is None and self.state is not State.CLOSED:
            return False
        if self._held is not None:
            self._held.save_late(self._host.run_id, outcome)
        return True

    # --- Writing ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Write what is queued: at once if a caller waits for it, else soon.

        When the last write was a while ago, that is with what else is taken in this step of the loop.
        """
        if self.state is State.DEGRADED:
            self._tell_all()
        if self.state is not State.OPEN or self._in_flight is not None or not self._buffer:
            return
        self.add = self._buffer.add
        if self._saved.has_waiters:
            self._timer.cancel()
            self._write()
        elif not self._timer.is_set:
            self._timer.schedule(self._write)

    def flush(self) -> None:
        """Write what is queued without waiting for more, unless the last batch is still on its way."""
        if self.state is State.OPEN and not self.busy:
            self._timer.cancel()
            self._write()

    def _write(self) -> None:
        """Send off everything that is queued."""
        self._timer.cancel()
        if self.state is State.OPEN and self._in_flight is None and self._buffer and self._closing is None:
            self._send(self._buffer.turn(self._session.saved, self._closing))

    def _send(self, batch: WriteBatch) -> None:
        assert self._held is not None
        self._in_flight = batch
        self._timer.on_write()
        self._held.written()
        self._deadline.set(STORE_TIMEOUT)
        # Encoded here, where thousands of small events are still warm; another thread would have to fetch each one.
        batch.rows()
        batch.payloads()

        loop = asyncio.get_running_loop()

        def on_done(future: Future[int]) -> None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._on_written, batch, future)

        self._session.store.write(self._held.lease, batch).add_done_callback(on_done)

    def _on_written(self, batch: WriteBatch, future: Future[int]) -> None:
        """A write was answered. After the end of the run that counts no more: the next run reads what is stored."""
        if self.state is State.CLOSED:
            return
        error = future.exception()
        if error is not None:
            self._on_failure(batch, error)
            return
        self._in_flight = None
        self._timer.on_written()
        self._deadline.clear()
        saved_before = self._saved.written
        self._saved.add(batch.count, ended=batch.closing is not None)
        self._readers.tell(batch.entries, saved_before, batch.marks)
        self._session.wrote(batch, future.result())
        if self.state is State.DEGRADED:
            self.state, self.error = State.OPEN, None
        self._saved.wake()
        self.add = self._add_and_begin
        if self._closing is None:
            self._begin()
        elif not self._saved.ended:
            self._write_end()

    def _tell_all(self) -> None:
        """Hand the readers everything, saved or not."""
        in_flight = [] if self._in_flight is None else self._in_flight.entries
        self._readers.tell([*in_flight, *self._buffer], self._saved.written)

    # --- When the store fails -----------------------------------------------------------------------------------

    def _on_failure(self, batch: WriteBatch, error: BaseException) -> None:
        """Try again for a while if that can help; else stop the run, or let it go on in memory."""
        failure = error if isinstance(error, StoreError) else StoreError(f"The store failed: {error!r}.")
        if self.state is State.FAILED:
            return
        if isinstance(failure, LeaseLost):
            self._end_with(failure)
            return
        self._timer.last_failure = failure
        if not failure.retryable:
            self._stop_trying(failure)
        if not self.failed:
            self._timer.schedule_retry(self._send, batch)

    def _on_deadline(self) -> None:
        failure = self._timer.last_failure or StoreUnavailable(f"The store did not answer within {STORE_TIMEOUT:g} s.")
        self._stop_trying(failure)

    def _stop_trying(self, failure: StoreError) -> None:
        """The store stays away. What is on its way may land yet, or not; its completion is ignored."""
        if self.state is State.OPEN and self._session.on_store_failure == "continue":
            self._degrade(failure)
        elif self.state is State.OPEN:
            self._end_with(failure)

    def _degrade(self, failure: StoreError) -> None:
        """Go on in memory. Readers get what happens at once, and writing is tried again now and then."""
        self.state, self.error = State.DEGRADED, failure
        self.add = self._add_and_begin
        self.add(StoreFailed(str(failure)))
        self._saved.wake_all()

    def _end_with(self, failure: StoreError) -> None:
        if self.state is not State.CLOSED:
            self.state, self.error = State.FAILED, failure
            self._timer.cancel()
            self._deadline.clear()
            self._saved.wake_all()
            self._host.fail(failure)

    # --- Holding on, and ending ---------------------------------------------------------------------------------

    def finish(self, last: RunEnded, detail: bytes) -> asyncio.Future[None]:
        """Write down how the run ended, and let the session go. The future is done when that is saved, or cannot be.

        Everything that is queued goes with it, in one step. When something is on its way, that comes first.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = (last, detail)
        if self.state is not State.OPEN:
            done.set_result(None)
            return done
        done = self._saved.wait_for(self._taken + 1)
        if self._in_flight is None:
            self._write_end()
        return done

    def _write_end(self) -> None:
        self._timer.cancel()
        if self.state is State.OPEN:
            self.add = self._buffer.add
            self._send(self._buffer.turn(self._session.saved, self._closing))

    def close(self) -> None:
        """The run is over, and the lease is let go. Readers are not shown what is not saved.

        Unless nothing was to be saved, because the session was never open, or the run went on in memory and has said
        so. What came when the end was written down already comes too late: the end is the last event, here as in the
        store.
        """
        if self._saved.ended:
            self._buffer.clear()
        if self.state is State.DEGRADED or not self.opened:
            self._tell_all()
        self.state = State.CLOSED
        self._timer.cancel()
        self._deadline.clear()
        if self._held is not None:
            self._held.close()
        self.stop_waiting()
        self._saved.wake_all()
        if not self._opening.task.done():
            self._opening.task.cancel()
        if self._held is not None and not self._saved.ended:
            self._held.let_go()

    def unsaved_batches(self) -> list[WriteBatch]:
        """Once closed: what is not known to be in the store, in order, with the run's end. May be written again."""
        batches: list[WriteBatch] = []
        saved, last = self._session.saved, self._in_flight
        if last is not None:
            batches.append(last)
            saved = last.first_message + len(last.messages) if last.rewrites else saved
        if last is None or last.closing is None:
            batches.append(self._buffer.turn(saved, self._closing))
        return batches
