"""How a torn turn is closed: its text is kept, and each of its calls gets a result that says what is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ..interrupts import NOT_ANSWERED, PendingCall, PendingTurn
from ..messages import (
    AssistantContent,
    AssistantMessage,
    CutNote,
    Message,
    Outcome,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from .answer import AnswerBuilder

DEFAULT_CUT_NOTE: Final = "(This answer was stopped here.)"
DEFAULT_FAILED_NOTE: Final = "(This answer ended here because of an error.)"

# What a call that has no result of its own is answered with. Each sentence claims only what is known.
SENTENCES: Final[Mapping[Outcome, str]] = {
    Outcome.NEVER_STARTED: "Not run: the run was stopped before this tool started.",
    Outcome.CANCELLED: "Stopped while it was running: its work may be incomplete.",
    Outcome.KILLED: "Killed while it was running: its work may be incomplete.",
    Outcome.ABANDONED: "No result: it did not stop in time and was left running. What it did is not known.",
    Outcome.UNKNOWN: "No result yet: whether it ran is not known.",
}
# The same for calls of a turn that waited for a person who was asked about another one of its calls.
BESIDE_A_QUESTION: Final = "Not run: a person was asked about another call of the same answer, and did not answer."
LIMIT_CAME_FIRST: Final = "Not run: a limit was reached first."


def seal_turn(builder: AnswerBuilder | None, results: Mapping[str, ToolResult]) -> tuple[Message, ...]:
    """What a turn adds to the conversation, however far it came: the answer, and a result for each of its calls.

    A call with no result in `results` did not start, and its result says so.
    """
    answer = None if builder is None else builder.message()
    return () if answer is None else seal_answer(answer, results)


def seal_answer(answer: AssistantMessage, results: Mapping[str, ToolResult]) -> tuple[Message, ...]:
    """An answer, and a result for each of its calls. A call with no result in `results` did not start."""
    calls = answer.tool_calls
    if not calls:
        return (answer,)
    answered = (results.get(call.id) or unfinished(call, Outcome.NEVER_STARTED) for call in calls)
    return (answer, ToolMessage(tuple(answered)))


def seal_pending(pending: PendingTurn, note: str) -> tuple[Message, ...]:
    """The messages of a turn whose pending approval is dropped."""
    results = {each.call.id: each.result or _unanswered(each, pending) for each in pending.calls}
    return close_turn(seal_answer(pending.answer, results), (), note)


def still_asked(taken: PendingTurn, results: Mapping[str, ToolResult], *, begun: bool = True) -> PendingTurn | None:
    """A turn whose run has died, as it goes on waiting for the answers that are missing; None when none is.

    A call that was free to run and has no result is `unknown`; or, without `begun`, still free to run.
    """

    def after(each: PendingCall) -> PendingCall:
        result = results.get(each.call.id) or each.result
        if result is None and not each.interrupts and begun:
            result = unfinished(each.call, Outcome.UNKNOWN)
        return each if result is None else replace(each, result=result, interrupts=())

    calls = tuple(after(each) for each in taken.calls)
    return replace(taken, calls=calls, taken_by=None) if any(each.interrupts for each in calls) else None


def _unanswered(pending: PendingCall, turn: PendingTurn) -> ToolResult:
    call, started, asked = pending.call, pending.started, bool(pending.interrupts)
    if turn.taken_by is not None and not asked:  # it was free to run, and how far it came is not known
        return unfinished(call, Outcome.UNKNOWN)
    if asked:
        return unfinished(call, Outcome.CANCELLED if started else Outcome.NEVER_STARTED, NOT_ANSWERED[started])
    if started:
        return unfinished(call, Outcome.CANCELLED)
    beside = BESIDE_A_QUESTION if turn.interrupts else ""
    return unfinished(call, Outcome.NEVER_STARTED, LIMIT_CAME_FIRST if turn.limit is not None else beside)


def close_turn(turn: tuple[Message, ...], before: tuple[Message, ...], note: str) -> tuple[Message, ...]:
    """End a stopped or failed run's last turn so that a user message may follow: with a note to the model.

    `before` is the conversation up to this turn. A turn whose answer came to its own end needs no note.
    """
    last = turn[-1] if turn else before[-1] if before else None
    match last:
        case AssistantMessage(content, model, cut=True) if turn:
            noted: tuple[AssistantContent, ...] = (*content, CutNote(note))
            return (*turn[:-1], AssistantMessage(noted, model, cut=True))
        case AssistantMessage() | None:
            return turn
        case UserMessage() | ToolMessage():
            return (*turn, AssistantMessage((CutNote(note),), cut=True))


def last_complete_turn(messages: tuple[Message, ...], at: int | None = None) -> tuple[Message, ...]:
    """The first `at` messages (all, unless given; negative from the end), without a turn that would be torn there."""
    kept = messages if at is None else messages[:at]
    while kept and not (isinstance(kept[-1], AssistantMessage) and not kept[-1].tool_calls):
        kept = kept[:-1]
    return kept


def unfinished(call: ToolCall, outcome: Outcome, sentence: str = "") -> ToolResult:
    """The result of a call that has none of its own."""
    return ToolResult(call.id, call.name, (Text(sentence or SENTENCES[outcome]),), outcome, is_error=True)
