"""From "stop seen" to "at rest".

Every run ends here, the finished ones too. First everything that still moves is stopped, each within its own bound;
then, in one step with no waiting in it, the conversation is sealed; then hooks are called, within a bound; then the one
terminal event goes out. The waits are in `BoundedShield`s: an outside cancellation cannot break them, and is passed on
at the end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .._threads.tasks import start_task
from ..cancellation import BoundedShield, Mode
from ..conversation.sealing import close_turn
from ..errors import StoreUnavailable
from ..events import MessageAdded, StopRequested
from ..hooks import AfterRun, HookEvent, OnMessage, OnStop
from ..messages import Message, Outcome
from ..phases import Phase
from ..receipt import undo_note, update_receipt
from ..result import RunResult
from ..sessions.opening_failure import ended_too_soon
from ..tools.policy import FINAL_GRACE
from .ending import Ending, build_result, last_event, latency, write_ending
from .final_answer import finish_with_answer, is_paused, parse_output
from .limit_checks import finish_last_answer, suspend_at_limit
from .output import OutputMismatch
from .pending_answers import return_answers
from .state import RunState
from .stop_event import StopEvent
from .undo import join_effects

if TYPE_CHECKING:
    from ..sessions.journal.journal import Journal
    from .family import ChildRun

# How long a stopped run waits for the model's connection to close, which takes a fraction of a millisecond.
HANG_UP_GRACE: Final = 0.5
# What a child run may need, besides its tools' graces, to come to rest: hanging up, hooks, and a machine that is slow.
SETTLING_SLACK: Final = 5.0
KILL_SLACK: Final = 0.5
# How long the end of a run that was stopped waits for the store. The receipt says what is not saved by then.
SAVE_GRACE: Final = 2.0
# How long hooks may take at a stop, and at the end of a run that was stopped.
STOP_HOOK_GRACE: Final = 1.0
# How long hooks may take at the end of a run that finished by itself. A stop ends that wait.
END_HOOK_GRACE: Final = 10.0
# Each call costs 0.1 ms at the end of its run.
_MANY_CALLS: Final = 50


async def settle(state: RunState) -> None:
    """Bring the run to rest, whatever it was doing."""
    phase = _enter_settling(state)
    urgent = StopEvent(state, Mode.KILL)
    try:
        await _leave_queue(state)
        waited_for = await _stop_everything(state, urgent)
        await _undo(state)
        await _return_prompts(state)
        added = seal(state)
        await _pause_if_large(state)
        # A stop may have come before the question was out.
        if not state.tools.processes.closed and not _waits_for_person(state):
            await _end_processes(state, urgent)
        has_last_hooks = not state.config.hooks.wanted.isdisjoint((OnMessage, AfterRun))
        if has_last_hooks:  # hooks see the end only when everything before it is saved
            await _save(state)
        ending = write_ending(state, phase, waited_for)
        result = state.result = build_result(ending)
        if has_last_hooks:
            await _call_last_hooks(state, ending, result, added, urgent)
    finally:
        urgent.forget()
    await _save_end(state, ending, result)
    await _pause_if_large(state)
    end(state)


async def _pause_if_large(state: RunState) -> None:
    """Let the loop go on between two steps that take long in a run with many calls."""
    for batch in state.tools.batches:
        if len(batch.calls) > _MANY_CALLS:
            await state.shield.wait((state.progress.loop.create_future(),), seconds=0)
            return


def settle_at_once(state: RunState) -> None:
    """Bring a run to rest that cannot wait for anything: its task has ended, or never began. One step."""
    phase, journal = _enter_settling(state), state.saving.journal
    if journal is not None and not journal.end_is_saved:
        state.saving.unsaved = journal.error or StoreUnavailable("The run ended before it could be saved.")
    if state.result is None:
        seal(state)
        state.result = build_result(write_ending(state, phase, ()))
    elif state.saving.unsaved is not None:
        update_receipt(state.result.receipt, unsaved=str(state.saving.unsaved))
    end(state)


def _enter_settling(state: RunState) -> Phase:
    """Enter the settling phase and fix whether the run was stopped or had finished."""
    phase = _phase_of_stop(state)
    if phase not in (Phase.SETTLING, Phase.ENDED):
        state.progress.enter(Phase.SETTLING)
    state.prompts.inbox.close()
    if state.claim.held:
        state.turn.drop_committed()
    if state.turn.view.builder is not None:
        state.turn.view.builder.close()
    _finish_if_answered(state)
    return phase


def _phase_of_stop(state: RunState) -> Phase:
    """The phase in which a stop takes effect: for an answer that a limit has cut, the one in which it was written."""
    phase, asked, cause = state.progress.phase, state.progress.asked_during, state.token.cause
    was_cut = phase is Phase.STEERING and cause is not None and cause.source == "budget"
    return asked if was_cut and asked is not None else phase


def _finish_if_answered(state: RunState) -> None:
    """An answer that is complete and asks for nothing more is the end of the run, even if a stop came just then."""
    builder = state.turn.view.builder
    if state.progress.over or builder is None or not builder.complete or state.prompts.waiting:
        return
    if state.turn.view.batch is not None:  # it asked for tools
        return
    answer = state.turn.answer
    if answer is not None and state.spending.last_answer:
        finish_last_answer(state)
    elif answer is not None and not answer.tool_calls and not is_paused(state):
        with suppress(OutputMismatch):
            finish_with_answer(state, parse_output(state))


# --- Stopping what moves -------------------------------------------------------------------------------------------


async def _stop_everything(state: RunState, urgent: StopEvent) -> tuple[str, ...]:
    """Stop tools and processes, hang up on the model, call the hooks. Returns the tools that it waits for, by name."""
    batch = state.turn.view.batch
    waited_for = () if batch is None else batch.waiting_for()
    hooks: asyncio.Task[None] | None = None
    cause = None if state.progress.over else state.token.cause
    if cause is not None:
        state.events.push(StopRequested(cause, waited_for))
        if OnStop in state.config.hooks.wanted:
            hooks = _start_hooks(state, OnStop(state.claim.context, state.token, cause))
    if batch is not None:
        await batch.stop(state.shield, urgent.future)
    if state.token.cancelled or not _waits_for_person(state):
        await _end_processes(state, urgent)
    if children := state.family.living:
        await _stop_children(state, children, urgent)
    if state.foreign_tasks.abandoned:
        bound = FINAL_GRACE if urgent.is_set() else HANG_UP_GRACE
        await state.foreign_tasks.wait_for_abandoned(state.shield, seconds=bound)
    if hooks is not None:
        await _bound(state, hooks, STOP_HOOK_GRACE, urgent)
    return waited_for


async def _end_processes(state: RunState, urgent: StopEvent) -> None:
    """End the background processes. None can be started from now on."""
    state.tools.processes.closed = True
    if state.tools.processes.by_name:
        await state.tools.processes.end(state.shield, urgent.future)


def _waits_for_person(state: RunState) -> bool:
    """Whether the run ends with a question, so that its task goes on later, with its background processes."""
    finished = state.progress.finished
    waits = state.family.parent is None and finished is not None and finished[0] == "interrupt"
    return waits and not state.config.one_step  # the next step may be in another process


async def _stop_children(state: RunState, children: list[ChildRun], urgent: StopEvent) -> None:
    """Runs that a tool has started and not waited for do not outlive this one. Each gets the graces of its tools."""
    for child in children:
        child.handle.cancel("The run above has ended", source="parent")
    # The grace of a call that was given up was the grace of what it had started, too.
    given_up = {
        id(child)
        for child in children
        for batch in state.tools.batches
        if batch.has_abandoned(child.state.family.call_id)
    }
    waiting = [child for child in children if id(child) not in given_up]
    tools = [tool for child in waiting for tool in child.state.config.tools.values()]
    at_rest = [child.state.progress.at_rest.future() for child in waiting]
    grace = SETTLING_SLACK + max((tool.policy.grace for tool in tools), default=0.0)
    await state.shield.wait(at_rest, seconds=grace, unless=urgent.future)
    await state.shield.wait(at_rest, seconds=KILL_SLACK + max((tool.final_grace for tool in tools), default=0.0))


async def _undo(state: RunState) -> None:
    """Take back what the run did, if the stop asked for that. A stop that becomes more urgent ends the undo."""
    for batch in state.tools.batches:
        state.tools.undo_log.add_cut(state.run_id, state.config.agent, batch.cut_calls())
    if not state.tools.undo_wanted or state.progress.over:
        return
    if not state.claim.held and not await _join_task_to_undo(state):
        return
    began_in = state.token.mode

    def on_request(mode: Mode) -> None:
        if mode is Mode.KILL and began_in is not Mode.KILL:
            state.tools.undo_token.cancel("the stop became more urgent")

    forget = state.token.watch(on_request)
    try:
        log = state.tools.undo_log if state.family.parent is not None else state.tools.undo_log.root
        journal = state.saving.journal
        saved = None if journal is None else journal.save_values
        state.tools.undone, interrupted = await log.undo(state.tools.undo_token, saved, save_timeout=SAVE_GRACE)
        state.shield.interrupted |= interrupted
    finally:
        forget()
    if not state.claim.held:  # else the model is told as the turn is sealed
        state.claim.conversation.drop_pending(state.config.cut_note + undo_note(state.tools.undone))
        log.mark_told()


async def _join_task_to_undo(state: RunState) -> bool:
    """Whether a run that was stopped before its session was open has a task to undo: that of the runs before it.

    Not while another run has the conversation: the task is that run's, and its session is open.
    """
    conversation, given = state.claim.conversation, state.claim.input
    if given.prompt is not None or not conversation.must_be_opened or conversation.holder != state.run_id:
        return False
    journal = state.saving.journal or state.saving.open(state)
    await state.shield.wait((journal.opening,), seconds=SAVE_GRACE)
    task = conversation.task if journal.opened else None
    if task is None:
        return False
    join_effects(state, task.id)
    return True


def _start_hooks(state: RunState, event: HookEvent) -> asyncio.Task[None]:
    hooks = state.config.hooks.call(event, state.hook_failed)
    return start_task(hooks, name=f"hooks for {type(event).__name__}")


async def _call_last_hooks(
    state: RunState, ending: Ending, result: RunResult, added: tuple[Message, ...], urgent: StopEvent
) -> None:
    """Call the hooks for the last messages, and for the end. Any stop cuts those of a run that had finished."""
    context, token, wanted = state.claim.context, state.token, state.config.hooks.wanted
    any_stop = StopEvent(state, Mode.AFTER_TURN)
    bound, unless = (STOP_HOOK_GRACE, urgent) if ending.stop.cause else (END_HOOK_GRACE, any_stop)
    try:
        if OnMessage in wanted:
            for message in added:
                await _call_hooks(state, OnMessage(context, token, message), bound, unless)
        if AfterRun in wanted:
            await _call_hooks(state, AfterRun(context, token, result), bound, unless)
    finally:
        any_stop.forget()


async def _call_hooks(state: RunState, event: HookEvent, seconds: float, unless: StopEvent) -> None:
    await _bound(state, _start_hooks(state, event), seconds, unless)


async def _bound(state: RunState, task: asyncio.Task[None], seconds: float, unless: StopEvent) -> None:
    """Wait for a task within a bound, then cancel it; one that does not even end then is named on the receipt.

    So is one that is left by an exception in this task, such as a Ctrl-C without a handler.
    """
    try:
        # Let it begin: hooks that need no waiting are called at a kill as well.
        await state.shield.wait((task,), seconds=0)
        await state.shield.wait((task,), seconds=seconds, unless=unless.future)
        if not task.done():
            task.cancel()
            await state.shield.wait((task,), seconds=FINAL_GRACE)
    finally:
        if not task.done():
            state.foreign_tasks.abandoned.append(task)
            task.cancel()  # raises when the loop was closed


# --- Saving --------------------------------------------------------------------------------------------------------


async def _leave_queue(state: RunState) -> None:
    """Leave the queue of the session. A run of another process may have sent the prompt already."""
    journal = state.saving.journal
    if journal is None:
        return
    if journal.is_queued:
        journal.stop_waiting()
        await state.shield.wait((journal.opening,), seconds=SAVE_GRACE)
    if journal.sent_in is not None:
        state.progress.finish("steered")


async def _return_prompts(state: RunState) -> None:
    """Give prompts of other processes that were not sent back to them."""
    inbox = None if state.saving.journal is None else state.saving.journal.inbox
    if inbox is not None and state.prompts.stop_taking(inbox):
        returning = start_task(state.prompts.return_unsent(inbox), name="returning prompts")
        await state.shield.wait((returning,), seconds=SAVE_GRACE)
        if not returning.done():
            returning.cancel()


async def _save(state: RunState) -> None:
    """Bring everything so far into the store."""
    journal = state.saving.journal
    if journal is not None and state.saving.unsaved is None:
        if journal.opened:
            await _wait_for_store(state, journal.attempted(), journal.longest_save)
        _note_unsaved(state, journal)


async def _save_end(state: RunState, ending: Ending, result: RunResult) -> None:
    """Write down how the run ended, and let the session go. What cannot be saved makes the result another one."""
    journal = state.saving.journal
    if journal is None:
        return
    saved = journal.finish(last_event(result), result.receipt)
    if state.saving.unsaved is not None:  # it was waited for already
        return
    await _wait_for_store(state, saved, journal.longest_save)
    _note_unsaved(state, journal)
    if state.saving.unsaved is not None:
        unsaved = ending.not_saved(state.saving.unsaved, failed=state.progress.error is not None)
        state.result = build_result(unsaved)
        state.spending.refresh_receipt()  # with what has changed while the store was waited for


async def _wait_for_store(state: RunState, saved: asyncio.Future[None], longest: float) -> None:
    """Wait until the journal has saved this or given up, which it does by itself; but only a moment after a stop.

    An outside cancellation is a stop here.
    """
    stop = StopEvent(state, Mode.AFTER_TURN)
    stopped = stop.future
    shield = BoundedShield(f"saving run {state.run_id}", lambda: None if stopped.done() else stopped.set_result(None))
    try:
        await shield.wait((saved,), seconds=longest, unless=stopped)
        await shield.wait((saved,), seconds=SAVE_GRACE)
    finally:
        stop.forget()
        state.shield.interrupted |= shield.interrupted


def _note_unsaved(state: RunState, journal: Journal) -> None:
    """Note what could not be saved; for a finished run that is a failure, unless it may go on in memory."""
    if not journal.all_saved:
        late = StoreUnavailable(f"The store did not answer within {SAVE_GRACE:g} s.")
        state.saving.unsaved = journal.error or (late if journal.opened else ended_too_soon())
        if state.progress.finished and state.progress.error is None and (journal.failed or journal.must_save):
            state.progress.error = state.saving.unsaved


# --- Sealing: no waiting from here to the end ----------------------------------------------------------------------


def seal(state: RunState) -> tuple[Message, ...]:
    """Put what the turn amounts to into the conversation, so that the next prompt can follow. One step."""
    if not state.claim.held:  # the conversation was another run's all the time, or could not be begun with
        return_answers(state)
        return ()
    if state.progress.error is not None and return_answers(state):
        return ()
    answer, builder, batch = state.turn.end_answer(), state.turn.view.builder, state.turn.view.batch
    if batch is None and answer is not None and answer.tool_calls:  # asked for, and never begun
        batch = state.tools.begin_batch(answer.tool_calls)
    if state.progress.finished is not None and state.progress.finished[0] == "interrupt":
        if not state.token.cancelled:
            if state.spending.reached is not None:
                suspend_at_limit(state, state.spending.reached)
                return ()
            assert answer is not None
            assert batch is not None
            batch.announce(finished_only=True)
            state.tools.suspend(answer, batch)
            return ()
        state.progress.finished = None  # the stop came before the question was out: it is not asked any more
    if batch is not None:
        batch.announce()
    state.spending.close_entry("completed" if builder is not None and builder.complete else "hung_up")
    note = state.config.failed_note if state.progress.error else state.progress.stop_note or state.config.cut_note
    note += undo_note(state.tools.undone)
    if state.tools.undone:
        state.tools.undo_log.root.mark_told()
    turn = state.turn.view.turn(unsettled=Outcome.NEVER_STARTED)
    added = close_turn(turn, state.claim.conversation.messages, note)
    state.tools.torn_calls += builder.torn_calls() if builder is not None else ()
    state.turn.commit(added)
    for message in added:
        state.events.push(MessageAdded(message))
    return added


def end(state: RunState) -> None:
    """Release the conversation and emit the one terminal event."""
    result = state.result
    assert result is not None
    receipt = result.receipt
    has_changed = receipt.still_running or state.foreign_tasks.abandoned  # some may have ended, or hooks been left
    left = state.still_running() if has_changed else None
    update_receipt(receipt, latency=latency(receipt.cause), still_running=left)
    if state.saving.journal is not None:
        state.saving.journal.close()
    if result.stop_reason == "interrupt" and state.claim.task is not None and state.tools.processes.still_running():
        state.claim.task.pause()
    else:
        state.tools.processes.end_soon()
    state.claim.conversation.release(state.run_id)
    if not state.progress.ended:
        state.progress.enter(Phase.ENDED)
    state.events.close(last_event(result))
