"""The journal of one run: each event is in the store before a reader sees it.

Events are buffered and written in batches, one at a time. While a batch is in flight, the next one collects, so a fast
answer costs one write for hundreds of chunks, and a slow answer one write for each. When a batch is saved, its events
are delivered to the readers. `durable()` waits until everything so far is saved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...cancellation.raised import ENDS_PROGRAM
from ...errors import LeaseLost, SessionBusy, StoreError, StoreUnavailable
from ...events import RunEnded, SessionRecovered, StoreFailed
from ...messages import Message
from ...receipt import LateOutcome, Receipt
from ..deadline import Deadline
from ..opening_failure import ended_too_soon
from ..queue.inbox import SessionInbox
from ..queue.lease import HeldLease
from ..records import SentElsewhere, WriteBatch
from .buffer import WRITER, WriteBuffer
from .delivery import EventDelivery
from .opening import SessionOpening
from .rows import Commit, JournalRow, ToolIntended, ValuesSaved, encode
from .run_host import RunHost
from .save_progress import SaveProgress
from .write_timer import WriteTimer

if TYPE_CHECKING:
    from ..session import Session

# Seconds for which a failing write is retried, before the run stops or goes on in memory.
STORE_TIMEOUT: Final = 10.0
_log: Final = logging.getLogger("quiesce")


class State(Enum):
    """The state of a journal."""

    OPENING = "opening"
    OPEN = "open"
    DEGRADED = "degraded"
    FAILED = "failed"
    CLOSED = "closed"


class Journal:
    """Writes one run to the store. Only for the run's own loop."""

    # It gives up after its patience with each batch; at the end one may be on its way, and one is to come.
    longest_save: Final = 3 * STORE_TIMEOUT

    def __init__(self, session: Session, host: RunHost) -> None:
        self._session: Final = session
        self._host: Final = host
        self._buffer: Final = WriteBuffer(host.run_id, host.agent)
        self._delivery: Final = EventDelivery(host.deliver)
        self.sent_in: str | None = None
        """The run, in another process, that has sent this run's prompt."""
        self._saved: Final = SaveProgress()
        self._in_flight: WriteBatch | None = None
        self._timer: Final = WriteTimer()
        self.add: Callable[[JournalRow], None] = self._buffer.add
        """Queue an event. It reaches the readers when it is saved.

        While the journal is idle, the next event begins a write. Else this is the buffer's own method, without a check.
        """
        self._deadline: Final = Deadline()
        self._closing: tuple[RunEnded, bytes] | None = None
        self._held: HeldLease | None = None
        self.state = State.OPENING
        self.error: StoreError | None = None
        self._opening: Final = SessionOpening(self._open, session.name)

    # --- Opening ------------------------------------------------------------------------------------------------

    async def _open(self, give_up: asyncio.Future[None]) -> None:
        """Acquire the session. A failure is in `error`, and not raised."""
        try:
            lease = await self._session.open(give_up, self._host.busy_policy)
        except StoreError as error:
            if isinstance(error, SessionBusy) and error.overtaken:
                self.state = State.FAILED
                self._host.prompt_receiver.stop_remotely()
            else:
                self._end_with(ended_too_soon() if give_up.done() else error)
            return
        except asyncio.CancelledError:
            self._end_with(StoreUnavailable("The session was not opened: the program is ending."))
            raise
        except Exception as error:
            self._end_with(StoreError(detail=repr(error)))
            return
        if isinstance(lease, SentElsewhere):
            self.sent_in = lease.run_id
            return
        if give_up.done():
            self._session.stop_watching()
            self._session.store.release(lease)
            self._end_with(ended_too_soon())
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

    def interrupt(self) -> None:
        """Write nothing more: an exception that ends the program was raised in the middle of a step.

        The next run reads what is stored, and recovers the turn of this one.
        """
        self._saved.interrupted = True
        if self.state is not State.CLOSED:
            self._fail(StoreUnavailable("The program was interrupted before this could be saved."))
        if self._held is None:
            self._session.abandon_opening()

    def stop_waiting(self) -> None:
        """Stop waiting for a session that another process holds: the run is to stop."""
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

    # --- Adding -------------------------------------------------------------------------------------------------

    def _add_and_begin(self, event: JournalRow) -> None:
        self._buffer.add(event)
        self._begin()

    def commit(self, messages: tuple[Message, ...], *, replacing: int = 0) -> None:
        """Queue messages that were added to the conversation, in place of its last `replacing` ones.

        They stand for the events so far: recovery reads only the events after them.
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
        """The prompts of other processes for this run, once the session is open."""
        return None if self._held is None else self._held.inbox

    def mark_sent(self, position: int) -> None:
        """Note, in the same write as the next commit, that it contains this queued prompt."""
        self._buffer.mark_sent(position)

    async def intend(self, call_id: str) -> None:
        """Record that a tool is about to run, and wait until that is saved."""
        self._buffer.mark()
        self.add(ToolIntended(call_id))
        await self.durable()

    async def save_values(self) -> None:
        """Save the named values, which say what is about to happen, and wait until that is done."""
        self._buffer.mark()
        self.add(ValuesSaved())
        await self.durable()

    async def durable(self) -> None:
        """Wait until everything so far is saved, or the run goes on in memory.

        When the store has failed and the run must stop, this waits until it is cancelled, so that the run does nothing
        that is not recorded first.
        """
        if self._saved.written < self._added and self.state is not State.DEGRADED:
            await self.attempted()
            if self.state is State.FAILED:
                await asyncio.get_running_loop().create_future()

    def attempted(self) -> asyncio.Future[None]:
        """A future that is done when everything so far is saved, or it is known that it cannot be."""
        if self._saved.written >= self._added or self.state in (State.DEGRADED, State.FAILED, State.CLOSED):
            return _done_future()
        done = self._saved.wait_for(self._added)
        self._begin()
        return done

    @property
    def _added(self) -> int:
        """How many entries there were so far. Computed here, so that adding one counts nothing."""
        in_flight = 0 if self._in_flight is None else self._in_flight.count
        return self._saved.written + in_flight + len(self._buffer)

    @property
    def queued(self) -> int:
        """How many entries are in no write yet."""
        return len(self._buffer)

    @property
    def backlog(self) -> int:
        """How many entries are not saved yet. None count while the run goes on in memory."""
        return 0 if self.state is State.DEGRADED else self._added - self._saved.written

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
        """Whether everything so far is in the store."""
        if self.sent_in is not None:
            return True
        return (self._saved.ended or self._saved.written >= self._added) and self.opened and self.error is None

    @property
    def interrupted(self) -> bool:
        """Whether a step was interrupted, so that what is to be written next is not known here."""
        return self._saved.interrupted

    @property
    def end_is_saved(self) -> bool:
        """Whether the end of the run is in the store."""
        return self._saved.ended

    def save_late(self, outcome: LateOutcome) -> bool:
        """Save the outcome of an abandoned call after the run's end. From any thread.

        False when the run has not ended yet: then the outcome is an event like any other.
        """
        if self._closing is None and self.state is not State.CLOSED:
            return False
        if self._held is not None:
            self._held.save_late(self._host.run_id, outcome)
        return True

    # --- Writing ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin a write: now if a step of the run waits for it, else when the pause between two writes is over."""
        if self.state is State.DEGRADED:
            self._deliver_all()
        if self.state is not State.OPEN or self._in_flight is not None or not self._buffer:
            return
        self.add = self._buffer.add
        if self._saved.has_waiters:
            self._write()
        elif not self._timer.is_set:
            self._timer.schedule(partial(self._step, self._write))

    def flush(self) -> None:
        """Write what is queued now, unless a write is in flight."""
        if self._in_flight is None:
            self._write()

    def _write(self) -> None:
        """Write everything that is queued, with the run's end once that is known. Nothing follows the end."""
        self._timer.cancel()
        is_ready = self.state is State.OPEN and self._in_flight is None and not self._saved.ended
        if is_ready and (self._buffer or self._closing is not None):
            self._send(self._buffer.take_batch(self._session.saved, self._closing))

    def _send(self, batch: WriteBatch) -> None:
        assert self._held is not None
        self._in_flight = batch
        self._timer.on_write()
        self._held.on_write()
        self._deadline.set(STORE_TIMEOUT, partial(self._step, self._on_deadline))
        # Encoded in this thread, whose processor still has the events in its cache.
        batch.rows()
        batch.payloads()

        loop = asyncio.get_running_loop()

        def on_done(future: Future[int]) -> None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._step, self._on_written, batch, future)

        self._session.store.write(self._held.lease, batch).add_done_callback(on_done)

    def _on_written(self, batch: WriteBatch, future: Future[int]) -> None:
        """The store has answered. Ignored once the journal is closed: the next run reads what is stored."""
        if self.state is State.CLOSED or self.interrupted:
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
        self._delivery.deliver(batch.entries, saved_before, batch.marks)
        self._session.wrote(batch, future.result())
        if self.state is State.DEGRADED:
            self.state, self.error = State.OPEN, None
        self._saved.wake()
        self.add = self._add_and_begin
        if self._closing is None:
            self._begin()
        else:
            self._write()

    def _deliver_all(self) -> None:
        """Deliver everything to the readers, saved or not."""
        first = self._saved.written
        if self._in_flight is not None:
            self._delivery.deliver(self._in_flight.entries, first)
            first += len(self._in_flight.entries)
        skipped = max(0, self._delivery.delivered - first)
        self._delivery.deliver(self._buffer.after(skipped), first + skipped)

    # --- When the store fails -----------------------------------------------------------------------------------

    def _on_failure(self, batch: WriteBatch, error: BaseException) -> None:
        """Retry for a while if that can help; else stop the run, or let it go on in memory."""
        failure = error if isinstance(error, StoreError) else StoreError(detail=repr(error))
        if self.state is State.FAILED:
            return
        if isinstance(failure, LeaseLost):
            self._end_with(failure)
            return
        self._timer.last_failure = failure
        if not failure.retryable:
            self._stop_trying(failure)
        if not self.failed:
            self._timer.schedule_retry(partial(self._step, self._send, batch))

    def _on_deadline(self) -> None:
        failure = self._timer.last_failure or StoreUnavailable(f"The store did not answer within {STORE_TIMEOUT:g} s.")
        self._stop_trying(failure)

    def _stop_trying(self, failure: StoreError) -> None:
        """Stop the run, or let it go on in memory. The write in flight may still succeed or not."""
        if self.state is State.OPEN and self._session.on_store_failure == "continue":
            self._degrade(failure)
        elif self.state is State.OPEN:
            self._end_with(failure)

    def _degrade(self, failure: StoreError) -> None:
        """Go on in memory. Readers get events at once, and the write is retried at intervals."""
        self.state, self.error = State.DEGRADED, failure
        self.add = self._add_and_begin
        self._log_detail(failure)
        self.add(StoreFailed(failure.public))
        self._saved.wake_all()

    def _end_with(self, failure: StoreError) -> None:
        if self.state is not State.CLOSED:
            self._log_detail(failure)
            self._fail(failure)
            self._host.fail(failure)

    def _fail(self, failure: StoreError) -> None:
        self.state, self.error = State.FAILED, failure
        self._timer.cancel()
        self._deadline.clear()
        self._saved.wake_all()

    def _log_detail(self, failure: StoreError) -> None:
        """What the run's events and its receipt do not have is in the log."""
        if failure.detail and not isinstance(failure, SessionBusy):
            _log.warning("Run %s: %s", self._host.run_id, failure)

    def _step(self, step: Callable[..., None], *args: Any) -> None:
        """A step that the loop calls, and not the run's task: what ends the program in it ends the run."""
        try:
            step(*args)
        except ENDS_PROGRAM as error:
            self._host.stop_because(error)
            raise

    # --- Ending -------------------------------------------------------------------------------------------------

    def finish(self, last: RunEnded, receipt: Receipt) -> asyncio.Future[None]:
        """Write how the run ended, and release the session. The future is done when that is saved, or cannot be.

        It is one write with everything that is queued, after the write that is in flight.
        """
        self._closing = (last, encode(receipt, halves=False))
        if self.state is not State.OPEN:
            return _done_future()
        done = self._saved.wait_for(self._added + 1)
        self.flush()
        return done

    def close(self) -> None:
        """Close the journal and release the lease. Readers do not get what is not saved.

        They do get it when the session was never open, or when the run went on in memory. Events that came after the
        end was saved are dropped: the end is the last event, for readers as in the store.
        """
        if self._saved.ended:
            self._buffer.clear()
        if self.state is State.DEGRADED or not self.opened:
            self._deliver_all()
        self.state = State.CLOSED
        self._timer.cancel()
        self._deadline.clear()
        if self._held is not None:
            self._held.close()
            if not self._saved.ended:
                self._held.release()
        self.add = self._buffer.add
        self.stop_waiting()
        self._saved.wake_all()  # from here on, a loop that is closed raises `RuntimeError`
        if not self._opening.task.done():
            self._opening.task.cancel()

    def unsaved_batches(self) -> list[WriteBatch]:
        """Once closed: the batches that may be missing in the store, in order, with the run's end. Safe to repeat."""
        batches: list[WriteBatch] = []
        saved, last = self._session.saved, self._in_flight
        if last is not None:
            batches.append(last)
            saved = last.first_message + len(last.messages) if last.rewrites else saved
        if last is None or last.closing is None:
            batches.append(self._buffer.take_batch(saved, self._closing))
        return batches


def _done_future() -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done
