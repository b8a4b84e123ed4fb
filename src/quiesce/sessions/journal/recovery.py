"""Recovery after a crash: the last turn of a run that never ended, from its journal, sealed so that it is valid."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from ...conversation.answer import AnswerBuilder
from ...conversation.continuation import continued
from ...conversation.sealing import close_turn, seal_answer, seal_turn, still_asked, unfinished
from ...conversation.validity import faults
from ...events import Delta, ModelCallStarted, RetryScheduled, ToolEnded, ToolStarted
from ...interrupts import PendingTurn
from ...messages import AssistantContent, AssistantMessage, Message, Outcome, ToolCall, ToolResult
from ...tools.undo.effect import CRASHED
from ..damage import PENDING, StoredConversation, damaged, read_rows
from ..records import RunEnd, WriteBatch
from .rows import Commit, JournalRow, ToolIntended, encode

CRASH_NOTE: Final = "(This answer ended here because the program was interrupted.)"
UNKNOWN_SENTENCE: Final = "No result: the program ended while this was running. Whether it did its work is not known."


class Crash(Struct, frozen=True):
    """A run that never ended. `unknown` are the calls that may have run, wholly, in part or not at all."""

    run_id: str
    unknown: tuple[ToolCall, ...] = ()
    kept_text: int = 0


class CrashedRun:
    """The turn that a crashed run was in, from its journal and from the pending turn that it had resumed."""

    def __init__(
        self, run_id: str, before: Sequence[Message], pending: PendingTurn | None, rows: Iterable[JournalRow]
    ) -> None:
        self._before: Final = tuple(before)
        self._pending: Final = pending
        self._resumed: Final = pending is not None and pending.taken_by == run_id
        self._answer_builder: AnswerBuilder | None = None
        self._results: Final[dict[str, ToolResult]] = {}
        self._intended: Final[set[str]] = set()
        for row in rows:
            self._add(row)
        answer = self._answer()
        calls = () if answer is None else answer.tool_calls
        self.unknown: Final = tuple(
            call for call in calls if call.id in self._intended and call.id not in self._results
        )
        self.kept_text: Final = 0 if answer is None else len(answer.text)

    def _answer(self) -> AssistantMessage | None:
        if self._answer_builder is None and self._resumed and self._pending is not None:
            for each in self._pending.calls:
                if each.result is not None:
                    self._results.setdefault(each.call.id, each.result)
            return self._pending.answer
        turn = seal_turn(self._answer_builder, {})
        return turn[0] if turn and isinstance(turn[0], AssistantMessage) else None

    def _add(self, row: JournalRow) -> None:
        match row:
            case Commit() | RetryScheduled():
                self._begin(None)
            case ModelCallStarted():
                if self._answer_builder is not None and self._answer_builder.has_content:
                    return  # middleware goes on with its answer in another request
                self._begin(AnswerBuilder(_call_ids(self._before), self._continued_from()))
            case _ if isinstance(row, Delta):
                if self._answer_builder is None:  # middleware answers without a request
                    self._begin(AnswerBuilder(_call_ids(self._before), self._continued_from()))
                assert self._answer_builder is not None
                self._answer_builder.add(row)
            case ToolIntended(call_id):
                self._intended.add(call_id)
            case ToolStarted(call):
                self._intended.add(call.id)
            case ToolEnded(result):
                self._results[result.call_id] = result
            case _:
                pass

    def _continued_from(self) -> tuple[AssistantContent, ...]:
        """The beginning of the answer, when the run was to continue one that had been cut."""
        last = self._before[-1] if self._before else None
        return (continued(last, prefill=True) or ()) if isinstance(last, AssistantMessage) else ()

    def _begin(self, builder: AnswerBuilder | None) -> None:
        self._answer_builder = builder
        self._results.clear()
        self._intended.clear()

    def conversation(self) -> tuple[tuple[Message, ...], PendingTurn | None]:
        """The conversation with the turn sealed, so that a prompt may follow; or with its pending turn."""
        if self._pending is not None and not self._resumed:
            return self._before, self._pending
        answer = self._answer()
        unknown = {call.id: unfinished(call, Outcome.UNKNOWN, UNKNOWN_SENTENCE) for call in self.unknown}
        if self._pending is not None and answer is self._pending.answer:
            waiting = still_asked(self._pending, {**self._results, **unknown}, begun=False)
            if waiting is not None:  # some questions have no answer: they are asked again
                return self._before, waiting
        turn = () if answer is None else seal_answer(answer, {**self._results, **unknown})
        continues = turn and self._before and isinstance(self._before[-1], AssistantMessage)
        before = self._before[:-1] if continues else self._before  # the turn continues the last answer, and replaces it
        return (*before, *close_turn(turn, before, CRASH_NOTE)), None


def set_messages(batch: WriteBatch, before: Sequence[Message], after: Sequence[Message]) -> None:
    """Let a batch make the stored conversation `before` into `after`."""
    same = 0
    while same < min(len(before), len(after)) and before[same] is after[same]:
        same += 1
    batch.first_message, batch.messages = same, list(after[same:])
    batch.cuts = same < len(before)


class Sealing(NamedTuple):
    """A conversation before and after a run that never ended was sealed."""

    crash: Crash
    before: StoredConversation
    after: StoredConversation

    @property
    def values(self) -> dict[str, bytes]:
        """The crash as a named value, saved in the same write: what recovers it may be killed right after that."""
        return {CRASHED + self.crash.run_id: encode(self.crash)} if self.crash.unknown else {}

    def batch(self) -> WriteBatch:
        """The batch that saves the sealed conversation, and the end of the crashed run."""
        batch = WriteBatch(self.crash.run_id)
        set_messages(batch, self.before.messages, self.after.messages)
        batch.values = dict(self.values)
        if self.after is not self.before:
            batch.values[PENDING] = encode(self.after.pending)
        batch.end = RunEnd("crashed", "crashed", time.time(), encode(self.crash))
        return batch


def seal_unfinished(
    name: str, found: StoredConversation, unfinished: Mapping[str, Sequence[bytes]], writer: str
) -> tuple[list[Sealing], str]:
    """Seal the runs that never ended, in order. Also returns what of their journals could not be read.

    Only the run that wrote last may change the conversation: after the others, another run has written to it.
    """
    sealings: list[Sealing] = []
    damage = ""
    for run_id, payloads in unfinished.items():
        rows, unread = read_rows(payloads)
        damage = damage or unread
        crashed = CrashedRun(run_id, *found, rows)
        after = StoredConversation(*crashed.conversation()) if run_id == writer else found
        wrong = faults(after.messages)
        if wrong:
            raise damaged(name, f"It is not a valid conversation: {'; '.join(wrong[:3])}.")
        sealings.append(
            Sealing(Crash(run_id, crashed.unknown, crashed.kept_text if run_id == writer else 0), found, after)
        )
        found = after
    return sealings, damage


def _call_ids(messages: Iterable[Message]) -> set[str]:
    return {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls}
