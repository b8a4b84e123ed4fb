"""The course of one run: what the loop and the settling read and write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ..billing.drain import Tail
from ..billing.request_bill import Bill
from ..cancellation import BoundedShield, CancellationToken, Mode, StopScope
from ..errors import (
    ModelError,
    StoreError,
)
from ..events import ChildEvent, Event, HookFailed, LateOutcomeRecorded, ModelCallEnded
from ..hooks import AfterToolCall, BeforeToolCall, HookEvent, OnLateOutcome
from ..interrupts import PendingTurn
from ..messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolResult,
    UserMessage,
)
from ..models.base import ModelRequest
from ..phases import LEGAL, STOPS_AT, Phase
from ..receipt import CallReceipt, LateOutcome
from ..result import RunResult, StopReason
from ..sessions import Conversation
from ..sessions.journal.journal import Journal
from ..sessions.queue.waiting import Wish
from ..tools.batch import Batch
from ..tools.questions import Asking
from ..tools.undo.log import UndoLog
from ..usage.budget import Tally, spending
from ..usage.ledger import HowItEnded, Ledger, LedgerEntry
from .config import Handover, Opening, Setup, terms_of
from .events.fanout import Broadcast
from .foreign_tasks import Errands
from .inbox import Inbox, join
from .pause import Pausing
from .remote_prompts import Correspondence
from .turn import CurrentTurn

_SUMMARY: Final = "context.summary"


@dataclass(frozen=True, slots=True)
class Parentage:
    """The run that a child run belongs to, and the call of it that started the child."""

    course: Course
    call_id: str

    def has(self, run_id: str) -> bool:
        """Whether this is a run of the line that the child continues."""
        return any(course.run_id == run_id for course in self.course.lineage())


class Course:
    """Where a run is, what it has, and the few things that it can do to itself. Only for the run's own loop."""

    journal: Journal | None = None
    unsaved: StoreError | None = None

    def __init__(
        self,
        run_id: str,
        setup: Setup,
        conversation: Conversation,
        opening: Opening,
        token: CancellationToken,
        *,
        parent: Parentage | None = None,
    ) -> None:
        self.run_id: Final = run_id
        self.setup = setup
        self.conversation: Final = conversation
        self.current: Final = CurrentTurn(conversation)
        self.opening: Final = opening
        self.prompt = opening.prompt
        self.token: Final = token
        self.leg = token.child()
        self.loop: Final = asyncio.get_running_loop()
        self.inbox: Final = Inbox()
        self.correspondence: Final = Correspondence(run_id, conversation, self.inbox, lambda: self.steer_soon(Mode.NOW))
        self.pausing: Final = Pausing(self.loop)
        self.floor: Final[asyncio.Future[None]] = self.loop.create_future()
        self.parent: Final = None if parent is None else parent.course
        self.call_id: Final = None if parent is None else parent.call_id
        self.handle: Any = None
        self.children: Final[list[Course]] = []
        self.broadcast: Final = Broadcast() if parent is None else Broadcast(parent.course.broadcast, self._as_child)
        ledger = Ledger() if parent is None else Ledger(parent.course.ledger)
        self.bill: Final = Bill(run_id, ledger, conversation, self.refresh_receipt, terms_of(setup))
        self.tally: Final = Tally()
        self.undo_log: Final = UndoLog(None if parent is None else parent.course.undo_log)
        self.undo_wanted: bool | None = None
        self.undo_token: Final = CancellationToken()
        self.handover: Handover | None = None
        self.handed: tuple[str, ...] = ()
        """The tools by which the conversation has come to the agent that has it now."""
        self.shield: Final = BoundedShield(f"settling run {run_id}")
        self.scope: StopScope | None = None

        self.phase = Phase.WAITING
        self.turn = 0
        self.attempt = 0
        self.output_tries = 0
        self.retry_delay = 0.0
        self.batches: Final[list[Batch]] = []
        self.errands: Final = Errands()
        self.asked_during: Phase | None = None
        self.torn: tuple[tuple[str, str], ...] = ()
        self.late: Final[list[LateOutcome]] = []

        self.finished: tuple[StopReason, Any] | None = None
        self.error: Exception | None = None
        self.result: RunResult | None = None
        self.asides: Final[list[Bill]] = []
        self.has_floor = False
        self.first_message = 0
        self.already_said = ""
        self.unannounced: tuple[Message, ...] = ()
        self.to_say: tuple[UserMessage, ...] = ()
        token.watch(self._note_request)

    # --- Where it is --------------------------------------------------------------------------------------------

    def enter(self, phase: Phase) -> None:
        """Go on to the next phase, and let the scope obey the stops that matter there."""
        if phase not in LEGAL[self.phase]:
            raise AssertionError(f"A run cannot go from {self.phase} to {phase}.")
        self.phase = phase
        if self.scope is not None and phase in STOPS_AT:
            self.scope.react_at(STOPS_AT[phase])

    @property
    def stop_wanted(self) -> bool:
        """Whether a stop was asked for that this phase obeys."""
        return self.leg.wants(STOPS_AT[self.phase])

    def _note_request(self, _: object) -> None:
        """Remember what the run was doing when a stop was first asked for. From any thread."""
        if self.asked_during is None:
            self.asked_during = self.phase

    def finish(self, reason: StopReason, output: Any = None) -> None:
        """The run has come to its own end. A stop from now on comes too late."""
        self.finished = (reason, output)

    # --- What the outside sees ----------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Tell the readers, unless the run is over."""
        if self.phase is not Phase.ENDED:
            self.broadcast.push(event)

    # --- Its tools ----------------------------------------------------------------------------------------------

    def suspend(self, answer: AssistantMessage, batch: Batch) -> None:
        """Keep the turn until a person has answered what its tools ask, and, in this process, what undoes it."""
        self.conversation.undoable = (self.run_id, self.undo_log.of_turn)
        self.current.suspend(PendingTurn(self.run_id, answer, batch.pending(), handed=self.handed), self.setup.cut_note)

    def begin_batch(self, calls: tuple[ToolCall, ...]) -> Batch:
        """The tools that the answer asks for; none has started."""
        batch = self.new_batch(calls)
        self.current.use_tools(batch)
        return batch

    def new_batch(self, calls: tuple[ToolCall, ...], pending: PendingTurn | None = None) -> Batch:
        """Calls of this run, to be shown by the current turn; `pending` is what an earlier run had got to with them."""
        batch = Batch(calls, self.setup.tools, self, sequential=self.setup.sequential, pending=pending)
        self.batches.append(batch)
        self.undo_log.begin_turn()
        if pending is not None:
            run_id, effects = self.conversation.undoable
            self.undo_log.carry_on(batch.undoable_calls(), effects if run_id == pending.run_id else ())
        return batch

    # --- What is saved ------------------------------------------------------------------------------------------

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self.setup.agent

    def open_journal(self) -> Journal:
        """Begin to open the conversation's store."""
        journal = self.conversation.journal(self)
        assert journal is not None
        self.journal = self.broadcast.gate = journal
        return journal

    @property
    def wish(self) -> Wish:
        """What to do when another process has the session."""
        return Wish(self.opening.on_busy, self.opening.prompt)

    def deliver(self, events: Sequence[Event]) -> None:
        """Hand the readers events that are saved now."""
        self.broadcast.deliver(events)

    def fail(self, error: StoreError) -> None:
        """The store failed: end the run, unless it is ending already; then settling says what was not saved."""
        if self.phase not in (Phase.SETTLING, Phase.ENDED) and self.error is None:
            self.error = error
            if self.scope is not None:
                self.scope.close()

    async def durable(self) -> None:
        """Wait until everything that happened so far is saved, where there is a store to save it in."""
        if self.journal is not None:
            await self.journal.durable()

    async def before_start(self, call: ToolCall) -> None:
        """Write down that a tool is about to run, before it does."""
        if self.journal is not None:
            await self.journal.intend(call.id)

    def idempotency_key(self, call: ToolCall) -> str:
        """The same for the same call, whatever happens to the process in between."""
        return f"{self.conversation.id}/{call.id}"

    # --- What it is told while it is busy ------------------------------------------------------------------------

    def steer_soon(self, mode: Mode) -> None:
        """Something urgent is in the inbox. From any thread."""
        with suppress(RuntimeError):  # the loop has closed
            self.loop.call_soon_threadsafe(self._steer, mode)

    def _steer(self, mode: Mode) -> None:
        if self.has_floor and self.inbox.urgent:
            self.leg.cancel("steered", mode=mode)

    def collect(self, *, urgent_only: bool = False) -> bool:
        """Take what is in the inbox, to be said next. Whether there is anything to say."""
        self.to_say += self.inbox.take(urgent_only=urgent_only)
        return bool(self.to_say)

    def next_words(self) -> UserMessage:
        """What is to be said, as one message, which the caller puts into the conversation in the same step."""
        words, self.to_say = self.to_say, ()
        self.correspondence.say(words, self.journal)
        return join(words)

    def new_leg(self) -> None:
        """What follows is not what was steered away from."""
        self.leg = self.token.child()

    # --- Above and below ----------------------------------------------------------------------------------------

    def attach(self) -> None:
        """The run is going to be: let the run above know."""
        if self.parent is not None:
            self.parent.children.append(self)

    def _as_child(self, event: Event) -> Event:
        """An event as the readers of the run above see it."""
        return ChildEvent(self.call_id or "", self.run_id, event)

    def lineage(self) -> Iterator[Course]:
        """This run and the runs above it, from here to the root."""
        course: Course | None = self
        while course is not None:
            yield course
            course = course.parent

    # --- Other people's code ------------------------------------------------------------------------------------

    async def call_hooks(self, event: HookEvent) -> None:
        """Call the hooks for an event, from the run's own task."""
        if self.setup.hooks.wanting(type(event)):
            await self.durable()
            called = self.setup.hooks.call(event, self.hook_failed)
            await self.errands.attend(called, f"hooks for {type(event).__name__}")

    def hook_failed(self, name: str, event: HookEvent, error: BaseException) -> None:
        """A hook raised: an event, not a dead run."""
        self.emit(HookFailed(name, type(event).__name__, f"{type(error).__name__}: {error}"))

    # --- What tools need of their run (`ToolHost`) --------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """The agent's state."""
        return self.setup.state

    async def before_tool(self, call: ToolCall, asking: Asking) -> ToolResult | None:
        """Ask the hooks; a result means that the tool need not run."""
        if self.setup.hooks.wanting(BeforeToolCall):
            await self.durable()
        event = BeforeToolCall(self.run_id, self.token, call, asking)
        await self.setup.hooks.call(event, self.hook_failed)
        return event.replacement

    async def after_tool(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Show the hooks a result; they may give another one."""
        event = AfterToolCall(self.run_id, self.token, call, result)
        await self.setup.hooks.call(event, self.hook_failed)
        return event.replacement or result

    def record_late(self, outcome: LateOutcome) -> None:
        """A call that was left behind has ended. From the loop, or from the tool's thread once the loop has closed.

        The runs above said on their receipts that it was running: they tell of its end, too.
        """
        told = self.loop.is_closed()
        for course in self.lineage():
            course.late.append(outcome)
            kept = course.journal is not None and course.journal.keep_late(outcome)
            if not (told or kept or course.phase is Phase.ENDED):
                course.emit(LateOutcomeRecorded(outcome))
                told = True
            if not self.loop.is_closed():
                course._call_late_hooks(outcome)

    def _call_late_hooks(self, outcome: LateOutcome) -> None:
        if self.setup.hooks.wanting(OnLateOutcome):
            receipt = None if self.result is None else self.result.receipt
            event = OnLateOutcome(self.run_id, self.token, outcome, receipt)
            task = self.loop.create_task(self.setup.hooks.call(event, self.hook_failed), name="hooks for OnLateOutcome")
            self.errands.strays.append(task)

    def cancel_tool(self, call_id: str, reason: str) -> bool:
        """Stop one call of the current turn. From any thread; whether there was one to stop."""
        batch = self.current.batch
        if batch is None or not batch.has_call(call_id):
            return False
        why = f"This call was stopped on request ({reason})." if reason else "This call was stopped on request."
        try:
            self.loop.call_soon_threadsafe(batch.cancel_call, call_id, why)
        except RuntimeError:  # the loop has closed
            return False
        return True

    # --- The bill -----------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The record of the run's requests."""
        return self.bill.ledger

    def open_entry(self, request: ModelRequest) -> None:
        """Book a request that is about to be sent."""
        assert self.current.draft is not None
        self.bill.open(request, self.current.draft, turn=self.turn, attempt=self.attempt)

    def close_entry(self, ended: HowItEnded, error: ModelError | None = None) -> None:
        """Write down what the current request used and how it ended, once. What it taught is kept with the session."""
        entry = self.bill.close(ended, error)
        if entry is not None and self.journal is not None:
            lessons = self.bill.accounts.lessons(self.conversation)
            if lessons is not None:
                self.journal.set_value(*lessons)
        self.book(entry)

    def book(self, entry: LedgerEntry | None) -> None:
        """Count what a request used against the limits, of the runs above too, and tell the readers."""
        if entry is None:
            return
        spent = spending(entry)
        for course in self.lineage():
            course.tally.note(entry.id, spent)
        self.emit(ModelCallEnded(entry))

    def tail(self) -> Tail | None:
        """Who reads the model's stream on after a stop, to learn what is billed; None where hanging up is right."""
        cause = self.token.cause
        ending = cause is not None and cause.source == "shutdown"
        return self.bill.tail(allowed=not ending and not self.token.wants(Mode.KILL))

    def adopt_stream(self, stream: asyncio.Task[Any]) -> bool:
        """Hand the task that reads the model's stream to the bill, which lets it go on, instead of cancelling it."""
        if stream.done() or self.tail() is None:
            return False
        self.bill.adopt(stream)
        return True

    def refresh_receipt(self) -> None:
        """Better figures have come, or never will: the receipt says so too, and those of the runs above."""
        for course in self.lineage():
            if course.result is not None:
                course.result.receipt.usage = course.ledger.usage
                course.result.receipt.still_running = course.still_running()

    # --- The receipt --------------------------------------------------------------------------------------------

    def call_receipts(self) -> tuple[CallReceipt, ...]:
        """What became of every call of the run."""
        return tuple(receipt for batch in self.batches for receipt in batch.receipts())

    def still_running(self) -> tuple[str, ...]:
        """What could not be proved to have stopped."""
        tools = (name for batch in self.batches for name in batch.still_running())
        below = (name for child in self.children for name in child.remains())
        strays = (task.get_name() for task in self.errands.strays if not task.done())
        followed = (name for bill in (self.bill, *self.asides) for name in bill.followed())
        return (*tools, *strays, *followed, *below)

    def remains(self) -> tuple[str, ...]:
        """What is left of this run, for the receipt of the run above."""
        itself = () if self.phase is Phase.ENDED else (f"run {self.run_id} ({self.setup.agent})",)
        return (*itself, *self.still_running())

    @property
    def living_children(self) -> list[Course]:
        """The runs below that have not ended."""
        return [child for child in self.children if child.phase is not Phase.ENDED]

    def latency(self) -> float | None:
        """Seconds since the stop was asked for."""
        cause = self.token.cause
        return None if cause is None else time.perf_counter() - cause.clock
