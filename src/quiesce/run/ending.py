"""How a run ended: written once, when nothing moves any more. Pure functions build receipt and result from it."""

from __future__ import annotations

import time
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..cancellation import Cause, Mode
from ..conversation.sealing import last_complete_turn
from ..errors import StoreError, public_text
from ..events import RunEnded
from ..interrupts import Interrupt
from ..messages import AssistantMessage, Message, Outcome, UserMessage
from ..phases import Phase
from ..receipt import CallReceipt, LateOutcome, LimitUse, Receipt, UndoReceipt
from ..result import RunResult, StopReason
from ..sessions.opening_failure import ended_too_soon
from ..task import Task
from ..usage.ledger import Usage
from ..usage.live import LiveUsage
from .limit_checks import limit_uses
from .state import RunState
from .undo import RunUndo


class Stop(Struct, frozen=True):
    """Where the run was when it ended, and the stop that ended it, if one did."""

    phase: Phase
    cause: Cause | None
    mode: Mode | None
    asked_during: Phase | None
    latency: float | None
    waited_for: tuple[str, ...]


class Words(Struct, frozen=True):
    """What the run left in the conversation, what it asks a person, and what it did not send."""

    messages: tuple[Message, ...]
    new_messages: tuple[Message, ...]
    interrupts: tuple[Interrupt, ...]
    unsent: tuple[UserMessage, ...]


class Work(Struct, frozen=True):
    """What became of everything that the run has started."""

    calls: tuple[CallReceipt, ...]
    processes: tuple[str, ...]
    children: tuple[RunResult, ...]
    still_running: tuple[str, ...]


class Spent(Struct, frozen=True):
    """What the run used, how much of its limits that is, and what its task has used so far."""

    usage: Usage
    limits: tuple[LimitUse, ...]
    task: Task | None


class Live(Struct, frozen=True):
    """What goes on to change after the end: receipt and result share it with the run."""

    usage: LiveUsage
    undo_log: RunUndo
    undo: list[UndoReceipt]
    late: list[LateOutcome]


class Ending(Struct, frozen=True):
    """How a run ended: all that its receipt and its result are built from."""

    run_id: str
    agent: str
    call_id: str | None
    steered: str | None
    reason: StopReason
    output: tuple[Any, ...]
    error: Exception | None
    answered_at_limit: bool
    saved: bool | None
    unsaved: StoreError | None
    stop: Stop
    words: Words
    work: Work
    spent: Spent
    live: Live

    def not_saved(self, error: StoreError, *, failed: bool) -> Ending:
        """The same ending, of which the last part is not in the store. A finished run may fail because of that."""
        if not failed or self.error is not None or self.stop.cause is not None:
            return replace(self, saved=False, unsaved=error)
        words = replace(self.words, interrupts=())
        failure: dict[str, Any] = {"reason": "error", "output": (), "error": error, "answered_at_limit": False}
        return replace(self, saved=False, unsaved=error, words=words, **failure)


def write_ending(state: RunState, phase: Phase, waited_for: tuple[str, ...]) -> Ending:
    """The ending of a run whose turn is sealed. Written again after a Ctrl-C in the middle, it is the same."""
    reason, output = _stop_reason_of(state)
    saving, has_store = state.saving, state.claim.conversation.must_be_opened
    unsaved = saving.unsaved or (ended_too_soon() if has_store and saving.journal is None else None)
    return Ending(
        run_id=state.run_id,
        agent=state.config.agent,
        call_id=state.family.call_id,
        steered=None if saving.journal is None else saving.journal.sent_in,
        reason=reason,
        output=output,
        error=state.progress.error,
        answered_at_limit=reason == "limit" and state.progress.finished is not None and state.config.output is None,
        saved=unsaved is None if has_store else None,
        unsaved=unsaved,
        stop=_stop(state, reason, phase, waited_for),
        words=_words(state, reason),
        work=_work(state),
        spent=_spent(state),
        live=_live(state),
    )


def _stop_reason_of(state: RunState) -> tuple[StopReason, tuple[Any, ...]]:
    progress = state.progress
    if progress.error is not None:
        return "error", ()
    if progress.finished is not None:
        return progress.finished
    cause = state.token.cause
    return ("limit" if cause is not None and cause.source == "budget" else "cancelled"), ()


