"""One step of a run in an activity: a model call, or one tool call. Each is a run of its own, of one step.

So an activity that is cancelled settles as a run that is stopped does: what it has kept, the outcome of its call and
its bill are those of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ...agent import AnyAgent
from ...conversation.conversation import Conversation, ConversationState
from ...conversation.sealing import unfinished
from ...errors import StateNotSaved, public_text
from ...interrupts import Answers, ArgumentCheck, PendingCall, PendingTurn
from ...messages import Outcome
from ...run.handle import Run
from ...run.options import RunOptions
from ...sessions.journal.rows import encode
from ...sessions.state import STATE, unsavable
from ...tools.batch import earlier_calls
from ...tools.tool import Tool
from ..answers import decoded_answers
from .records import PlannedCall, StepInput, StepResult

# The beginning of the names of effects that can be undone. An undo is not offered on Temporal.
_UNDO: Final = "undo."


class StepConversation(Conversation):
    """The conversation of a run on Temporal, during one step."""

    def __init__(self, run_id: str, state: ConversationState) -> None:
        super().__init__(state.messages, pending=state.pending)
        self._run_id: Final = run_id
        self.values = dict(state.values)
        found = state.values.get(STATE)
        self.replace_state(None if found is None else msgspec.json.decode(found))

    @property
    def id(self) -> str:
        """The same in all steps, so that the idempotency key of a call is."""
        return self._run_id

    def take_pending(self, answers: Answers, check: ArgumentCheck, run_id: str) -> PendingTurn:
        """See `Conversation.take_pending`. Calls that wait for no answer go on without one."""
        pending = self.pending
        if pending is None or pending.interrupts:
            return super().take_pending(answers, check, run_id)
        taken = replace(pending, taken_by=run_id)
        self.suspend(taken)
        return taken

    def check_state(self) -> None:
        """Raises `StateNotSaved` when the state holds what has no JSON form."""
        where = unsavable(self.state)
        if where is not None:
            raise StateNotSaved(f"{where} has no JSON form, so the state cannot be sent to the next activity.")

    def snapshot(self) -> ConversationState:
        """What goes to the next step: with the state, if that has a JSON form."""
        found = super().snapshot()
        values = {name: value for name, value in found.values.items() if not name.startswith(_UNDO)}
        if unsavable(self.state) is None:
            values[STATE] = encode(self.state)
        return ConversationState(found.messages, found.pending, values)


def start_step(agent: AnyAgent, step: StepInput, deps: tuple[Any, ...] = ()) -> Run[Any]:
    """Start the run of one step; `deps` is empty, or has the deps of the run."""
    options, forked = _options(agent, step, deps), agent.fork(at=0)
    if step.prompt is not None:
        return forked.start(step.prompt, **options)
    return forked.start_answer(decoded_answers(step.answers), **options)


def _options(agent: AnyAgent, step: StepInput, deps: tuple[Any, ...]) -> RunOptions[Any]:
    given = step.conversation
    if step.call_id:
        assert given.pending is not None
        given = ConversationState(given.messages, _with_one_call(given.pending, step.call_id), given.values)
    options: RunOptions[Any] = {
        "conversation": StepConversation(step.run.id, given),
        "run_id": step.run.id,
        "owner": step.run.owner,
        "one_step": True,
    }
    if agent.config.on_limit == "ask":  # the workflow does not wait for a limit to be raised
        options["on_limit"] = "stop"
    if step.timeout is not None:
        options["timeout"] = step.timeout
    if deps:
        options["deps"] = deps[0]
    return options


def _with_one_call(pending: PendingTurn, call_id: str) -> PendingTurn:
    """The turn as the step of one call sees it: the other calls have a result, so that they do not run here too."""

    def other(each: PendingCall) -> PendingCall:
        return each if each.result is not None else PendingCall(each.call, unfinished(each.call, Outcome.UNKNOWN))

    return replace(pending, calls=tuple(each if each.call.id == call_id else other(each) for each in pending.calls))


def step_result(run: Run[Any]) -> StepResult:
    """What the run of one step has done. It is at rest."""
    inspection, conversation = run.inspect(), run.conversation
    result, config = inspection.result, inspection.config
    assert result is not None
    assert isinstance(conversation, StepConversation)
    kept = conversation.snapshot()
    plan: tuple[PlannedCall, ...] = ()
    if kept.pending is not None:
        plan = _planned(kept.pending, config.tools, sequential=config.sequential)
    error = "" if result.error is None else public_text(result.error)
    try:
        conversation.check_state()
    except StateNotSaved as unsaved:
        error = error or public_text(unsaved)
    return StepResult(result.receipt, kept, plan, config.cut_note, error)


def _planned(pending: PendingTurn, tools: Mapping[str, Tool], *, sequential: bool) -> tuple[PlannedCall, ...]:
    calls = [each.call for each in pending.calls]
    found = [tools.get(call.name) for call in calls]
    after = earlier_calls(calls, tools, sequential=sequential)
    return tuple(
        PlannedCall(tool is not None and tool.idempotent, earlier) for tool, earlier in zip(found, after, strict=True)
    )
