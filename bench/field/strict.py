"""What is wrong with a conversation that came over OpenAI's Chat Completions, by two sets of rules.

`openai_faults` are those that OpenAI's own endpoint answers with a 400: a tool call without its result, a result
without its call, a message without content. `strict_faults` has these and what other servers of the same interface
refuse too: blank text, arguments that are no JSON object, and roles that do not alternate (two user messages in a row,
a user message right after a tool result), as Mistral and many chat templates do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

Message = Mapping[str, Any]

_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_MAY_FOLLOW: Final[Mapping[str, tuple[str, ...]]] = {
    "nothing": ("system", "user"),
    "system": ("system", "user"),
    "user": ("assistant",),
    "assistant": ("user",),
    "assistant with calls": ("tool",),
    "tool": ("tool", "assistant"),
}


def openai_faults(messages: list[Message]) -> list[str]:
    """Everything that OpenAI would refuse. Empty when it would answer."""
    return list(_openai_faults(messages))


def strict_faults(messages: list[Message]) -> list[str]:
    """Everything that the strictest servers would refuse. Empty when each would answer."""
    return [*_openai_faults(messages), *_order_faults(messages), *_content_faults(messages)]


def text_of(message: Message) -> str:
    """The words of a message, whichever of the two forms its content has."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") for part in content or ())


# --- OpenAI's rules -------------------------------------------------------------------------------------------------


def _openai_faults(messages: list[Message]) -> Iterator[str]:
    if not messages:
        yield "no messages"
    open_calls: list[str] = []
    for place, message in enumerate(messages):
        role = message.get("role")
        if role not in _ROLES:
            yield f"message {place}: no such role: {role!r}"
        if role == "tool":
            yield from _answer_faults(place, message, open_calls)
            continue
        if open_calls:
            yield f"message {place}: {len(open_calls)} tool calls have no result"
        open_calls = _call_ids(message)
        if len(set(open_calls)) < len(open_calls):
            yield f"message {place}: a call id is used twice"
        if not message.get("content") and not open_calls and message.get("content") != "":
            yield f"message {place}: no content"
    if open_calls:
        yield f"at the end: {len(open_calls)} tool calls have no result"


def _call_ids(message: Message) -> list[str]:
    return [call["id"] for call in message.get("tool_calls") or ()]


def _answer_faults(place: int, message: Message, open_calls: list[str]) -> Iterator[str]:
    """What is wrong with a tool result. Takes the call that it answers off the list."""
    answered = message.get("tool_call_id")
    if answered in open_calls:
        open_calls.remove(answered)
    else:
        yield f"message {place}: a result for a call that is not open"
    if message.get("content") is None:
        yield f"message {place}: no content"


# --- What others refuse too -----------------------------------------------------------------------------------------


def _order_faults(messages: list[Message]) -> Iterator[str]:
    before = "nothing"
    for place, message in enumerate(messages):
        role = "system" if message.get("role") == "developer" else str(message.get("role"))
        if before not in _MAY_FOLLOW or role not in _MAY_FOLLOW[before]:
            yield f"message {place}: {role} after {before}"
        before = "assistant with calls" if role == "assistant" and _call_ids(message) else role
    if before not in ("user", "tool"):
        yield f"at the end: {before}"


def _content_faults(messages: list[Message]) -> Iterator[str]:
    seen: set[str] = set()
    for place, message in enumerate(messages):
        calls = message.get("tool_calls") or ()
        if not calls and not text_of(message).strip():
            yield f"message {place}: blank text"
        for call in calls:
            if call["id"] in seen:
                yield f"message {place}: a call id is used twice in the conversation"
            seen.add(call["id"])
            if not _is_object(call["function"].get("arguments")):
                yield f"message {place}: arguments that are no JSON object"


def _is_object(arguments: object) -> bool:
    try:
        return isinstance(json.loads(str(arguments)), dict)
    except ValueError:
        return False