def _stop(state: RunState, reason: StopReason, phase: Phase, waited_for: tuple[str, ...]) -> Stop:
    if reason not in ("cancelled", "limit"):
        return Stop(phase, None, None, None, None, waited_for)
    cause, mode = state.token.cause, state.token.mode
    if state.spending.cause is not None and reason == "limit":  # it ended with the last answer that a limit allowed
        cause, mode = state.spending.cause, state.spending.cause.mode
    return Stop(phase, cause, mode, state.progress.asked_during, latency(cause), waited_for)


def _words(state: RunState, reason: StopReason) -> Words:
    claim, unsent = state.claim, state.prompts.unsent()
    messages = state.turn.view.settled if claim.held else last_complete_turn(claim.conversation.messages)
    if claim.prompt is not None and not claim.held and reason != "steered":
        unsent = (claim.prompt, *unsent)
    return Words(
        messages,
        messages[claim.first_message :] if claim.held else (),
        claim.conversation.interrupts if reason == "interrupt" else (),
        unsent,
    )


def _work(state: RunState) -> Work:
    tools, children = state.tools, state.family.results() if state.family.children else ()
    calls = tools.receipts()
    if tools.torn_calls:
        calls += tuple(_torn_receipt(*call) for call in tools.torn_calls)
    processes = tools.processes.states if tools.processes.by_name else ()
    return Work(calls, processes, children, state.still_running())


def _spent(state: RunState) -> Spent:
    claim, usage = state.claim, state.spending.bill.ledger.usage
    task = None if claim.task is None or not claim.held else claim.task.end(usage)
    return Spent(usage, limit_uses(state), task if state.family.parent is None else None)


def _live(state: RunState) -> Live:
    log = state.tools.undo_log if state.family.parent is not None else state.tools.undo_log.root
    return Live(LiveUsage(state.spending.bill.ledger), RunUndo(state), log.receipts, state.tools.late)


def build_receipt(ending: Ending) -> Receipt:
    """The receipt of a run that ended so."""
    stop, words, work, spent = ending.stop, ending.words, ending.work, ending.spent
    last = words.new_messages[-1] if words.new_messages else None
    return Receipt(
        run_id=ending.run_id,
        stop_reason=ending.reason,
        cause=stop.cause,
        mode=stop.mode,
        phase=stop.phase,
        latency=stop.latency,
        calls=work.calls,
        still_running=work.still_running,
        usage=spent.usage,
        kept_text=len(last.text) if isinstance(last, AssistantMessage) and last.cut else 0,
        waited_for=stop.waited_for,
        processes=work.processes,
        undo=ending.live.undo,
        late=ending.live.late,
        asked_during=stop.asked_during,
        limits=spent.limits,
        saved=ending.saved,
        unsaved="" if ending.unsaved is None else ending.unsaved.public,
        task=spent.task,
    )


def build_result(ending: Ending) -> RunResult:
    """The result of a run that ended so."""
    words, live = ending.words, ending.live
    return RunResult(
        ending.run_id,
        ending.reason,
        words.messages,
        words.new_messages,
        live.usage,
        build_receipt(ending),
        parsed=ending.output,
        error=ending.error,
        interrupts=words.interrupts,
        unsent=words.unsent,
        steered=ending.steered,
        agent=ending.agent,
        call_id=ending.call_id,
        undo_log=live.undo_log,
        children=ending.work.children,
        answered_at_limit=ending.answered_at_limit,
    )


def latency(cause: Cause | None) -> float | None:
    """Seconds since the stop was asked for."""
    return None if cause is None else time.perf_counter() - cause.clock


def last_event(result: RunResult) -> RunEnded:
    """The event that tells readers how the run ended."""
    error = result.error
    failure = (None, None) if error is None else (public_text(error), type(error).__name__)
    return RunEnded(result.stop_reason, result.receipt, *failure)


def _torn_receipt(call_id: str, name: str) -> CallReceipt:
    return CallReceipt(
        call_id, name, Outcome.NEVER_STARTED, ok=False, detail="The model was stopped while it wrote the arguments."
    )


def broken_end(state: RunState, error: Exception) -> RunEnded:
    """The last event of a run whose end could not be written, because of a fault in Quiesce: readers need one."""
    receipt = Receipt(
        state.run_id,
        "error",
        state.token.cause,
        state.token.mode,
        state.progress.phase,
        None,
        (),
        state.still_running(),
        state.spending.bill.ledger.usage,  # what is under way is not counted: that may be what has failed
    )
    return RunEnded("error", receipt, str(error), type(error).__name__)
