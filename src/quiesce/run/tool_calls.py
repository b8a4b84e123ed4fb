"""The tool calls of a run: the batches of its turns, what can be undone, and what ended late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from .._threads.tasks import start_task
from ..cancellation import CancellationToken
from ..conversation.conversation import KEPT_RESULT
from ..errors import GuardrailTripped
from ..events import InterruptAnswered, LateOutcomeRecorded
from ..hooks import AfterToolCall, BeforeApproval, BeforeToolCall, HookEvent, OnLateOutcome
from ..interrupts import Interrupt, PendingTurn
from ..messages import AssistantMessage, Text, ToolCall, ToolResult
from ..middleware.base import ToolCallRequest, around_tool_calls, chain_tool_calls
from ..receipt import CallReceipt, LateOutcome, UndoReceipt
from ..run_context import RunContext
from ..tools.approval import checked_arguments
from ..tools.background import BackgroundProcesses
from ..tools.batch import ToolBatch
from ..tools.big_results import KeptResults
from ..tools.questions import CallQuestions
from ..tools.tool import MaxResult, Tool
from ..tools.undo.log import UndoLog
from .state_ref import StateRef


class RunTools:
    """What tool calls need of their run (`ToolHost`), and what the run knows of its calls."""

    __slots__ = (
        "__weakref__",
        "_kept",
        "_ref",
        "_undo_token",
        "batches",
        "emit",
        "late",
        "loop",
        "processes",
        "run_id",
        "token",
        "torn_calls",
        "undo_log",
        "undo_wanted",
        "undone",
    )

    def __init__(self, ref: StateRef, above: UndoLog | None) -> None:
        state = ref.state
        self._ref: Final = ref
        self.run_id: Final = state.run_id
        self.token: Final = state.token
        self.loop: Final = state.progress.loop
        self.emit: Final = state.events.push
        self.batches: Final[list[ToolBatch]] = []
        self.processes = BackgroundProcesses()
        self.undo_log: Final = UndoLog(above)
        self.undo_wanted: bool | None = None
        self._undo_token: Final[dict[str, CancellationToken]] = {}
        self.undone: tuple[UndoReceipt, ...] = ()
        """What became of the undo that the stop of this run asked for."""
        self.torn_calls: tuple[tuple[str, str], ...] = ()
        """The id and the name of each call whose arguments a stop has cut."""
        self.late: Final[list[LateOutcome]] = []
        self._kept: KeptResults | None = None

    @property
    def undo_token(self) -> CancellationToken:
        """The token that stops the undo of this run. Made when it is first used, from whichever thread."""
        return self._undo_token.get("token") or self._undo_token.setdefault("token", CancellationToken())

    # --- Batches ------------------------------------------------------------------------------------------------

    def begin_batch(self, calls: tuple[ToolCall, ...]) -> ToolBatch:
        """The calls that the current answer asks for; none has started."""
        batch = self.new_batch(calls)
        self._ref.state.turn.use_tools(batch)
        return batch

    def new_batch(self, calls: tuple[ToolCall, ...], pending: PendingTurn | None = None) -> ToolBatch:
        """A batch of this run; `pending` is how far an earlier run has come with the same calls."""
        config = self._ref.state.config
        batch = ToolBatch(calls, self.available, self, sequential=config.sequential, pending=pending)
        self.batches.append(batch)
        if pending is not None:
            self.undo_log.resume_turn(pending.run_id, config.agent, batch.undoable_calls())
        return batch

    @property
    def available(self) -> Mapping[str, Tool]:
        """The tools of the agent, and the one that reads long results once there is such a result."""
        state = self._ref.state
        tools = state.config.tools
        if not any(name.startswith(KEPT_RESULT) for name in state.claim.conversation.values):
            return tools
        reader = self._kept_results().reader
        return tools if reader is None or reader.name in tools else {**tools, reader.name: reader}

    def _kept_results(self) -> KeptResults:
        """The long results of the conversation. Made for the first one."""
        if self._kept is None:
            ref, conversation = self._ref, self._ref.state.claim.conversation

            def keep(name: str, value: bytes) -> None:
                ref.state.saving.keep(conversation, name, value)

            self._kept = KeptResults(lambda: conversation.values, keep)
        return self._kept

    def check_arguments(self, call: ToolCall, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments that a person gives for a call that waits, frozen. Raises `ToolError` for invalid ones.

        The tool is that of the agent that the waiting turn belongs to, which may have got it by handoffs.
        """
        state = self._ref.state
        tools = state.config.tools
        pending = state.claim.conversation.pending
        for name in () if pending is None else pending.handed:
            target = None if name not in tools else tools[name].handoff_to
            tools = tools if target is None else target.tools
        tool = tools.get(call.name)
        return dict(arguments) if tool is None else checked_arguments(tool, arguments)

    def suspend(self, answer: AssistantMessage, batch: ToolBatch) -> None:
        """Keep the turn until a person has answered what its tools ask."""
        state = self._ref.state
        pending = PendingTurn(state.run_id, answer, batch.pending(), handed=state.config.handoffs)
        state.turn.suspend(pending, state.config.cut_note)

    def cancel_call(self, call_id: str, reason: str) -> bool:
        """Stop one call of the current turn. From any thread; whether there was one to stop."""
        batch = self._ref.state.turn.view.batch
        if batch is None or not batch.has_call(call_id):
            return False
        why = f"This call was stopped on request ({reason})." if reason else "This call was stopped on request."
        try:
            self._ref.state.progress.loop.call_soon_threadsafe(batch.cancel_call, call_id, why)
        except RuntimeError:  # the loop has closed
            return False
        return True

    def receipts(self) -> tuple[CallReceipt, ...]:
        """What became of every call of the run."""
        return tuple([call.receipt() for batch in self.batches for call in batch.calls])

    def still_running(self) -> tuple[str, ...]:
        """The calls and background processes that could not be proved to have stopped."""
        calls = [name for batch in self.batches for call in batch.calls for name in call.still_running_names()]
        return (*calls, *(self.processes.still_running() if self.processes.by_name else ()))

    def let_go(self) -> None:
        """The run is at rest, its receipt is written, and no call is left: forget them."""
        for batch in self.batches:
            for call in batch.calls:
                call.let_go()
        self.batches.clear()

    # --- What a call needs of its run (`ToolHost`) --------------------------------------------------------------

    @property
    def work_token(self) -> CancellationToken:
        """The token of the current work: cancelled with the run's token, or alone when the run is steered."""
        return self._ref.state.progress.work_token

    @property
    def context(self) -> RunContext[Any]:
        """The run as its tools see it."""
        return self._ref.state.claim.context

    async def before_start(self, call: ToolCall) -> None:
        """Write down that a tool is about to run, before it does."""
        state = self._ref.state
        if state.saving.journal is not None:
            await state.saving.journal.intend(call.id)
        elif state.family.parent is not None:  # its parents may have a store
            await state.save_progress()

    def idempotency_key(self, call: ToolCall) -> str:
        """The same for the same call, whatever happens to the process in between."""
        return f"{self._ref.state.claim.conversation.id}/{call.id}"

    async def before_tool(self, call: ToolCall, questions: CallQuestions) -> ToolResult | None:
        """Ask the hooks; a result means that the tool need not run."""
        state = self._ref.state
        if BeforeToolCall not in state.config.hooks.wanted:
            return None
        await state.saving.durable()
        event = BeforeToolCall(state.claim.context, state.token, call, questions)
        await state.config.hooks.call(event, state.hook_failed)
        return event.replacement

    async def approves(self, interrupt: Interrupt, definition: str) -> bool:
        """Whether a hook approves a call that a person would be asked about. When one fails, the person is asked."""
        state, failures = self._ref.state, list[str]()

        def on_failure(name: str, event: HookEvent, error: BaseException) -> None:
            failures.append(name)
            state.hook_failed(name, event, error)

        if BeforeApproval not in state.config.hooks.wanted:
            return False
        await state.saving.durable()
        event = BeforeApproval(state.claim.context, state.token, interrupt, definition)
        await state.config.hooks.call(event, on_failure)
        if event.record is None or failures:
            return False
        self.emit(InterruptAnswered(event.record))
        return True

    @property
    def has_middleware(self) -> bool:
        """Whether there is middleware around tool calls."""
        middleware = self._ref.state.config.middleware
        return bool(middleware) and bool(around_tool_calls(middleware))

    async def through_middleware(
        self, call: ToolCall, tool: Tool | None, run: Callable[[ToolCall], Awaitable[ToolResult]]
    ) -> Any:
        """What the middleware makes of a call. A guardrail there stops the run."""
        state = self._ref.state

        async def run_tool(request: ToolCallRequest[Any]) -> ToolResult:
            return await run(request.call)

        await state.saving.durable()
        through = chain_tool_calls(around_tool_calls(state.config.middleware), run_tool)
        try:
            return await through(ToolCallRequest(state.claim.context, call, tool))
        except GuardrailTripped as tripped:
            state.token.cancel(tripped.reason, source="guardrail")
            raise asyncio.CancelledError from None

    async def after_tool(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Show the hooks a result; they may give another one."""
        state = self._ref.state
        if AfterToolCall not in state.config.hooks.wanted:
            return result
        event = AfterToolCall(state.claim.context, state.token, call, result)
        await state.config.hooks.call(event, state.hook_failed)
        return event.replacement or result

    def fit_result(self, tool: Tool | None, result: ToolResult, *, late: bool = False) -> ToolResult:
        """The result, without its middle when it is longer than the tool or the agent allows."""
        most: MaxResult = "agent" if tool is None else tool.max_result
        if most == "agent":
            most = self._ref.state.config.max_result
        part = result.content[0] if len(result.content) == 1 and result.structured_content is None else None
        if most is None or (isinstance(part, Text) and len(part.text) <= most):
            return result
        return self._kept_results().fit(result, most, keep=not late)

    def stop_because(self, error: BaseException) -> None:
        """Stop the run, because what ends the program was raised in a call."""
        self._ref.state.stop_because(error)

    def record_late(self, outcome: LateOutcome) -> None:
        """Note that an abandoned call has ended. From the loop, or from the tool's thread once the loop has closed.

        The receipts of the parents said that the call was running: they get its end, too.
        """
        recorded = closed = self._ref.state.progress.loop.is_closed()
        for state in self._ref.state.family.lineage:
            state.tools.late.append(outcome)
            journal = state.saving.journal
            kept = journal is not None and journal.save_late(outcome)
            if not (recorded or kept or state.progress.ended):
                state.events.push(LateOutcomeRecorded(outcome))
                recorded = True
            if not closed:
                state.tools._call_late_hooks(outcome)

    def _call_late_hooks(self, outcome: LateOutcome) -> None:
        state = self._ref.state
        if OnLateOutcome in state.config.hooks.wanted:
            receipt = None if state.result is None else state.result.receipt
            event = OnLateOutcome(state.claim.context, state.token, outcome, receipt)
            calls = state.config.hooks.call(event, state.hook_failed)
            task = start_task(calls, name="hooks for OnLateOutcome", loop=state.progress.loop)
            state.foreign_tasks.abandoned.append(task)
