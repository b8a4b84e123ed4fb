"""The answers of a person to calls that wait: taken by a run that goes on, or given back by one that cannot begin."""

from __future__ import annotations

from collections.abc import Iterable

from .._threads.background_loop import running_loop
from ..events import InterruptAnswered
from ..interrupts import Answers, Interrupt, answer_calls, answer_records
from ..phases import Phase
from .state import RunState


def open_interrupts(state: RunState) -> tuple[Interrupt, ...]:
    """What calls of the current turn ask while the run goes on. Empty once a stop was asked for. From any thread."""
    batch = state.turn.view.batch
    return () if batch is None or state.token.cancelled else batch.interrupts


def take_answers(state: RunState, answers: Answers) -> bool:
    """Let calls that wait go on in the turn that the run is executing; the other calls are not touched.

    False when the turn is not open for that: in another event loop than the run's, before the session is open, when a
    stop or a steer was asked for, and when the last call has ended. Raises an `InterruptError`; nothing changes then.
    """
    batch, progress = state.turn.view.batch, state.progress
    if batch is None or not batch.is_open or progress.phase not in (Phase.CREATED, Phase.ACTING):
        return False
    if running_loop() is not progress.loop or progress.work_token.cancelled or state.prompts.inbox.urgent:
        return False
    asked = batch.interrupts
    batch.answer(answer_calls(batch.pending(), answers, state.tools.check_arguments))
    announce_answers(state, asked, answers)
    state.claim.conversation.note_answers(batch.pending(), state.run_id)
    return True


def announce_answers(state: RunState, asked: Iterable[Interrupt], answers: Answers) -> None:
    """Emit who has answered what. The answers have been accepted."""
    for record in answer_records(asked, answers, state.claim.context.owner):
        state.events.push(InterruptAnswered(record))


def return_answers(state: RunState) -> bool:
    """Let the turn wait again, as before this run, if none of its calls has begun. Whether it does.

    So an answer is not used up by a run that failed before it could act on it.
    """
    waiting = state.claim.waiting_turn
    taken = state.claim.conversation.snapshot().pending
    if waiting is None or taken is None or taken.taken_by != state.run_id:
        return False
    if any(batch.has_begun for batch in state.tools.batches):
        return False
    state.turn.suspend(waiting, state.config.cut_note)
    return True
