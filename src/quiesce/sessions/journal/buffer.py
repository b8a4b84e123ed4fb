"""The write buffer of a journal: what is collected for the next batch while the last one is on its way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from ...events import RunEnded
from ...messages import Message
from ..records import RunBegin, RunEnd, WriteBatch
from .rows import JournalRow

WRITER: Final = "conversation.writer"
"""The session's value that names the run that wrote to it last: only that one's journal says how it goes on."""


class WriteBuffer:
    """Everything that was taken since the last batch. The first batch says that the run has begun."""

    def __init__(self, run_id: str, agent: str) -> None:
        self._entries: Final[list[JournalRow]] = []
        self.add: Final[Callable[[JournalRow], None]] = self._entries.append
        """Add an entry. The list's own method, because every chunk of an answer comes by here."""
        self._run_id: Final = run_id
        self._begin: RunBegin | None = RunBegin(agent, time.time())
        self._messages: list[Message] = []
        self._values: dict[str, bytes] = {}
        self._answers: dict[int, str] = {}
        self._marks: list[int] = []
        self._cut = 0
        self._rows = 0
        self._next_event = 1

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JournalRow]:
        return iter(self._entries)

    def clear(self) -> None:
        """Forget the entries: nothing more is to be written."""
        self._entries.clear()

    def replace(self, messages: tuple[Message, ...], replacing: int) -> None:
        """Messages that are in the conversation now, some of them in place of the last ones before."""
        unsent = min(replacing, len(self._messages))
        del self._messages[len(self._messages) - unsent :]
        self._cut += replacing - unsent
        self._messages.extend(messages)

    def mark(self) -> None:
        """The entry that comes next is not for readers."""
        self._marks.append(len(self._entries))

    def set_value(self, key: str, value: bytes) -> None:
        """A named value of the session."""
        self._values[key] = value

    def mark_sent(self, position: int) -> None:
        """A queued prompt of another process is among the committed messages."""
        self._answers[position] = self._run_id

    def turn(self, saved: int, closing: tuple[RunEnded, bytes] | None) -> WriteBatch:
        """Take what is in the buffer as a batch, and begin a new one.

        `saved` is how many messages the store has; `closing` is how the run ended, and its receipt, if it has.
        """
        batch = WriteBatch(self._run_id, first_row=self._rows, first_event=self._next_event)
        batch.entries = self._entries.copy()
        self._entries.clear()
        batch.messages, self._messages = self._messages, []
        batch.values, self._values = self._values, {}
        batch.sent_prompts, self._answers = self._answers, {}
        batch.begin, self._begin = self._begin, None
        batch.marks, self._marks = self._marks, []
        batch.first_message = saved - self._cut
        batch.cuts, self._cut = self._cut > 0, 0
        if closing is not None:
            _close(batch, *closing)
        self._rows += batch.count
        self._next_event += len(batch.entries) - len(batch.marks)
        return batch


def _close(batch: WriteBatch, last: RunEnded, detail: bytes) -> None:
    batch.closing = last
    batch.end = RunEnd("ended", last.stop_reason, time.time(), detail)
    batch.release = True
