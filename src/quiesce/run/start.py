"""The start of a run: it claims its conversation, at once or after the runs that came before, and begins."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from .._threads.loop_callback import call_soon_anywhere, made_again
from ..cancellation import Mode
from ..conversation.continuation import GO_ON, GO_ON_FROM_END, continued
from ..conversation.conversation import ConversationRun
from ..conversation.sealing import seal_pending
from ..errors import ConversationBusy, InterruptPending, NothingToContinue, ToolError, UnknownInterrupt
from ..interrupts import Answers, PendingTurn
from ..messages import AssistantMessage, Outcome, Text, UserMessage
from ..models.base import switches_thinking_on
from ..phases import Phase
from .handoff import Successor, begin_handoff, complete_handoff
from .limit_checks import goes_on_with_tools, resume_at_limit
from .pending_answers import return_answers
from .running_task import begin_or_join_task
from .state import RunState


def claim_or_queue(state: RunState) -> ConversationRun | None:
    """Take the conversation and begin, or follow `on_busy` for the run that holds it.

    Returns that run when it has taken the prompt. Raises `ConversationBusy`, and what `begin` raises.
    """
    try:
        claim_conversation(state)
    except ConversationBusy as busy:
        conversation, given = state.claim.conversation, state.claim.input
        holder = conversation.runs.get(busy.holder)
        stopping = holder is not None and holder.mode is not None and holder.mode >= Mode.NOW
        if state.family.is_below(busy.holder):
            raise  # it would wait for a run that waits for it
        if given.answers is not None:
            return _answer_or_queue(state, holder, given.answers, busy)
        if given.prompt is None or (given.on_busy == "refuse" and not stopping):
            raise
        if not stopping:  # else the prompt follows as soon as the holder is at rest
            if given.on_busy == "steer" and holder is not None and holder.steer(given.prompt):
                return holder
            if given.on_busy == "cancel_previous":
                conversation.stop_all("A newer prompt came")
        conversation.queue(state.run_id, lambda: wake(state))
    return None


def _answer_or_queue(
    state: RunState, holder: ConversationRun | None, answers: Answers, busy: ConversationBusy
) -> ConversationRun | None:
    """Give answers to the run that executes the turn. One that cannot take them now is waited for.

    Raises `UnknownInterrupt` for an answer to what is not asked, and `busy` when nothing is.
    """
    conversation = state.claim.conversation
    if holder is not None and holder.take_answers(answers):
        return holder
    asked = [each.id for each in conversation.interrupts]
    unknown = [each for each in answers if each not in asked]
    if asked and unknown:
        raise UnknownInterrupt(unknown[0], asked)
    if not asked:
        raise busy
    conversation.queue(state.run_id, lambda: wake(state), answers=True)
    return None


def claim_conversation(state: RunState) -> None:
    """Take the conversation and begin. Raises `ConversationBusy`, and what `begin` raises."""
    conversation = state.claim.conversation
    conversation.hold(state.run_id)
    try:
        _respect_queue(state)
        if conversation.must_be_opened:
            state.claim.granted.set_result(None)
        else:
            begin(state)
            state.progress.enter(Phase.CREATED)
    except Exception:  # nothing has changed
        return_answers(state)
        conversation.release(state.run_id)
        raise


def _respect_queue(state: RunState) -> None:
    """Raises `ConversationBusy` when earlier runs wait for the same approval: they go first, and it is dropped."""
    queued = state.claim.conversation.queued
    if queued and state.claim.input.answers is None and state.claim.input.on_prompt != "refuse":
        state.claim.conversation.drop_pending(state.config.cut_note)
        raise ConversationBusy(queued[0])


def wake(state: RunState) -> None:
    """Let a run begin that had to wait for its conversation. From any thread."""

    @made_again
    def grant() -> None:
        if not state.claim.granted.done():
            state.claim.granted.set_result(None)

    try:
        call_soon_anywhere(state.progress.loop, grant)
    except RuntimeError:  # the loop has closed, and the run with it
        state.claim.conversation.release(state.run_id)


def begin(state: RunState) -> None:
    """Write the prompt to the conversation, which the run holds. Raises an `InterruptError`; then nothing changes."""
    conversation, given = state.claim.conversation, state.claim.input
    task = begin_or_join_task(state)
    state.claim.begin(state.config.state, task)
    state.claim.first_message = len(conversation.messages)
    estimator = state.spending.bill.terms.estimator
    estimator.recall(conversation.values)
    if state.saving.journal is not None or state.config.limits.inside_answers or estimator.counts_slowly:
        estimator.load()  # for what is learnt and kept with the session, or counted while an answer is streamed
    if given.answers is not None:
        state.claim.waiting_turn = conversation.pending
        if state.config.one_step:
            state.progress.turn_number = state.spending.budget_use.turns
        _take_up(state, conversation.take_pending(given.answers, state.tools.check_arguments, state.run_id))
        if state.claim.prompt is not None:
            conversation.append(state.claim.prompt)
            state.turn.begin()
    else:
        if conversation.pending is not None:
            if given.on_prompt == "refuse":
                raise InterruptPending(each.id for each in conversation.interrupts)
            conversation.drop_pending(state.config.cut_note)
            state.claim.first_message = len(conversation.messages)
        if given.prompt is None:
            _continue(state)
        state.claim.held = True  # before the prompt is written: from then on, the end of the run has to seal it
        if state.claim.prompt is not None:
            conversation.append(state.claim.prompt)
        state.turn.begin()
    task.begin()
    state.claim.held = True


def _take_up(state: RunState, pending: PendingTurn) -> None:
    """Go on with a turn whose approvals were pending, as the agent whose turn it is."""
    for name in pending.handed:
        _repeat_handoff(state, name)
        if state.turn.handoff is None:
            break
        complete_handoff(state, state.turn.handoff)
    if pending.limit is not None:
        resume_at_limit(state, pending.limit)
        if pending.limit.refused or not goes_on_with_tools(pending):
            _go_on_after_limit(state, pending)
            return
    state.claim.continued_text = pending.answer.text
    state.turn.take_up(pending.answer, state.tools.new_batch(pending.answer.tool_calls, pending))
    _remember_handoff(state, pending)


def _go_on_after_limit(state: RunState, pending: PendingTurn) -> None:
    """Put the turn that reached the limit into the conversation as far as it came, and go on after it."""
    conversation = state.claim.conversation
    conversation.append(*seal_pending(replace(pending, taken_by=None), state.config.cut_note))
    state.claim.first_message = len(conversation.messages)
    state.turn.begin()
    if pending.limit is not None and not pending.limit.refused:
        _continue(state)


def _remember_handoff(state: RunState, pending: PendingTurn) -> None:
    """Repeat a handoff whose call has its result already: the call is not made again, and the handoff still counts."""
    for each in pending.calls:
        if each.result is not None and each.result.outcome is Outcome.COMPLETED and not each.result.is_error:
            _repeat_handoff(state, each.call.name)


def _repeat_handoff(state: RunState, tool_name: str) -> None:
    """Do what a handoff of an earlier run did, if there is still such a tool."""
    tool = state.config.tools.get(tool_name)
    if tool is not None and isinstance(tool.handoff_to, Successor):
        with suppress(ToolError):  # the cost limit does not allow it here: as if it had just been refused
            begin_handoff(state, tool.handoff_to, tool_name)


def _continue(state: RunState) -> None:
    """Go on with the last answer: by prefill where the model allows that, else with a short user message."""
    messages = state.claim.conversation.messages
    last = messages[-1] if messages else None
    if not isinstance(last, AssistantMessage):
        raise NothingToContinue("There is no answer to continue.")
    takes_it = getattr(state.config.model, "supports_prefill", False)
    said = continued(last, prefill=takes_it and not switches_thinking_on(state.config.settings))
    if said is None:
        state.claim.prompt = UserMessage((Text(GO_ON if last.cut else GO_ON_FROM_END),))
        return
    state.turn.go_on_from(said)
    state.claim.continued_text = last.text
    state.claim.first_message -= 1
