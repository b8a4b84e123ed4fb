"""One run as the server knows it: whose it is, what it has said, who reads it, and what was left of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from ..agent import Agent
from ..cancellation import Mode
from ..events import (
    Event,
    ReasoningDelta,
    RunEnded,
    TextDelta,
    ToolCallArguments,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from ..interrupts import Interrupt
from ..messages import Message
from ..phases import Phase
from ..receipt import Receipt
from ..result import RunResult
from ..run.handle import Run
from ..usage.ledger import Ledger, LedgerEntry
from .event_log import EventLog
from .schemas import RunState, RunView, usage_view
from .settings import OnDisconnect

_TAIL: Final = 200
_HEAD: Final = 200


class OnChange(Protocol):
    """Told of whatever changes in how a run looks; `urgent` unless it is only more of the same words."""

    def __call__(self, record: RunRecord, *, urgent: bool = True) -> None:
        """The run looks different now."""


class RunRecord:
    """A run from its start until it is forgotten. Only for the loop that the run lives in."""

    def __init__(
        self,
        run: Run,
        log: EventLog,
        *,
        owner: str,
        agent: Agent,
        session: str | None,
        prompt: str,
        on_disconnect: OnDisconnect,
        grace: float,
        mode: Mode,
        on_end: Callable[[RunRecord], None],
        on_change: OnChange,
    ) -> None:
        self.id: Final = run.id
        self.owner: Final = owner
        self.agent: Final = agent
        self.session: Final = session
        self.log: Final = log
        self.created_at: Final = time.time()
        self.ended_at: float | None = None
        self.result: RunResult | None = None
        self._ledger: Final[Ledger] = run.ledger
        self.readers = 0
        self.conversation: Final = run.conversation
        self._run: Run | None = run
        self.prompt: Final = prompt[:_HEAD]
        self.on_disconnect: Final[OnDisconnect] = on_disconnect
        self._grace: Final = grace
        self.mode: Final = mode
        self._on_end: Final = on_end
        self._on_change: Final = on_change
        self._tail = ""
        self._tools: Final[dict[str, str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        run.tap(self._on_event)
        self._watch_readers()
        self._forget_stop: Final = self._tell_of_stop(run)

    # --- Looking ------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run | None:
        """The handle, while the run is going on."""
        return self._run

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, once the run has ended."""
        return None if self.result is None else self.result.receipt

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The run's model calls, and what they used."""
        return self._ledger.entries

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it is right now, always valid."""
        if self._run is not None:
            return self._run.messages
        return () if self.result is None else self.result.messages

    @property
    def state(self) -> RunState:
        """Where the run is, in one word. `ended` is said when it is true, and not before."""
        if self._run is None:
            return "ended"
        if self.id in self.conversation.line:
            return "queued"
        return "stopping" if self._run.cause is not None else "running"

    def view(self) -> RunView:
        """The run at a glance."""
        run, result = self._run, self.result
        token = None if run is None else run.token
        receipt = self.receipt
        stopping = token is not None and token.cause is not None
        return RunView(
            id=self.id,
            agent=self.agent.name,
            session=self.session,
            state=self.state,
            phase=Phase.ENDED if run is None else run.phase,
            stop_reason=None if result is None else result.stop_reason,
            prompt=self.prompt,
            created_at=self.created_at,
            ended_at=self.ended_at,
            mode=(None if receipt is None else receipt.mode) if token is None else (token.mode if stopping else None),
            cause=(None if receipt is None else receipt.cause) if token is None else token.cause,
            waiting_for=tuple(self._tools.values()) if stopping else (),
            interrupts=self.interrupts,
            usage=usage_view(self._ledger.usage),
            text_tail=self._tail,
            error=None if result is None or result.error is None else str(result.error),
            on_disconnect=self.on_disconnect,
            last_event=self.log.last,
            undoable=self._undoable,
        )

    @property
    def _undoable(self) -> tuple[str, ...]:
        log = None if self.result is None else self.result.undo_log
        return () if log is None else tuple(dict.fromkeys(effect.call.name for effect in log.remaining))

    # --- Asking a person ----------------------------------------------------------------------------------------

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What the run asked and nobody has answered yet."""
        if self.result is None or not self.result.interrupts:
            return ()
        asked = {interrupt.id for interrupt in self.conversation.interrupts}
        return tuple(interrupt for interrupt in self.result.interrupts if interrupt.id in asked)

    def cancel_questions(self) -> bool:
        """A stop of a run that waits for a person: it is no longer asked, and the calls are answered as not run."""
        if not self.interrupts:
            return False
        return bool(self.conversation.cancel_pending(self.agent.config.cut_note))

    @property
    def has_moved_on(self) -> bool:
        """Whether something was said in the conversation after this run."""
        return self.result is not None and self.conversation.messages != self.result.messages

    # --- Readers ------------------------------------------------------------------------------------------------

    def reader_came(self) -> None:
        """Somebody reads the events now."""
        self.readers += 1
        self._forget_timer()

    def reader_left(self) -> None:
        """One reader less; the last one may have been what the run was for."""
        self.readers -= 1
        self._watch_readers()

    def _watch_readers(self) -> None:
        if self.on_disconnect == "cancel" and self.readers == 0 and self._run is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._grace, self._nobody_reads)

    def _nobody_reads(self) -> None:
        self._timer = None
        if self._run is not None and self.readers == 0:
            why = f"nobody has read this run's events for {self._grace:g} s"
            self._run.cancel(why, mode=self.mode, source="disconnect")

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- Writing down -------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        """Called by the run for each event, so it must be quick and may not raise."""
        urgent = True
        match event:
            case TextDelta(text):
                urgent = False
                self._tail = (self._tail + text)[-_TAIL:]
            case ToolStarted(call):
                self._tools[call.id] = call.name
            case ToolEnded(result):
                self._tools.pop(result.call_id, None)
            case RunEnded():
                self._close()
            case ReasoningDelta() | ToolCallArguments() | ToolProgress():
                urgent = False
            case _:
                pass
        self.log.append(event)
        self._on_change(self, urgent=urgent)

    def _tell_of_stop(self, run: Run) -> Callable[[], None]:
        """A stop changes the run's state before the run itself has anything to say about it. It may be a thread's."""
        loop = asyncio.get_running_loop()

        def tell(_: object) -> None:
            with suppress(RuntimeError):  # the loop has closed, and nobody reads any more
                loop.call_soon_threadsafe(self._on_change, self)

        return run.token.on_cancel(tell)

    def _close(self) -> None:
        """The run is at rest: keep what it left, and let the rest of it go."""
        run = self._run
        assert run is not None
        self.result = run.inspect().result
        self.ended_at = time.time()
        self._forget_timer()
        self._forget_stop()
        self._tools.clear()
        self._run = None
        self._on_end(self)
