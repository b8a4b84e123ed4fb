"""The course of one run: what the loop and the settling read and write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from .bill import Bill, Terms
from .broadcast import Broadcast
from .cancellation import BoundedShield, CancellationToken, Mode, StopScope
from .context import Context, Summary, is_summarised
from .continuing import GO_ON, GO_ON_FROM_END, continued, prefill_message
from .draft import Draft
from .drains import Drains, Tail
from .errors import (
    ConversationBusy,
    InterruptPending,
    ModelError,
    ModelProtocolError,
    NothingToContinue,
    StoreError,
    ToolError,
)
from .events import ChildEvent, ContextReduced, Event, HandedOver, HookFailed, LateOutcomeRecorded, ModelCallEnded
from .hooks import AfterToolCall, BeforeToolCall, HookEvent, Hooks, OnLateOutcome
from .inbox import Inbox
from .interrupts import Answers, PendingTurn
from .limits import Limits
from .messages import (
    AssistantContent,
    AssistantMessage,
    Message,
    Outcome,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from .models.base import Model, ModelRequest
from .output import OutputSpec
from .pausing import Pausing
from .receipt import CallReceipt, LateOutcome
from .result import RunResult, StopReason
from .retry import Retry
from .sessions import Conversation
from .sessions.journal import Journal
from .state import LEGAL, STOPS_AT, Phase
from .tools.asking import Asking
from .tools.batch import Batch
from .tools.tool import Tool
from .tools.undo import UndoLog
from .transcript import DEFAULT_CUT_NOTE, DEFAULT_FAILED_NOTE, check, seal_answer, seal_turn
from .usage.accounts import Accounts
from .usage.calibration import Calibration
from .usage.ledger import HowItEnded, Ledger, LedgerEntry
from .usage.price_list import published_price
from .usage.prices import Price
from .usage.stop_policy import StopPolicy, policy_for
from .usage.tally import Tally, spending

_T = TypeVar("_T")
_SUMMARY: Final = "context.summary"
OnPrompt: TypeAlias = Literal["refuse", "cancel_pending"]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run is started with. Never changes while it runs."""

    agent: str
    model: Model
    instructions: str | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    hooks: Hooks = field(default_factory=Hooks)
    limits: Limits = field(default_factory=Limits)
    retry: Retry = field(default_factory=Retry)
    output: OutputSpec | None = None
    output_retries: int = 2
    sequential: bool = False
    cut_note: str = DEFAULT_CUT_NOTE
    failed_note: str = DEFAULT_FAILED_NOTE
    state: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] | None = None
    context: Context | None = None
    accounts: Accounts | None = None
    stop_policy: StopPolicy | None = None
    drains: Drains = field(default_factory=Drains)


def open_accounts(model: Model, calibration: Calibration | None = None) -> Accounts:
    """Accounts with a model: at its own price, or at the published one."""
    return Accounts(
        model.name,
        tokenizer=getattr(model, "tokenizer", None),
        price=model.price or published_price(model.name),
        calibration=calibration,
    )


def price_of(setup: Setup) -> Price | None:
    """What the model's tokens cost: its own price, or the published one."""
    return setup.model.price if setup.accounts is None else setup.accounts.price


def terms_of(setup: Setup) -> Terms:
    """On what terms a run's requests are billed."""
    model = setup.model
    policy = setup.stop_policy or policy_for(model.name, getattr(model, "stop_policy", None))
    return Terms(model, setup.accounts or open_accounts(model), policy, setup.drains)


@dataclass(frozen=True, slots=True)
class Opening:
    """What a run begins with: a prompt, answers to what a person was asked, or the answer that was cut."""

    prompt: UserMessage | None = None
    answers: Answers | None = None
    on_prompt: OnPrompt = "cancel_pending"


@dataclass(frozen=True, slots=True)
class Parentage:
    """The run that a child run belongs to, and the call of it that started the child."""

    course: Course
    call_id: str


class View(NamedTuple):
    """What there is to see of a conversation while a run adds to it; replaced whole, so that any thread may look.

    `answer` is that of a turn which an earlier run began and this one goes on with.
    """

    settled: tuple[Message, ...]
    draft: Draft | None = None
    batch: Batch | None = None
    answer: AssistantMessage | None = None

    def turn(self, *, unsettled: Outcome) -> tuple[Message, ...]:
        """What the current turn amounts to so far; `unsettled` is said of the calls that have no result yet."""
        results: dict[str, ToolResult] = {}
        if self.batch is not None:
            for record in self.batch.records:
                results[record.call.id] = record.standing(unsettled)
        return seal_turn(self.draft, results) if self.answer is None else seal_answer(self.answer, results)


