"""The course of one run: what the loop and the settling read and write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from .broadcast import Broadcast
from .cancellation import BoundedShield, CancellationToken, StopScope
from .context import Context, Summary, is_summarised
from .draft import Draft
from .errors import ModelError, ModelProtocolError, StoreError
from .events import ContextReduced, Event, HookFailed, LateOutcomeRecorded, ModelCallEnded
from .hooks import AfterToolCall, BeforeToolCall, HookEvent, Hooks, OnLateOutcome
from .limits import Limits
from .messages import AssistantMessage, Message, Outcome, ToolCall, ToolResult, UserMessage
from .models.base import Model, ModelRequest
from .output import OutputSpec
from .receipt import CallReceipt, LateOutcome
from .result import RunResult, StopReason
from .retry import Retry
from .sessions import Conversation
from .state import LEGAL, STOPS_AT, Phase
from .tools.batch import Batch
from .tools.tool import Tool
from .transcript import DEFAULT_CUT_NOTE, DEFAULT_FAILED_NOTE, check, seal_turn, unfinished
from .usage.estimate import usage_of
from .usage.ledger import HowItEnded, Ledger, Usage, summarise

_T = TypeVar("_T")
_SUMMARY: Final = "context.summary"


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


class View(NamedTuple):
    """What there is to see of a conversation while a run adds to it; replaced whole, so that any thread may look."""

    settled: tuple[Message, ...]
    draft: Draft | None = None
    batch: Batch | None = None

    def turn(self, *, unsettled: Outcome) -> tuple[Message, ...]:
        """What the current turn amounts to so far; `unsettled` is said of the calls that have no result yet."""
        results: dict[str, ToolResult] = {}
        if self.batch is not None:
            for record in self.batch.records:
                results[record.call.id] = record.result or unfinished(record.call, unsettled)
        return seal_turn(self.draft, results)


class Course:
    """Where a run is, what it has, and the few things that it can do to itself. Only for the run's own loop."""

    def __init__(
        self, run_id: str, setup: Setup, conversation: Conversation, prompt: UserMessage, token: CancellationToken
    ) -> None:
        self.run_id: Final = run_id
        self.setup: Final = setup
        self.conversation: Final = conversation
        self.prompt: Final = prompt
        self.token: Final = token
        self.loop: Final = asyncio.get_running_loop()
        self.broadcast: Final = Broadcast()
        self.ledger: Final = Ledger()
        self.shield: Final = BoundedShield(f"settling run {run_id}")
        self.scope: StopScope | None = None

        self.phase = Phase.CREATED
        self.turn = 0
        self.attempt = 0
        self.output_tries = 0
        self.retry_delay = 0.0
        self.tool_calls = 0
        self.entry_id: str | None = None
        self.batches: Final[list[Batch]] = []
        self.strays: Final[list[asyncio.Task[Any]]] = []
        self.asked_during: Phase | None = None
        self.torn: tuple[tuple[str, str], ...] = ()
        self.late: Final[list[LateOutcome]] = []

        self.finished: tuple[StopReason, Any] | None = None
        self.error: Exception | None = None
        self.result: RunResult | None = None
        self.journal: Final = conversation.journal(self)
        self.broadcast.gate = self.journal
        self._has_session = False
        self.sending: tuple[Message, ...] = ()
        self.unsaved: StoreError | None = None
        self.first_message = len(conversation.messages)
        conversation.append(prompt)
        self._view = View(conversation.messages)
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
        return self.token.wants(STOPS_AT[self.phase])

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
        draft = Draft(self.call_ids())
        self._view = View(self.conversation.messages, draft)
        return draft

    def forget_answer(self) -> None:
        """A try failed before anybody could read it."""
        self._view = View(self.conversation.messages)

    def begin_batch(self, calls: tuple[ToolCall, ...]) -> Batch:
        """The tools that the answer asks for; none has started."""
        batch = Batch(calls, self.setup.tools, self, sequential=self.setup.sequential)
        self.batches.append(batch)
        self._view = View(self.conversation.messages, self.draft, batch)
        return batch

    def turn_messages(self, *, unsettled: Outcome = Outcome.NEVER_STARTED) -> tuple[Message, ...]:
        """What the current turn amounts to so far; `unsettled` is said of the calls that have no result yet."""
        return self._view.turn(unsettled=unsettled)

    def commit(self, turn: tuple[Message, ...]) -> None:
        """Put the turn into the conversation and begin a new one. What `messages` shows never wavers in between."""
        self.conversation.append(*turn)
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

    def take_over(self) -> None:
        """The session was opened, once: what is stored comes before the prompt."""
        if not self._has_session:
            self._has_session = True
            self.first_message = len(self.conversation.messages) - 1
            self._view = View(self.conversation.messages)

    async def before_start(self, call: ToolCall) -> None:
        """Write down that a tool is about to run, before it does."""
        if self.journal is not None:
            await self.journal.intend(call.id)

    def idempotency_key(self, call: ToolCall) -> str:
        """The same for the same call, whatever happens to the process in between."""
        return f"{self.conversation.id}/{call.id}"

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

    # --- Other people's code ------------------------------------------------------------------------------------

    async def attend(self, work: Coroutine[Any, Any, _T], name: str) -> _T:
        """Await somebody's coroutine so that a stop does not have to wait for it.

        It runs in a task of its own. A stop cancels that task and goes on; settling gives it a moment to unwind, and
        names it on the receipt when it does not.
        """
        task = asyncio.create_task(work, name=name)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
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

    async def before_tool(self, call: ToolCall) -> ToolResult | None:
        """Ask the hooks; a result means that the tool need not run."""
        event = BeforeToolCall(self.run_id, self.token, call)
        if self.setup.hooks.wanting(BeforeToolCall):
            await self.durable()
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
        messages = self.sending = self.conversation.messages
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
        draft = Draft()
        entry_id = self.ledger.open(run_id=self.run_id, model=asked.name, turn=self.turn, attempt=self.attempt)
        ended: HowItEnded = "hung_up"
        try:
            await self.durable()
            await self.attend(_collect(asked, request, draft), "model call on the side")
            ended = "completed" if draft.complete else "failed"
        except ModelError:
            ended = "failed"
            raise
        finally:
            draft.close()
            entry = self.ledger.update(
                entry_id,
                usage_of(draft.usage, draft.written()),
                price=asked.price,
                ended=ended,
                request_id=draft.request_id,
            )
            self.emit(ModelCallEnded(entry))
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

    def open_entry(self) -> None:
        """Book a request that is about to be sent."""
        self.entry_id = self.ledger.open(
            run_id=self.run_id, model=self.setup.model.name, turn=self.turn, attempt=self.attempt
        )

    def close_entry(self, ended: HowItEnded) -> None:
        """Write down what the current request used and how it ended, once."""
        if self.entry_id is None:
            return
        draft = self.draft
        usage = usage_of(None if draft is None else draft.usage, () if draft is None else draft.written())
        entry = self.ledger.update(
            self.entry_id,
            usage,
            price=self.setup.model.price,
            ended=ended,
            request_id=None if draft is None else draft.request_id,
        )
        self.entry_id = None
        self.emit(ModelCallEnded(entry))

    @property
    def spent(self) -> Usage:
        """What the requests that have ended used."""
        return summarise(tuple(entry for entry in self.ledger.entries if entry.ended != "open"))

    # --- The receipt --------------------------------------------------------------------------------------------

    def call_receipts(self) -> tuple[CallReceipt, ...]:
        """What became of every call of the run."""
        return tuple(receipt for batch in self.batches for receipt in batch.receipts())

    def still_running(self) -> tuple[str, ...]:
        """What could not be proved to have stopped."""
        tools = (name for batch in self.batches for name in batch.still_running())
        return (*tools, *(task.get_name() for task in self.strays if not task.done()))

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
