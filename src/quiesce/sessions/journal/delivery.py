"""Those who read a run's events, as its journal sees them: each entry is handed on once, and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from ...events import Event
from .rows import Commit, JournalRow, ToolIntended


class EventDelivery:
    """Hands entries on to the readers by `deliver`, and knows how many they have had."""

    def __init__(self, deliver: Callable[[Sequence[Event]], None]) -> None:
        self._deliver: Final = deliver
        self._delivered = 0

    def tell(self, entries: list[JournalRow], first: int, marks: list[int] | None = None) -> None:
        """Hand the readers what they have not had yet; `first` is the number of the first entry.

        `marks` are those that are not for readers; they are looked for when it is None.
        """
        if self._delivered > first:
            entries = entries[self._delivered - first :]
            first, marks = self._delivered, None
        self._delivered = first + len(entries)
        if marks is None:
            entries = [each for each in entries if each.__class__ is not Commit and each.__class__ is not ToolIntended]
        elif marks:
            entries = entries.copy()
            for mark in reversed(marks):
                del entries[mark]
        if entries:
            self._deliver(cast("list[Event]", entries))
