"""The answers of a person to a turn that waits: given back by a run that could not begin with them."""

from __future__ import annotations

from .state import RunState


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
