"""After a crash: what the journal of a run that never ended amounts to, as a turn that can stay in the conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from ..draft import Draft
from ..events import (
    AnswerEnd,
    AnswerStart,
    ModelCallStarted,
    ReasoningDelta,
    RetryScheduled,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolEnded,
    ToolStarted,
    UsageDelta,
)
from ..messages import AssistantMessage, Message, Outcome, ToolCall, ToolResult
from ..transcript import close, seal_turn, unfinished
from .records import Commit, JournalRow, ToolIntended

CRASH_NOTE: Final = "(This answer ended here because the program was interrupted.)"
UNKNOWN_SENTENCE: Final = "No result: the program ended while this was running. Whether it did its work is not known."


class Crash(Struct, frozen=True):
    """A run that never came to its end. `unknown` are the calls that may have run, wholly, in part or not at all."""

    run_id: str
    unknown: tuple[ToolCall, ...] = ()
    kept_text: int = 0


class Torn:
    """The turn that a crashed run was in, read from its journal."""

    def __init__(self, before: Sequence[Message], rows: Iterable[JournalRow]) -> None:
        self._before: Final = tuple(before)
        self._draft: Draft | None = None
        self._results: Final[dict[str, ToolResult]] = {}
        self._intended: Final[set[str]] = set()
        for row in rows:
            self._take(row)
        turn = seal_turn(self._draft, self._results)
        answer = turn[0] if turn and isinstance(turn[0], AssistantMessage) else None
        calls = () if answer is None else answer.tool_calls
        self.unknown: Final = tuple(
            call for call in calls if call.id in self._intended and call.id not in self._results
        )
        self.kept_text: Final = 0 if answer is None else len(answer.text)

    def _take(self, row: JournalRow) -> None:
        match row:
            case Commit() | RetryScheduled():
                self._begin(None)
            case ModelCallStarted():
                self._begin(Draft(_call_ids(self._before)))
            case (
                AnswerStart()
                | TextDelta()
                | ReasoningDelta()
                | ToolCallStart()
                | ToolCallArguments()
                | ToolCallEnd()
                | UsageDelta()
                | AnswerEnd()
            ):
                if self._draft is not None:
                    self._draft.add(row)
            case ToolIntended(call_id):
                self._intended.add(call_id)
            case ToolStarted(call):
                self._intended.add(call.id)
            case ToolEnded(result):
                self._results[result.call_id] = result
            case _:
                pass

    def _begin(self, draft: Draft | None) -> None:
        self._draft = draft
        self._results.clear()
        self._intended.clear()

    def sealed(self) -> tuple[Message, ...]:
        """What the turn adds to the conversation, so that a prompt may follow."""
        unknown = {call.id: unfinished(call, Outcome.UNKNOWN, UNKNOWN_SENTENCE) for call in self.unknown}
        return close(seal_turn(self._draft, {**self._results, **unknown}), self._before, CRASH_NOTE)


def _call_ids(messages: Iterable[Message]) -> set[str]:
    return {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls}
