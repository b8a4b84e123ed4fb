"""Steering: the current work is stopped, its turn is sealed, and the run goes on with a new prompt.

This is settling for one turn. The waits are in a `BoundedShield`, and a stop of the whole run ends them at once.
"""

from __future__ import annotations

from ..cancellation import BoundedShield, Mode
from ..events import MessageAdded, Steered
from ..phases import Phase
from .handoff import complete_handoff
from .limit_checks import was_cut_by_limit
from .settle import HANG_UP_GRACE, seal
from .state import RunState
from .stop_event import StopEvent


async def steer_aside(state: RunState) -> bool:
    """Send the urgent prompts of the inbox, if any. Whether the run goes on; otherwise it settles."""
    if not state.claim.held or state.progress.over or state.token.cancelled:
        return False
    if not state.prompts.take(urgent_only=True):
        if was_cut_by_limit(state):
            return await _cut_at_limit(state)
        was_steered = state.progress.work_token.cancelled  # its prompt was sent already, at the end of the turn
        state.new_work_token()
        return was_steered
    state.progress.enter(Phase.STEERING)
    if state.turn.view.builder is not None:
        state.turn.view.builder.close()
    await _stop_turn(state)
    if state.token.cancelled:
        return False
    _send_prompt(state)
    return True


async def _cut_at_limit(state: RunState) -> bool:
    """A limit was reached inside an answer: cut it, and let the person or the last answer follow (`on_limit`)."""
    builder, reached = state.turn.view.builder, state.spending.reached
    assert builder is not None
    assert reached is not None
    cut_during = state.progress.phase
    state.progress.enter(Phase.STEERING)
    builder.close()
    await _stop_turn(state)
    if state.token.cancelled:
        return False
    answer = state.turn.answer
    wants_tools = bool(builder.torn_calls()) or (answer is not None and bool(answer.tool_calls))
    is_final = answer is not None and not wants_tools and (builder.complete or state.config.on_limit == "answer")
    if is_final:  # the answer that reached the limit is the last one, as far as it came
        state.progress.asked_during = cut_during
        state.token.cancel(reached.reason, source="budget")
        return False
    if state.config.on_limit == "ask":
        state.progress.finish("interrupt")
        return False
    state.prompts.unannounced += seal(state)
    state.new_work_token()
    return True


def _send_prompt(state: RunState) -> None:
    """Seal the cut turn and add the prompt to the conversation. Nothing waits in here."""
    state.prompts.unannounced += seal(state)
    if state.turn.handoff is not None:
        complete_handoff(state, state.turn.handoff)
    state.new_work_token()
    message = state.prompts.next_message(state.saving.journal)
    state.turn.add_prompt(message)
    state.prompts.unannounced += (message,)
    state.events.push(Steered(message))
    state.events.push(MessageAdded(message))


async def _stop_turn(state: RunState) -> None:
    """Stop the tools by their policy, and hang up on the model. A stop of the run cuts this short."""
    stop = StopEvent(state, Mode.AFTER_TURN)

    def on_interrupt() -> None:
        state.shield.interrupted = True  # to be passed on when all is at rest
        state.token.cancel("The task was cancelled from outside", source="caller")

    shield = BoundedShield(f"steering run {state.run_id}", on_interrupt)
    try:
        if state.turn.view.batch is not None:
            await state.turn.view.batch.stop(shield, stop.future, defer=True)
        await state.foreign_tasks.wait_for_abandoned(shield, seconds=HANG_UP_GRACE, unless=stop.future)
    finally:
        stop.forget()
