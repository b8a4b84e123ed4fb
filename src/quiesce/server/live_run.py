"""A run of this process, from its start until the server deletes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from ..errors import public_text
from ..events import (
    Event,
    InterruptAnswered,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from ..interrupts import AnswerRecord, Interrupt
from ..messages import Message
from ..phases import Phase
from ..receipt import Receipt
from ..result import RunResult
from ..run.handle import Run
from ..usage.ledger import Ledger, LedgerEntry
from .event_log import EventLog
from .run_metadata import TEXT_TAIL_LENGTH, RunMetadata
from .schemas import RunStatus, RunView, usage_view
from .stream_readers import StreamReaders


class OnChange(Protocol):
    """A callback for each change in a run's view. `urgent` is false when only more text or progress has arrived."""

    def __call__(self, run: LiveRun, *, urgent: bool = True) -> None:
        """Handle a change of `run`."""


@dataclass(slots=True)
class _Told:
    """What the events of a run have told so far, as far as a view shows it."""

    text_tail: str = ""
    task: str = ""
    answers: list[AnswerRecord] = field(default_factory=list[AnswerRecord])


class LiveRun:
    """A run of this process with its event log and its readers. Only for the loop that the run lives in."""

    def __init__(
        self, run: Run, log: EventLog, info: RunMetadata, *, on_end: Callable[[LiveRun], None], on_change: OnChange
    ) -> None:
        self.id: Final = run.id
        self.info: Final = info
        self.log: Final = log
        self.conversation: Final = run.conversation
        self.readers: Final = StreamReaders(run, info)
        self.ended_at: float | None = None
        self.result: RunResult | None = None
        self._run: Run | None = run
        self._ledger: Final[Ledger] = run.ledger
        self._told: Final = _Told()
        self._running_tools: Final[dict[str, str]] = {}
        self._on_end: Final = on_end
        self._on_change: Final = on_change
        run.tap(self._on_event)
        self._unsubscribe_from_stop: Final = self._subscribe_to_stop(run)

    # --- Views --------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run | None:
        """The handle of the run; None once it has ended."""
        return self._run

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, once the run has ended."""
        return None if self.result is None else self.result.receipt

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The run's model calls and their usage."""
        return self._ledger.entries

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation at this moment, always valid."""
        if self._run is not None:
            return self._run.messages
        return () if self.result is None else self.result.messages

    @property
    def status(self) -> RunStatus:
        """The status of the run. It is `ended` only when the run is at rest."""
        if self._run is None:
            return "ended"
        if self.id in self.conversation.queued:
            return "queued"
        return "stopping" if self._run.cause is not None else "running"

    def view(self, *, live: bool = False) -> RunView:
        """The run as clients see it; `live`, with an estimate of the answer that is being streamed."""
        run, result, receipt = self._run, self.result, self.receipt
        stop = receipt if run is None else run
        cause = None if stop is None else stop.cause
        stopping = run is not None and cause is not None
        return RunView(
            id=self.id,
            agent=self.info.agent.name,
            session=self.info.session,
            state=self.status,
            phase=Phase.ENDED if run is None else run.phase,
            stop_reason=None if result is None else result.stop_reason,
            prompt=self.info.prompt,
            created_at=self.info.created_at,
            ended_at=self.ended_at,
            mode=None if stop is None or cause is None else stop.mode,
            cause=cause,
            waiting_for=tuple(self._running_tools.values()) if stopping else (),
            interrupts=self.interrupts,
            usage=usage_view(run.usage.snapshot() if run is not None and live else self._ledger.usage),
            text_tail=self._told.text_tail,
            error=None if result is None or result.error is None else public_text(result.error),
            on_disconnect=self.info.on_disconnect,
            last_event=self.log.last,
            undoable=self._undoable,
            task=self._told.task,
            answers=tuple(self._told.answers),
            paused=run is not None and run.paused,
        )

    @property
    def _undoable(self) -> tuple[str, ...]:
        undo_log = None if self.result is None else self.result.undo_log
        return () if undo_log is None else tuple(dict.fromkeys(effect.call.name for effect in undo_log.remaining))

    # --- Human in the loop --------------------------------------------------------------------------------------

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """The run's approvals and questions that have no answer yet, also while its other calls go on."""
        if self._run is not None:
            return self._run.interrupts
        if self.result is None or not self.result.interrupts:
            return ()
        pending = {interrupt.id for interrupt in self.conversation.interrupts}
        return tuple(interrupt for interrupt in self.result.interrupts if interrupt.id in pending)

    def cancel_interrupts(self) -> bool:
        """Withdraw the pending approvals and questions: their calls are answered as not run. False without any."""
        return bool(self.interrupts) and bool(self.conversation.cancel_pending(self.info.agent.config.cut_note))

    @property
    def has_moved_on(self) -> bool:
        """Whether the conversation has messages that are newer than this run."""
        return self.result is not None and self.conversation.messages != self.result.messages

    # --- Callbacks of the run -----------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        """Handle an event. The run calls this for each one, so it must be quick and may not raise."""
        urgent = True
        match event:
            case TextDelta(text):
                urgent = False
                self._told.text_tail = (self._told.text_tail + text)[-TEXT_TAIL_LENGTH:]
            case RunStarted(task=task):
                self._told.task = task
            case InterruptAnswered(record):
                self._told.answers.append(record)
            case ToolStarted(call):
                self._running_tools[call.id] = call.name
            case ToolEnded(result):
                self._running_tools.pop(result.call_id, None)
            case RunEnded():
                self._close()
            case ReasoningDelta() | ToolCallArguments() | ToolProgress():
                urgent = False
            case _:
                pass
        self.log.append(event)
        self._on_change(self, urgent=urgent)

    def _subscribe_to_stop(self, run: Run) -> Callable[[], None]:
        """Report a stop as a change: it changes the status before the run emits an event. It may come from a thread."""
        loop = asyncio.get_running_loop()

        def on_stop(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed, so there are no readers
                loop.call_soon_threadsafe(self._on_change, self)

        return run.token.on_cancel(on_stop)

    def _close(self) -> None:
        """Keep the result of the run, which is at rest, and release the handle."""
        run = self._run
        assert run is not None
        self.result = run.inspect().result
        self.ended_at = time.time()
        self.readers.close()
        self._unsubscribe_from_stop()
        self._running_tools.clear()
        self._run = None
        self._on_end(self)
