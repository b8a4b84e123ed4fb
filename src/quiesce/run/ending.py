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
from ..messages import AssistantMessage, Message, Outcome, UserMessage
from ..phases import Phase
from ..receipt import CallReceipt, Receipt
from ..result import RunResult, StopReason
from ..sessions.opening_failure import ended_too_soon
from ..task import Task
from ..usage.ledger import Usage
from ..usage.live import LiveUsage
from .limit_checks import limit_uses
from .state import RunState
from .undo import RunUndo


class Ending(Struct, frozen=True):
    """Why a run ended, what it left in the conversation, and what it did not send."""

    reason: StopReason
    output: tuple[Any, ...]
    error: Exception | None
    cause: Cause | None
    mode: Mode | None
    phase: Phase
    asked_during: Phase | None
    messages: tuple[Message, ...]
    new_messages: tuple[Message, ...]
    unsent: tuple[UserMessage, ...]
    waited_for: tuple[str, ...]
    torn_calls: tuple[tuple[str, str], ...]
    saved: bool | None
    usage: Usage
    unsaved: StoreError | None = None
    task: Task | None = None

    def not_saved(self, error: StoreError, *, failed: bool) -> Ending:
        """The same ending, of which the last part is not in the store. A finished run may fail because of that."""
        if not failed or self.error is not None or self.cause is not None:
            return replace(self, saved=False, unsaved=error)
        return replace(self, reason="error", output=(), error=error, saved=False, unsaved=error)


def write_ending(state: RunState, phase: Phase, waited_for: tuple[str, ...]) -> Ending:
    """The ending of a run whose turn is sealed. Takes what was not sent, so it is called once."""
    reason, output = _verdict(state)
    stopped = reason in ("cancelled", "limit")
    cause, mode = state.token.cause, state.token.mode
    if state.spending.cause is not None and reason == "limit":  # it ended with the last answer that a limit allowed
        cause, mode = state.spending.cause, state.spending.cause.mode
    claim, saving = state.claim, state.saving
    messages = state.turn.view.settled if claim.held else last_complete_turn(claim.conversation.messages)
    unsent = state.prompts.unsent()
    has_store = claim.conversation.must_be_opened
    unsaved = saving.unsaved or (ended_too_soon() if has_store and saving.journal is None else None)
    if claim.prompt is not None and not claim.held and reason != "steered":
        unsent = (claim.prompt, *unsent)
    usage = state.spending.bill.ledger.usage
    return Ending(
        reason=reason,
        output=output,
        error=state.progress.error,
        cause=cause if stopped else None,
        mode=mode if stopped else None,
        phase=phase,
        asked_during=state.progress.asked_during if stopped else None,
        messages=messages,
        new_messages=messages[claim.first_message :] if claim.held else (),
        unsent=unsent,
        waited_for=waited_for,
        torn_calls=state.tools.torn_calls,
        saved=unsaved is None if has_store else None,
        usage=usage,
        unsaved=unsaved,
        task=None if claim.task is None or not claim.held else claim.task.end(usage),
    )


def _verdict(state: RunState) -> tuple[StopReason, tuple[Any, ...]]:
    progress = state.progress
    if progress.error is not None:
        return "error", ()
    if progress.finished is not None:
        return progress.finished
    cause = state.token.cause
    return ("limit" if cause is not None and cause.source == "budget" else "cancelled"), ()


def build_receipt(state: RunState, ending: Ending) -> Receipt:
    """The receipt of a run that ended so."""
    last = ending.new_messages[-1] if ending.new_messages else None
    return Receipt(
        run_id=state.run_id,
        stop_reason=ending.reason,
        cause=ending.cause,
        mode=ending.mode,
        phase=ending.phase,
        latency=latency(ending.cause),
        calls=(*state.tools.receipts(), *(_torn_receipt(*call) for call in ending.torn_calls)),
        still_running=state.still_running(),
        usage=ending.usage,
        kept_text=len(last.text) if isinstance(last, AssistantMessage) and last.cut else 0,
        waited_for=ending.waited_for,
        processes=state.tools.processes.states,
        undo=(state.tools.undo_log if state.family.parent is not None else state.tools.undo_log.root).receipts,
        late=state.tools.late,
        asked_during=ending.asked_during,
        limits=limit_uses(state),
        saved=ending.saved,
        unsaved="" if ending.unsaved is None else ending.unsaved.public,
        task=ending.task if state.family.parent is None else None,
    )


def build_result(state: RunState, ending: Ending) -> RunResult:
    """The result of a run that ended so."""
    journal, finished = state.saving.journal, state.progress.finished is not None
    return RunResult(
        state.run_id,
        ending.reason,
        ending.messages,
        ending.new_messages,
        LiveUsage(state.spending.bill.ledger),
        build_receipt(state, ending),
        parsed=ending.output,
        error=ending.error,
        interrupts=state.claim.conversation.interrupts if ending.reason == "interrupt" else (),
        unsent=ending.unsent,
        steered=None if journal is None else journal.sent_in,
        agent=state.config.agent,
        call_id=state.family.call_id,
        undo_log=RunUndo(state),
        children=state.family.results() if state.family.children else (),
        answered_at_limit=finished and ending.reason == "limit" and state.config.output is None,
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
        state.spending.usage(),
    )
    return RunEnded("error", receipt, str(error), type(error).__name__)
