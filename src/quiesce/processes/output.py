"""What a process has printed: told as it comes, and kept up to a limit."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final

# Characters that readers are told: a program that prints megabytes does not flood the event streams and the store.
_MAX_TOLD: Final = 100_000


class CapturedOutput:
    """The text of one stream. Of more than `limit` characters, the first half and the last half are kept.

    `on_text` gets the beginning of it, as it comes.
    """

    def __init__(self, limit: int, on_text: Callable[[str], None] | None = None) -> None:
        self._head_size: Final = max(1, limit // 2)
        self._tail_size: Final = max(1, limit - limit // 2)
        self._most_told: Final = min(limit, _MAX_TOLD)
        self._on_text: Final = on_text
        self._decoder: Final = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = ""
        self._tail = ""
        self._left_out = 0
        self._told = 0

    def add(self, data: bytes) -> None:
        """Add output. Empty bytes mark its end."""
        text = self._decoder.decode(data, final=not data)
        if not text:
            return
        self._keep(text)
        if self._on_text is not None and self._told < self._most_told:
            self._told += len(text)
            self._on_text(text)

    def _keep(self, text: str) -> None:
        room = self._head_size - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:] if room > 0 else self._tail + text
        self._left_out += max(0, len(tail) - self._tail_size)
        self._tail = tail[-self._tail_size :]

    @property
    def text(self) -> str:
        """What is kept, with a note where something was left out."""
        if not self._left_out:
            return self._head + self._tail
        return f"{self._head}\n[... {self._left_out} characters left out ...]\n{self._tail}"

    def __bool__(self) -> bool:
        return bool(self._head)
