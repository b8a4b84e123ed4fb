"""Repeated calls: turns in a row that make the same tool calls and get the same results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ..messages import AssistantMessage, Message, ToolMessage


class Repetition(Struct, frozen=True):
    """How many turns at the end of a conversation are the same, and the tools that they call."""

    times: int
    tools: tuple[str, ...]


def repetition(messages: tuple[Message, ...], limit: int) -> Repetition:
    """How often the last turn's calls were made in a row; counted up to `limit`, which is all that matters.

    It is read from the conversation, so it needs no state that could be lost at a restart. What the model says beside
    its calls does not count, and neither does the order of parallel calls. A user message ends the row.
    """
    turns = _turns_from_the_end(messages)
    last = next(turns, None)
    if last is None:
        return Repetition(0, ())
    times = 1
    while times < limit and next(turns, None) == last:
        times += 1
    return Repetition(times, tuple(dict.fromkeys(name for name, *_ in last)))


def _turns_from_the_end(messages: tuple[Message, ...]) -> Iterator[list[tuple[Any, ...]]]:
    """The turns with tools at the end of the conversation, the last one first, each as its calls with their results."""
    end = len(messages)
    while end >= 2:
        answer, results = messages[end - 2], messages[end - 1]
        if not isinstance(answer, AssistantMessage) or not isinstance(results, ToolMessage):
            return
        found = {result.call_id: result for result in results.results}
        calls = [
            (call.name, call.arguments, found[call.id].content, found[call.id].is_error) for call in answer.tool_calls
        ]
        yield sorted(calls, key=lambda call: (call[0], str(call[1])))
        end -= 2
