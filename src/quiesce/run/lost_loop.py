"""A run whose event loop is gone: it was closed around the run, or it is that of the process this one was forked from.

Nothing of the run can be awaited any more. Here it comes to rest in one step, and the conversation is released.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from ..conversation.sealing import close_turn
from ..errors import RunError, StoreUnavailable
from ..messages import Outcome
from ..tools.closed_loop import close_coroutine
from .settle import settle_at_once
from .state import RunState


def end_with_loop(state: RunState, task: asyncio.Task[Any]) -> None:
    """Bring a run to rest whose loop was closed. Its tools are ended here, in the thread that closed the loop."""
    for each in state.family.lineage:
        _leave_loop(each)
    state.token.cancel("The event loop was closed", source="shutdown")
    close_coroutine(task)
    for batch in state.tools.batches:
        batch.end_with_loop()
    state.tools.processes.end_with_loop()
    for each in state.foreign_tasks.abandoned:
        close_coroutine(each)
    state.foreign_tasks.abandoned.clear()  # no step of them is ever taken
    settle_at_once(state)


def _leave_loop(state: RunState) -> None:
    """Let go of what would use the loop: the readers in it, and the journal."""
    journal, state.saving.journal = state.saving.journal, None
    state.events.leave_loop()
    if journal is not None:
        if not journal.end_is_saved:  # then the session is read again before it is used again
            journal.error = journal.error or StoreUnavailable("The event loop was closed before the end was saved.")
            state.saving.unsaved = journal.error
        with suppress(RuntimeError):  # some of what it wakes was in the loop
            journal.close()
        close_coroutine(journal.opening)


def leave_to_parent_process(state: RunState) -> None:
    """In a forked child: the run goes on in the parent process. Here its conversation is free for other runs.

    Readers, stores, tools and processes are the parent's: none of them is touched.
    """
    state.saving.journal = None
    state.events.leave_loop(with_taps=True)
    conversation = state.claim.conversation
    if state.claim.held:
        turn = state.turn.view.turn(unsettled=Outcome.UNKNOWN)
        state.turn.commit(close_turn(turn, conversation.messages, state.config.cut_note))
    conversation.reset_lock()
    conversation.release(state.run_id)
    state.progress.at_rest.set_exception(
        RunError(
            "This run goes on in the process that this one was forked from.",
            kept="Here, its conversation is as it was at the fork.",
            todo="Start runs after the fork, or wait for the run in the parent process.",
        )
    )
