"""From "stop seen" to "at rest".

Every run ends here, the finished ones too. First everything that still moves is stopped, each within its own bound;
then, in one step with no waiting in it, the conversation is sealed; then hooks hear of it, within a bound; then the one
terminal event goes out. The waits are in `BoundedShield`s: an outside cancellation cannot break them, and is passed on
at the end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from .cancellation import BoundedShield, Mode
from .course import Course
from .errors import StoreUnavailable
from .events import MessageAdded, RunEnded, StopRequested
from .hooks import AfterRun, HookEvent, OnMessage, OnStop
from .loop import finish
from .messages import AssistantMessage, Message, Outcome
from .output import OutputMismatch
from .receipt import CallReceipt, Receipt, undo_note
from .result import RunResult, StopReason
from .sessions.journal import PATIENCE, TOO_SOON, Journal
from .sessions.rows import encode
from .state import Phase
from .tools.policy import LAST_BREATH
from .transcript import close, resting_place
from .usage.live import LiveUsage

# How long a stopped run waits for the model's connection to close, which takes a fraction of a millisecond.
HANG_UP_GRACE: Final = 0.5
# What a child run may need, besides its tools' graces, to come to rest: hanging up, hooks, and a machine that is slow.
SETTLING_SLACK: Final = 5.0
KILL_SLACK: Final = 0.5
# How long the end of a run that was stopped waits for the store. What is not saved by then is said so on the receipt.
SAVE_GRACE: Final = 2.0
# A journal gives up after its patience with each batch; at the end one may be on its way, and one is to come.
_LONGEST_SAVE: Final = 3 * PATIENCE
# How long hooks may take that hear of a stop, or of the end of a run that was stopped.
STOP_HOOK_GRACE: Final = 1.0
# How long hooks may take that hear of the end of a run that finished by itself. A stop ends that wait.
END_HOOK_GRACE: Final = 10.0


async def settle(course: Course) -> None:
    """Bring the run to rest, whatever it was doing."""
    hit = _enter_settling(course)
    urgent, forget_urgent = when(course, Mode.KILL)
    any_stop, forget_any = when(course, Mode.AFTER_TURN)
    try:
        await _leave_line(course)
        waited_for = await _stop_everything(course, urgent)
        await _undo(course)
        await _return_letters(course)
        added = seal(course)
        if _somebody_looks(course):  # before the end is written down: then what they see must be saved first
            await _save(course)
        result = _write_result(course, hit, waited_for)
        bound, unless = (STOP_HOOK_GRACE, urgent) if result.receipt.cause else (END_HOOK_GRACE, any_stop)
        for message in added:
            await _call_hooks(course, OnMessage(course.run_id, course.token, message), bound, unless)
        await _call_hooks(course, AfterRun(course.run_id, course.token, result), bound, unless)
    finally:
        forget_urgent()
        forget_any()
    if not await _save_end(course, result):
        _write_result(course, hit, waited_for)
    end(course)


def settle_at_once(course: Course) -> None:
    """Bring a run to rest that never came to wait for anything: its task was cancelled before it began."""
    hit = course.phase if course.phase in (Phase.SETTLING, Phase.ENDED) else _enter_settling(course)
    if course.result is None:
        if course.journal is not None:
            course.unsaved = course.journal.error or StoreUnavailable("The run ended before it could be saved.")
        seal(course)
        _write_result(course, hit, ())
    end(course)


def _enter_settling(course: Course) -> Phase:
    """From here on it is decided whether the run was stopped or had finished."""
    hit = course.phase
    course.enter(Phase.SETTLING)
    course.scope = None
    course.inbox.close()
    if course.current.draft is not None:
        course.current.draft.close()
    _finish_if_answered(course)
    return hit


def _finish_if_answered(course: Course) -> None:
    """An answer that is complete and asks for nothing more is the end of the run, even if a stop came just then."""
    draft, answer = course.current.draft, course.current.answer
    if course.to_say or not course.inbox.empty:  # there was more to do
        return
    if course.finished or course.error or draft is None or draft.ended is None or answer is None or answer.tool_calls:
        return
    with suppress(OutputMismatch):
        finish(course)


# --- Stopping what moves -------------------------------------------------------------------------------------------


async def _stop_everything(course: Course, urgent: asyncio.Future[None]) -> tuple[str, ...]:
    """Stop tools, hang up on the model, let hooks know. Returns the names of the tools that were waited for."""
    waited_for = course.current.batch.waiting_for() if course.current.batch is not None else ()
    hooks: asyncio.Task[None] | None = None
    cause = course.token.cause
    if not course.finished and not course.error and cause is not None:
        course.emit(StopRequested(cause, waited_for))
        hooks = _start_hooks(course, OnStop(course.run_id, course.token, cause))
    if course.current.batch is not None:
        await course.current.batch.stop(course.shield, urgent)
    await _stop_children(course, urgent)
    await course.errands.wait_for_strays(course.shield, seconds=LAST_BREATH if urgent.done() else HANG_UP_GRACE)
    if hooks is not None:
        await _bound(course, hooks, STOP_HOOK_GRACE, urgent)
    return waited_for


async def _stop_children(course: Course, urgent: asyncio.Future[None]) -> None:
    """Runs that a tool has started and not waited for do not outlive this one. Each gets the graces of its tools."""
    children = course.living_children
    for child in children:
        child.token.cancel("The run above has ended", source="parent")
    # The grace of a call that was given up was the grace of what it had started, too.
    waiting = [child for child in children if not any(batch.gave_up(child.call_id) for batch in course.batches)]
    tools = [tool for child in waiting for tool in child.setup.tools.values()]
    at_rest = [child.handle.at_rest() for child in waiting]
    grace = SETTLING_SLACK + max((tool.policy.grace for tool in tools), default=0.0)
    await course.shield.wait(at_rest, seconds=grace, unless=urgent)
    await course.shield.wait(at_rest, seconds=KILL_SLACK + max((tool.last_breath for tool in tools), default=0.0))


async def _undo(course: Course) -> None:
    """Take back what the run did, if the stop asked for that. A stop that becomes more urgent ends the undo."""
    for batch in course.batches:
        for call in batch.cut_calls():
            course.undo_log.note_cut(call)
    if not course.undo_wanted or course.finished or course.error:
        return
    began_in = course.token.mode

    def on_request(mode: Mode) -> None:
        if mode is Mode.KILL and began_in is not Mode.KILL:
            course.undo_token.cancel("the stop became more urgent")

    forget = course.token.watch(on_request)
    try:
        if await course.undo_log.run(course.undo_token):
            course.shield.interrupted = True
    finally:
        forget()


def when(course: Course, mode: Mode) -> tuple[asyncio.Future[None], Any]:
    """A future that is done once a stop at least as urgent as `mode` is asked for, and the way to forget it."""
    reached: asyncio.Future[None] = course.loop.create_future()

    def resolve() -> None:
        if not reached.done():
            reached.set_result(None)

    def on_request(asked: Mode) -> None:
        if asked >= mode:
            with suppress(RuntimeError):  # the loop has closed
                course.loop.call_soon_threadsafe(resolve)

    if course.token.wants(mode):
        resolve()
    return reached, course.token.watch(on_request)


def _start_hooks(course: Course, event: HookEvent) -> asyncio.Task[None] | None:
    if not course.setup.hooks.wanting(type(event)):
        return None
    hooks = course.setup.hooks.call(event, course.hook_failed)
    return asyncio.create_task(hooks, name=f"hooks for {type(event).__name__}")


async def _call_hooks(course: Course, event: HookEvent, seconds: float, unless: asyncio.Future[None]) -> None:
    hooks = _start_hooks(course, event)
    if hooks is not None:
        await _bound(course, hooks, seconds, unless)


async def _bound(course: Course, task: asyncio.Task[None], seconds: float, unless: asyncio.Future[None]) -> None:
    """Wait for a task within a bound, then cancel it; one that does not even end then is named on the receipt."""
    await course.shield.wait((task,), seconds=0)  # let it begin: hooks that need no waiting hear of a kill as well
    await course.shield.wait((task,), seconds=seconds, unless=unless)
    if not task.done():
        task.cancel()
        await course.shield.wait((task,), seconds=LAST_BREATH)
        if not task.done():
            course.errands.strays.append(task)


# --- Saving --------------------------------------------------------------------------------------------------------


def _somebody_looks(course: Course) -> bool:
    hooks = course.setup.hooks
    return bool(hooks.wanting(OnMessage) or hooks.wanting(AfterRun))


async def _leave_line(course: Course) -> None:
    """A run that waits for another process has perhaps been heard there already: then its prompt is said."""
    journal = course.journal
    if journal is None:
        return
    if journal.in_line:
        journal.hurry()
        await course.shield.wait((journal.opening,), seconds=SAVE_GRACE)
    if journal.said_in is not None:
        course.finish("steered")


async def _return_letters(course: Course) -> None:
    """What other processes have given the run to say, and it has not said, is theirs again."""
    mailbox = None if course.journal is None else course.journal.mailbox
    if mailbox is not None and course.correspondence.stop_taking(mailbox):
        returning = asyncio.create_task(course.correspondence.hand_back(mailbox), name="returning letters")
        await course.shield.wait((returning,), seconds=SAVE_GRACE)
        if not returning.done():
            returning.cancel()


async def _save(course: Course) -> None:
    """Bring everything so far into the store."""
    journal = course.journal
    if journal is not None and course.unsaved is None:
        if journal.opened:
            await _wait_for_store(course, journal.attempted())
        _note_unsaved(course, journal)


async def _save_end(course: Course, result: RunResult) -> bool:
    """Write down how the run ended, and let the session go. False when that makes the result another one."""
    journal = course.journal
    if journal is None:
        return True
    saved = journal.finish(_last_event(result), encode(result.receipt))
    if course.unsaved is not None:  # it was waited for already
        return True
    await _wait_for_store(course, saved)
    _note_unsaved(course, journal)
    return course.unsaved is None


async def _wait_for_store(course: Course, saved: asyncio.Future[None]) -> None:
    """Wait until the journal has saved this or given up, which it does by itself; but only a moment after a stop.

    An outside cancellation is a stop here.
    """
    stopped, forget = when(course, Mode.AFTER_TURN)
    shield = BoundedShield(f"saving run {course.run_id}", lambda: None if stopped.done() else stopped.set_result(None))
    try:
        await shield.wait((saved,), seconds=_LONGEST_SAVE, unless=stopped)
        await shield.wait((saved,), seconds=SAVE_GRACE)
    finally:
        forget()
        course.shield.interrupted |= shield.interrupted


def _note_unsaved(course: Course, journal: Journal) -> None:
    """What could not be saved is said; to a run that had finished, it is a failure unless it may go on in memory."""
    if not journal.all_saved:
        late = f"The store did not answer within {SAVE_GRACE:g} s."
        course.unsaved = journal.error or StoreUnavailable(late if journal.opened else TOO_SOON)
        if course.finished and course.error is None and (journal.failed or journal.must_save):
            course.error = course.unsaved


# --- Sealing: no waiting from here to the end ----------------------------------------------------------------------


def seal(course: Course) -> tuple[Message, ...]:
    """Put what the turn amounts to into the conversation, so that the next prompt can follow. One step."""
    if not course.has_floor:  # the conversation was another run's all the time
        return ()
    answer = course.current.answer
    if answer is not None and answer.tool_calls and course.current.batch is None:  # asked for, and never begun
        course.begin_batch(answer.tool_calls)
    if course.finished is not None and course.finished[0] == "interrupt" and course.token.cancelled:
        course.finished = None  # the stop came before the question was out: nobody is asked any more
    if course.finished is not None and course.finished[0] == "interrupt":
        assert answer is not None
        assert course.current.batch is not None
        course.current.batch.announce(finished_only=True)
        course.suspend(answer, course.current.batch)
        return ()
    if course.current.batch is not None:
        course.current.batch.announce()
    course.close_entry("completed" if course.current.draft is not None and course.current.draft.complete else "hung_up")
    note = (course.setup.failed_note if course.error else course.setup.cut_note) + undo_note(course.undo_log.receipts)
    added = close(course.current.so_far(), course.conversation.messages, note)
    course.torn += course.current.draft.torn_calls() if course.current.draft is not None else ()
    course.current.commit(added)
    for message in added:
        course.emit(MessageAdded(message))
    return added


def _write_result(course: Course, hit: Phase, waited_for: tuple[str, ...]) -> RunResult:
    reason, output = _verdict(course)
    stopped = reason in ("cancelled", "limit")
    messages = course.current.messages if course.has_floor else resting_place(course.conversation.messages)
    new = messages[course.first_message :] if course.has_floor else ()
    last = new[-1] if new else None
    receipt = Receipt(
        run_id=course.run_id,
        stop_reason=reason,
        cause=course.token.cause if stopped else None,
        mode=course.token.mode if stopped else None,
        phase=hit,
        latency=course.latency() if stopped else None,
        calls=(*course.call_receipts(), *(_torn_receipt(*call) for call in course.torn)),
        still_running=course.still_running(),
        usage=course.ledger.usage,
        kept_text=len(last.text) if isinstance(last, AssistantMessage) and last.cut else 0,
        waited_for=waited_for,
        undo=course.undo_log.receipts,
        late=course.late,
        asked_during=course.asked_during if stopped else None,
        saved=None if course.journal is None else course.unsaved is None,
        unsaved="" if course.unsaved is None else str(course.unsaved),
    )
    unsaid = course.correspondence.unsaid((*course.to_say, *course.inbox.take()))
    if course.prompt is not None and not course.has_floor and reason != "steered":
        unsaid = (course.prompt, *unsaid)
    course.result = RunResult(
        course.run_id,
        reason,
        messages,
        new,
        LiveUsage(course.ledger),
        receipt,
        output=output,
        error=course.error,
        interrupts=course.conversation.interrupts if reason == "interrupt" else (),
        unsaid=unsaid,
        steered=None if course.journal is None else course.journal.said_in,
        agent=course.setup.agent,
        call_id=course.call_id,
        undo_log=course.undo_log,
        children=tuple(child.result for child in course.children if child.result is not None),
    )
    return course.result


def _verdict(course: Course) -> tuple[StopReason, Any]:
    if course.error is not None:
        return "error", None
    if course.finished is not None:
        return course.finished
    cause = course.token.cause
    return ("limit" if cause is not None and cause.source == "budget" else "cancelled"), None


def _torn_receipt(call_id: str, name: str) -> CallReceipt:
    return CallReceipt(
        call_id, name, Outcome.NEVER_STARTED, detail="The model was stopped while it wrote the arguments."
    )


def end(course: Course) -> None:
    """Let the conversation go, and say so: the one terminal event."""
    result = course.result
    assert result is not None
    if result.receipt.cause is not None:
        result.receipt.latency = course.latency()
    result.receipt.still_running = course.still_running()
    if course.journal is not None:
        course.journal.close()
    course.conversation.release(course.run_id)
    course.enter(Phase.ENDED)
    course.broadcast.close(_last_event(result))


def _last_event(result: RunResult) -> RunEnded:
    error = result.error
    failure = (None, None) if error is None else (str(error), type(error).__name__)
    return RunEnded(result.stop_reason, result.receipt, *failure)
