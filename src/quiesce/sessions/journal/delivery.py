"""Delivery of a run's events to its readers: each one once, and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from ...events import Event
from .rows import MARKS, JournalRow


class EventDelivery:
    """Hands entries to the readers through `send`, and counts them."""

    def __init__(self, send: Callable[[Sequence[Event]], None]) -> None:
        self._send: Final = send
        self.delivered = 0
        """How many entries have been delivered. Marks count too, although readers do not get them."""

    def deliver(self, entries: list[JournalRow], first: int, marks: list[int] | None = None) -> None:
        """Send readers those entries that they have not had yet. `first` is the index of `entries[0]` in the run.

        `marks` are the indexes of entries that are not for readers; when it is None, they are found by their type.
        """
        if self.delivered > first:
            entries = entries[self.delivered - first :]
            first, marks = self.delivered, None
        self.delivered = first + len(entries)
        if marks is None:
            entries = [each for each in entries if each.__class__ not in MARKS]
        elif marks:
            entries = entries.copy()
            for mark in reversed(marks):
                del entries[mark]
        if entries:
            self._send(cast("list[Event]", entries))
