"""The write buffer of a journal: entries, messages and values for the next batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ...events import RunEnded
from ...messages import Message
from ..records import RunBegin, RunEnd, WriteBatch
from .rows import JournalRow

WRITER: Final = "conversation.writer"
"""The session's value that names the run that wrote to it last. Recovery seals a turn only from that run's journal."""


class WriteBuffer:
    """Collects what is written with the next batch. The first batch says that the run has begun.

    Only this object adds and takes pending entries.
    """

    def __init__(self, run_id: str, agent: str) -> None:
        self._entries: Final[list[JournalRow]] = []
        self.add: Final[Callable[[JournalRow], None]] = self._entries.append
        """Add an entry. The list's own method, because every chunk of an answer comes by here."""
        self._run_id: Final = run_id
        self._begin: RunBegin | None = RunBegin(agent, time.time())
        self._messages: list[Message] = []
        self._values: dict[str, bytes] = {}
        self._sent_prompts: dict[int, str] = {}
        self._marks: list[int] = []
        self._cut = 0
        self._rows = 0
        self._next_event = 1

    def __len__(self) -> int:
        return len(self._entries)

    def after(self, count: int) -> list[JournalRow]:
        """The entries without the first `count`."""
        return self._entries[count:]

    def clear(self) -> None:
        """Forget the entries: nothing more is to be written."""
        self._entries.clear()

    def replace(self, messages: tuple[Message, ...], replacing: int) -> None:
        """Add messages to the conversation, in place of its last `replacing` ones."""
        unsent = min(replacing, len(self._messages))
        del self._messages[len(self._messages) - unsent :]
        self._cut += replacing - unsent
        self._messages.extend(messages)

    def mark(self) -> None:
        """Note that the next entry is not for readers."""
        self._marks.append(len(self._entries))

    def set_value(self, key: str, value: bytes) -> None:
        """Set a named value of the session."""
        self._values[key] = value

    def mark_sent(self, position: int) -> None:
        """Note that a queued prompt of another process is among the messages."""
        self._sent_prompts[position] = self._run_id

    def take_batch(self, saved: int, closing: tuple[RunEnded, bytes] | None) -> WriteBatch:
        """Empty the buffer into a batch.

        `saved` is how many messages the store has. `closing` is the run's last event and its receipt, once it ends.
        """
        batch = WriteBatch(self._run_id, first_row=self._rows, first_event=self._next_event)
        batch.entries = self._entries.copy()
        self._entries.clear()
        batch.messages, self._messages = self._messages, []
        batch.values, self._values = self._values, {}
        batch.sent_prompts, self._sent_prompts = self._sent_prompts, {}
        batch.begin, self._begin = self._begin, None
        batch.marks, self._marks = self._marks, []
        batch.first_message = saved - self._cut
        batch.cuts, self._cut = self._cut > 0, 0
        if closing is not None:
            batch.closing, detail = closing
            batch.end = RunEnd("ended", batch.closing.stop_reason, time.time(), detail)
            batch.release = True
        self._rows += batch.count
        self._next_event += len(batch.entries) - len(batch.marks)
        return batch
