"""The events that a run has had, for readers that come late: adjacent deltas joined, and bounded."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import groupby
from typing import Final, cast

from ...events import ChildEvent, Event, EventsDropped, ReasoningDelta, TextDelta, ToolCallArguments

# What is kept at most: events, with adjacent deltas joined, and characters of their text.
MAX_EVENTS: Final = 10_000
MAX_TEXT: Final = 1_000_000
# Deltas are joined up to about this many characters, so that the oldest text can be dropped piece by piece.
_PIECE: Final = 65_536


class EventHistory:
    """What a late reader gets first. Events are only appended to `recent`; joining them waits until it is worth it."""

    __slots__ = ("__weakref__", "_dropped", "_joined", "_text", "recent")

    def __init__(self) -> None:
        self.recent: Final[list[Event]] = []
        """The events since the last `compact()`. Append to it."""
        self._joined: Final[list[Event]] = []
        self._text = 0
        self._dropped = 0

    def compact(self) -> None:
        """Join adjacent deltas, and drop the oldest events where there are too many."""
        events = self.recent.copy()
        self.recent.clear()
        if self._joined and _length(self._joined[-1]) < _PIECE:
            last = self._joined.pop()
            self._text -= _length(last)
            events.insert(0, last)
        for event in _join(events):
            self._joined.append(event)
            self._text += _length(event)
        old = 0
        while len(self._joined) - old > MAX_EVENTS or (self._text > MAX_TEXT and len(self._joined) - old > 1):
            self._text -= _length(self._joined[old])
            old += 1
        del self._joined[:old]
        self._dropped += old

    def events(self) -> list[Event]:
        """All events from the first one. When some were dropped, an `EventsDropped` comes first."""
        self.compact()
        return [EventsDropped(self._dropped), *self._joined] if self._dropped else list(self._joined)


def _join(events: Iterable[Event]) -> Iterator[Event]:
    for key, group in groupby(_join_text(events), _join_key):
        if key is None:
            yield from group
        else:
            yield _joined_event(list(group))


def _join_text(events: Iterable[Event]) -> Iterator[Event]:
    """Join adjacent text, which most events are, in the quickest way."""
    texts: list[str] = []
    for event in events:
        if event.__class__ is TextDelta:
            texts.append(event.text)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
            continue
        if texts:
            yield TextDelta("".join(texts))
            texts.clear()
        yield event
    if texts:
        yield TextDelta("".join(texts))


def _join_key(event: Event) -> Hashable:
    """Adjacent events with the same key are joined; None for one that is not."""
    kind = event.__class__
    if kind is TextDelta:
        return kind
    if isinstance(event, ReasoningDelta):  # a signature belongs to its piece
        return None if event.signature is not None or event.provider_data is not None else kind
    if isinstance(event, ToolCallArguments):
        return kind, event.id
    if isinstance(event, ChildEvent):
        inner = _join_key(event.event)
        return None if inner is None else (kind, event.call_id, event.run_id, inner)
    return None


def _joined_event(group: list[Event]) -> Event:
    first = group[0]
    if len(group) == 1:
        return first
    if isinstance(first, ChildEvent):
        inner = _joined_event([each.event for each in cast("list[ChildEvent]", group)])
        return ChildEvent(first.call_id, first.run_id, inner)
    if isinstance(first, ToolCallArguments):
        return ToolCallArguments(first.id, "".join(each.fragment for each in cast("list[ToolCallArguments]", group)))
    text = "".join(each.text for each in cast("list[TextDelta]", group))
    return ReasoningDelta(text) if isinstance(first, ReasoningDelta) else TextDelta(text)


def _length(event: Event) -> int:
    """How many characters of text an event has. Messages count as none: the conversation keeps them anyway."""
    if isinstance(event, TextDelta | ReasoningDelta):
        return len(event.text)
    if isinstance(event, ToolCallArguments):
        return len(event.fragment)
    return _length(event.event) if isinstance(event, ChildEvent) else 0
