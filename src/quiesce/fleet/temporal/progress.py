"""How far a run on Temporal has come: what its workflow keeps from one activity to the next.

Nothing in here reads a clock or waits: a workflow that is replayed comes to the same.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from ...conversation.conversation import ConversationState
from ...conversation.sealing import DEFAULT_CUT_NOTE, close_turn, seal_pending, unfinished
from ...interrupts import Interrupt, PendingCall
from ...messages import Message, Outcome, ToolMessage
from ...receipt import CallReceipt
from ...sessions.journal.recovery import UNKNOWN_SENTENCE
from ...usage.ledger import LedgerEntry
from .receipts import StepReceipts
from .records import PlannedCall, RunInfo, StepInput, StepResult, WorkflowInput

# A run that was lost with so many workers may be what ended them: it is sealed, and does not go on.
MAX_LOSSES: Final = 3

# The same for a step that so many workers in succession have not begun. More are allowed: a worker that is frozen, or
# cut off, is still given an activity for each poll that it has open. The SDK has five.
MAX_NOT_BEGUN: Final = 12


class RunProgress:
    """The conversation of a run, its turn, and why it ended. Only for its workflow."""

    def __init__(self, run_id: str, given: WorkflowInput) -> None:
        self._given: Final = given
        self._run: Final = RunInfo(run_id, given.agent, given.owner)
        self._conversation = ConversationState(given.messages)
        self._plan: tuple[PlannedCall, ...] = ()
        self._cut_note = DEFAULT_CUT_NOTE
        self.losses = 0
        """How many times workers were lost with steps that had begun."""
        self._not_begun = 0
        """How many steps were not begun by their workers, since the last one that was."""
        self.receipts: Final = StepReceipts(run_id)
        self.reason = ""
        """Why the run does not go on, when that is not a stop that was asked of the workflow."""
        self.error = ""

    # --- The next step --------------------------------------------------------------------------------------------

    def model_call(self) -> StepInput:
        """The next model call."""
        if self._conversation.pending is not None:
            return StepInput(self._run, self._conversation)
        return StepInput(self._run, self._conversation, self._given.prompt, timeout=self._given.timeout)

    @property
    def calls(self) -> tuple[PendingCall, ...]:
        """The calls of the turn, with their results as far as there are any."""
        pending = self._conversation.pending
        return () if pending is None else pending.calls

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What a person is asked."""
        return tuple(interrupt for each in self.calls for interrupt in each.interrupts)

    def may_start(self, position: int) -> bool:
        """Whether all calls that a call must wait for have a result."""
        return all(self.calls[earlier].result is not None for earlier in self._plan[position].after)

    def tool_call(self, position: int, answers: dict[str, Any]) -> StepInput:
        """The tool call at this position of the turn."""
        return StepInput(self._run, self._conversation, call_id=self.calls[position].call.id, answers=answers)

    # --- What became of a step ------------------------------------------------------------------------------------

    def take_model_call(self, result: StepResult) -> bool:
        """A model call has ended. Whether it is to be made again: its worker has shut down."""
        self._cut_note, self._not_begun = result.cut_note, 0
        self.receipts.add(result.receipt)
        if self.receipts.was_drained(result.receipt):
            return True
        self._conversation, self._plan = result.conversation, result.plan
        self.receipts.note_calls(result.receipt.calls)
        if result.error or result.receipt.stop_reason != "interrupt":
            self._end(result)
        return False

    def take_tool_call(self, position: int, given: StepInput, result: StepResult) -> bool:
        """A tool call has ended. Whether it is to run again: its worker has shut down, and it may run twice."""
        self._not_begun = 0
        self.receipts.add(result.receipt)
        before, drained = self.calls[position], self.receipts.was_drained(result.receipt)
        after = _settled(before, result.conversation)
        is_cut = after.result is None or after.result.outcome is not Outcome.COMPLETED
        if drained and is_cut and self._plan[position].idempotent:
            return True
        self._replace(position, after)
        self.receipts.note_calls(each for each in result.receipt.calls if each.call_id == before.call.id)
        self._merge(given.conversation.values, result.conversation.values)
        if result.error or (result.receipt.stop_reason != "interrupt" and not drained):
            self._end(result)
        return False

    def lose_model_call(self, entries: tuple[LedgerEntry, ...], losses: int) -> bool:
        """The worker of a model call is lost. Whether the model is to be called again. The usage is not known.

        `losses` is what it was when the call was scheduled.
        """
        unknown = LedgerEntry("", self._run.id, "unknown", self.receipts.requests + 1, 1)
        self.receipts.book(entries or (unknown,))
        return self._may_go_on(losses)

    def lose_tool_call(self, position: int, entries: tuple[LedgerEntry, ...], losses: int) -> bool:
        """The worker of a tool call is lost. Whether the call is to run again; otherwise it is `unknown`.

        `losses` is what it was when the call was scheduled.
        """
        self.receipts.book(entries)
        if self._may_go_on(losses) and self._plan[position].idempotent:
            return True
        call = self.calls[position].call
        self._replace(position, PendingCall(call, unfinished(call, Outcome.UNKNOWN, UNKNOWN_SENTENCE)))
        self.receipts.note_calls([CallReceipt(call.id, call.name, Outcome.UNKNOWN, ok=False, detail=UNKNOWN_SENTENCE)])
        return False

    def leave_unbegun(self) -> bool:
        """A worker was given a step, and has not begun it. Whether the step is to be given to another one."""
        self._not_begun += 1
        if self._not_begun < MAX_NOT_BEGUN:
            return True
        self.reason = self.reason or "crashed"
        return False

    def fail(self, error: str) -> None:
        """An activity could not do its work at all."""
        if not self.reason:
            self.reason, self.error = "error", error

    def _may_go_on(self, losses: int) -> bool:
        self._not_begun = 0
        if losses == self.losses:  # otherwise it was lost with a call beside it, which was counted
            self.losses += 1
        if self._given.on_worker_loss == "continue" and self.losses < MAX_LOSSES:
            return True
        self.reason = self.reason or "crashed"
        return False

    def _end(self, result: StepResult) -> None:
        """The step is the last one. One that the workflow has cut itself ends by the cause that the workflow knows."""
        if result.error:
            self.fail(result.error)
        elif not self.receipts.was_cut(result.receipt):
            self.reason = self.reason or result.receipt.stop_reason

    def _replace(self, position: int, call: PendingCall) -> None:
        found = self._conversation
        assert found.pending is not None
        calls = (*found.pending.calls[:position], call, *found.pending.calls[position + 1 :])
        self._conversation = ConversationState(found.messages, replace(found.pending, calls=calls), found.values)

    def _merge(self, before: dict[str, bytes], after: dict[str, bytes]) -> None:
        """Take the values that a step has changed. Calls of one turn may run at once: the last one that ends wins."""
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        found = self._conversation
        self._conversation = ConversationState(found.messages, found.pending, found.values | changed)

    # --- The end --------------------------------------------------------------------------------------------------

    @property
    def values(self) -> dict[str, bytes]:
        """The named values of the conversation."""
        return self._conversation.values

    def sealed(self) -> tuple[Message, ...]:
        """The conversation, so that a prompt may follow. A prompt that was never sent is not in it."""
        settled, pending, prompt = self._conversation.messages, self._conversation.pending, self._given.prompt
        if pending is not None:
            return (*settled, *seal_pending(pending, self._cut_note))
        if len(settled) > len(self._given.messages) or not self.receipts.requests:
            return settled
        return (*settled, *close_turn((prompt,), settled, self._cut_note))


def _settled(before: PendingCall, conversation: ConversationState) -> PendingCall:
    """How far the step of one call has come with it: in the turn that is pending, or in the one that was sealed."""
    call_id = before.call.id
    pending = None if conversation.pending is None else conversation.pending.call(call_id)
    if pending is not None:
        return pending
    last = next((each for each in reversed(conversation.messages) if isinstance(each, ToolMessage)), None)
    results = () if last is None else last.results
    found = next((each for each in results if each.call_id == call_id), None)
    return PendingCall(before.call, found or unfinished(before.call, Outcome.UNKNOWN))