class Course:
    """Where a run is, what it has, and the few things that it can do to itself. Only for the run's own loop."""

    journal: Journal | None = None
    unsaved: StoreError | None = None
    sending: tuple[Message, ...] = ()

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
        self.opening: Final = opening
        self.prompt = opening.prompt
        self.token: Final = token
        self.leg = token.child()
        self.loop: Final = asyncio.get_running_loop()
        self.inbox: Final = Inbox()
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
        self.successor: Setup | None = None
        self.shield: Final = BoundedShield(f"settling run {run_id}")
        self.scope: StopScope | None = None

        self.phase = Phase.WAITING
        self.turn = 0
        self.attempt = 0
        self.output_tries = 0
        self.retry_delay = 0.0
        self.tool_calls = 0
        self.batches: Final[list[Batch]] = []
        self.strays: Final[list[asyncio.Task[Any]]] = []
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
        self._continued: tuple[AssistantContent, ...] | None = None
        self._view = View(())
        token.watch(self._note_request)

    # --- Beginning ----------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """The run is going to be: let the run above know."""
        if self.parent is not None:
            self.parent.children.append(self)

    def begin(self) -> None:
        """Take the conversation and begin. Raises `ConversationBusy`, and what `take_floor` raises."""
        self.conversation.hold(self.run_id)
        try:
            self._respect_line()
            if self.conversation.must_be_opened:
                self.floor.set_result(None)
            else:
                self.take_floor()
        except BaseException:
            self.conversation.release(self.run_id)
            raise

    def _respect_line(self) -> None:
        """Runs that came before and wait for the person's answer, as this one would, go first."""
        line = self.conversation.line
        if line and self.opening.answers is None and self.opening.on_prompt != "refuse":
            self.conversation.drop_pending(self.setup.cut_note)
            raise ConversationBusy(line[0])

    def grant_floor(self) -> None:
        """The conversation is this run's, after it had to wait. From any thread."""

        def grant() -> None:
            if not self.floor.done():
                self.floor.set_result(None)

        try:
            self.loop.call_soon_threadsafe(grant)
        except RuntimeError:  # the loop has closed, and the run with it
            self.conversation.release(self.run_id)

    def open_journal(self) -> Journal:
        """Begin to open the conversation's store."""
        journal = self.conversation.journal(self)
        assert journal is not None
        self.journal = self.broadcast.gate = journal
        return journal

    def take_floor(self) -> None:
        """The conversation is this run's: begin. Raises an `InterruptError`, and then nothing is changed."""
        conversation, opening = self.conversation, self.opening
        self.first_message = len(conversation.messages)
        if opening.answers is not None:
            self._take_up(conversation.take_pending(opening.answers, self.run_id))
        else:
            if conversation.pending is not None:
                if opening.on_prompt == "refuse":
                    raise InterruptPending(each.id for each in conversation.interrupts)
                conversation.drop_pending(self.setup.cut_note)
                self.first_message = len(conversation.messages)
            if opening.prompt is None:
                self._continue()
            if self.prompt is not None:
                conversation.append(self.prompt)
            self._view = View(conversation.messages)
        self.has_floor = True
        self.enter(Phase.CREATED)

    def _take_up(self, pending: PendingTurn) -> None:
        """Go on with a turn that waited for a person."""
        self.already_said = pending.answer.text
        batch = self._new_batch(pending.answer.tool_calls, pending)
        self._view = View(self.conversation.messages, None, batch, pending.answer)

    def _continue(self) -> None:
        """Go on with the last answer: in its own words where the model allows that, else because a user says so."""
        messages = self.conversation.messages
        last = messages[-1] if messages else None
        if not isinstance(last, AssistantMessage):
            raise NothingToContinue("There is no answer to continue.")
        said = continued(last, prefill=getattr(self.setup.model, "supports_prefill", False))
        if said is None:
            self.prompt = UserMessage((Text(GO_ON if last.cut else GO_ON_FROM_END),))
            return
        self._continued = said
        self.already_said = last.text
        self.first_message -= 1

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

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it would be if the run ended in this instant. Always valid, from any thread."""
        view = self._view
        return (*view.settled, *view.turn(unsettled=Outcome.UNKNOWN))

    @property
    def draft(self) -> Draft | None:
        """The answer that is being written, or was written last in this turn."""
        return self._view.draft

    @property
    def batch(self) -> Batch | None:
        """The tools of this turn."""
        return self._view.batch

    def begin_answer(self) -> Draft:
        """A new answer; whatever a failed try had begun is gone."""
        draft = Draft(self.call_ids(), self._continued or ())
        self._view = View(self.settled, draft)
        return draft

    @property
    def settled(self) -> tuple[Message, ...]:
        """The conversation before the current turn."""
        messages = self.conversation.messages
        return messages if self._continued is None else messages[:-1]

    def request_messages(self) -> tuple[Message, ...]:
        """What the model is sent: everything settled, and the beginning of the answer that it is to go on with."""
        if not self._continued:
            return self.settled
        return (*self.settled, prefill_message(self._continued))

    def forget_answer(self) -> None:
        """A try failed before anybody could read it."""
        self._view = View(self.conversation.messages)

    def begin_batch(self, calls: tuple[ToolCall, ...]) -> Batch:
        """The tools that the answer asks for; none has started."""
        batch = self._new_batch(calls, None)
        self._view = self._view._replace(batch=batch)
        return batch

    def _new_batch(self, calls: tuple[ToolCall, ...], pending: PendingTurn | None) -> Batch:
        batch = Batch(calls, self.setup.tools, self, sequential=self.setup.sequential, pending=pending)
        self.batches.append(batch)
        return batch

    def turn_messages(self, *, unsettled: Outcome = Outcome.NEVER_STARTED) -> tuple[Message, ...]:
        """What the current turn amounts to so far; `unsettled` is said of the calls that have no result yet."""
        return self._view.turn(unsettled=unsettled)

    def commit(self, turn: tuple[Message, ...]) -> None:
        """Put the turn into the conversation and begin a new one. What `messages` shows never wavers in between."""
        if turn:
            self.conversation.append(*turn, replacing=self._replacing)
            self._continued = None
        self._view = View(self.conversation.messages)

    # --- What is saved ------------------------------------------------------------------------------------------

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self.setup.agent

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

    def suspend(self, answer: AssistantMessage, batch: Batch) -> None:
        """Keep the turn beside the conversation, until a person has answered what its tools ask."""
        pending = PendingTurn(self.run_id, answer, batch.pending())
        self.conversation.suspend(pending, replacing=self._replacing)
        self._view = View(self.conversation.sealed(self.setup.cut_note))

    @property
    def _replacing(self) -> int:
        return 0 if self._continued is None else 1

    def speak(self, message: UserMessage) -> None:
        """Say something in the person's name, in a conversation where that may follow."""
        self.conversation.append(message)
        self._continued = None
        self._view = View(self.conversation.messages)

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

    def new_leg(self) -> None:
        """What follows is not what was steered away from."""
        self.leg = self.token.child()

    @property
    def answer(self) -> AssistantMessage | None:
        """The current answer, as far as it has come."""
        turn = self.turn_messages(unsettled=Outcome.UNKNOWN)
        return turn[0] if turn and isinstance(turn[0], AssistantMessage) else None

    def call_ids(self) -> set[str]:
        """The call ids that the conversation has used."""
        return {
            call.id
            for message in self.conversation.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        }

    # --- Above and below ----------------------------------------------------------------------------------------

    def _as_child(self, event: Event) -> Event:
        """An event as the readers of the run above see it."""
        return ChildEvent(self.call_id or "", self.run_id, event)

    def lineage(self) -> Iterator[Course]:
        """This run and the runs above it, from here to the root."""
        course: Course | None = self
        while course is not None:
            yield course
            course = course.parent

    def hand_over(self, agent: Any) -> None:
        """Let another agent continue the conversation after this turn. Raises `ToolError` when that cannot be."""
        setup: Setup = agent.setup
        if self.successor is not None:
            raise ToolError(f"The conversation is already handed over to {self.successor.agent}.")
        if price_of(setup) is None and any(course.setup.limits.cost is not None for course in self.lineage()):
            raise ToolError(f"{setup.agent} cannot take over: the run's cost is limited, and its price is not known.")
        self.successor = setup

    def take_over(self) -> None:
        """Go on with the agent that the conversation was handed to, if it was."""
        successor, self.successor = self.successor, None
        if successor is None:
            return
        before = self.setup
        hooks = before.hooks if before.agent == successor.agent else before.hooks.joined(successor.hooks)
        self.setup = replace(successor, limits=before.limits, hooks=hooks)
        self.bill.deal_with(terms_of(self.setup))
        self.emit(HandedOver(before.agent, successor.agent))

    # --- Other people's code ------------------------------------------------------------------------------------

    async def attend(
        self, work: Coroutine[Any, Any, _T], name: str, adopt: Callable[[asyncio.Task[Any]], bool] | None = None
    ) -> _T:
        """Await somebody's coroutine so that a stop does not have to wait for it.

        It runs in a task of its own. A stop cancels that task and goes on; settling gives it a moment to unwind, and
        names it on the receipt when it does not. A task that `adopt` takes is not cancelled, and is somebody else's.
        """
        task = asyncio.create_task(work, name=name)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            if adopt is None or not adopt(task):
                task.cancel()
                self.strays.append(task)
            raise
        return task.result()

    async def call_hooks(self, event: HookEvent) -> None:
        """Call the hooks for an event, from the run's own task."""
        if self.setup.hooks.wanting(type(event)):
            await self.durable()
            await self.attend(self.setup.hooks.call(event, self.hook_failed), f"hooks for {type(event).__name__}")

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
        """A call that was left behind has ended. From the loop, or from the tool's thread once the loop has closed."""
        receipt = self.result.receipt if self.result is not None else None
        self.late.append(outcome)
        if self.loop.is_closed():
            return
        self.emit(LateOutcomeRecorded(outcome))
        event = OnLateOutcome(self.run_id, self.token, outcome, receipt)
        if self.setup.hooks.wanting(OnLateOutcome):
            task = self.loop.create_task(self.setup.hooks.call(event, self.hook_failed), name="hooks for OnLateOutcome")
            self.strays.append(task)

    # --- Keeping inside the window (`ContextHost`) --------------------------------------------------------------

    async def fit(self) -> None:
        """Choose what of the conversation is to be sent."""
        messages = self.sending = self.request_messages()
        if self.setup.context is not None:
            self.sending = await self.setup.context.fit(messages, self)
        if self.sending is not messages:
            check(self.sending)
            self.emit(ContextReduced(len(messages) - len(self.sending), is_summarised(self.sending)))

    @property
    def summary(self) -> Summary | None:
        """The last summary of the conversation."""
        found = self.conversation.values.get(_SUMMARY)
        return None if found is None else msgspec.json.decode(found, type=Summary)

    def keep_summary(self, summary: Summary) -> None:
        """Remember a summary, with the session where there is one."""
        written = msgspec.json.encode(summary)
        self.conversation.values[_SUMMARY] = written
        if self.journal is not None:
            self.journal.set_value(_SUMMARY, written)

    async def ask(self, request: ModelRequest, model: Model | None) -> Draft:
        """Ask a model something on the side: stoppable, and booked in the ledger. Raises a `ModelError`."""
        asked = model or self.setup.model
        terms = terms_of(self.setup) if model is None else terms_of(Setup(self.agent, model, drains=self.setup.drains))
        draft = Draft()
        # What it teaches about tokens is not about this conversation, so it is booked as another one.
        bill = Bill(self.run_id, self.ledger, draft, self.refresh_receipt, terms)
        self.asides.append(bill)
        await self.durable()
        bill.open(request, draft, turn=self.turn, attempt=self.attempt)
        ended: HowItEnded = "hung_up"
        failure: ModelError | None = None
        try:
            await self.attend(_collect(asked, request, draft), "model call on the side")
            ended = "completed" if draft.complete else "failed"
        except ModelError as error:
            ended, failure = "failed", error
            raise
        finally:
            draft.close()
            self._book(bill.close(ended, failure))
        return draft

    def cancel_tool(self, call_id: str, reason: str) -> bool:
        """Stop one call of the current turn. From any thread; whether there was one to stop."""
        batch = self.batch
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
        assert self.draft is not None
        self.bill.open(request, self.draft, turn=self.turn, attempt=self.attempt)

    def close_entry(self, ended: HowItEnded, error: ModelError | None = None) -> None:
        """Write down what the current request used and how it ended, once."""
        self._book(self.bill.close(ended, error))

    def _book(self, entry: LedgerEntry | None) -> None:
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
        below = (name for child in self.children for name in child.still_running())
        strays = (task.get_name() for task in self.strays if not task.done())
        followed = (name for bill in (self.bill, *self.asides) for name in bill.followed())
        return (*tools, *strays, *followed, *below)

    def latency(self) -> float | None:
        """Seconds since the stop was asked for."""
        cause = self.token.cause
        return None if cause is None else time.perf_counter() - cause.clock


async def _collect(model: Model, request: ModelRequest, draft: Draft) -> None:
    """Take a whole answer, for nobody to read."""
    try:
        async with model.stream(request) as deltas:
            async for delta in deltas:
                if not draft.is_open:
                    return
                draft.add(delta)
    except ModelError:
        raise
    except Exception as error:
        raise ModelProtocolError(f"The model raised {type(error).__name__}: {error}.") from error
