"""What a valid conversation is.

The rules are the strictest of all providers together, so that a valid conversation can go to any of them:

- it begins with a user message; user, assistant and tool messages follow each other only as `_MAY_FOLLOW` says;
- an assistant message that asks for tools is followed by a tool message that answers each call once, in order;
- call ids are unique, and ids and tool names use only letters, digits, `_` and `-`;
- no message and no text is empty or blank, arguments are JSON objects, and all text can be encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from .._exact import NotJSON, encodes, exact
from ..errors import InvalidConversation, InvalidPrompt
from ..messages import (
    AssistantMessage,
    CutNote,
    Document,
    Image,
    Message,
    Prompt,
    ProviderPart,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)

_USER_PARTS: Final = (Text, Image, Document)
_ASSISTANT_PARTS: Final = (Text, Reasoning, ToolCall, CutNote, ProviderPart)
_IDENTIFIER: Final = re.compile(r"[a-zA-Z0-9_-]+")
_ANSWER: Final = frozenset({"assistant", "assistant with calls"})
_MAY_FOLLOW: Final[Mapping[str, frozenset[str]]] = {
    "start": frozenset({"user"}),
    "user": _ANSWER,
    "assistant": frozenset({"user"}),
    "assistant with calls": frozenset({"tool"}),
    "tool": _ANSWER,
}


def faults(messages: Iterable[Message]) -> tuple[str, ...]:
    """Everything that is wrong with a conversation, in plain words. Empty when it is valid."""
    return tuple(_faults(tuple(messages)))


def check(messages: Iterable[Message]) -> None:
    """Raises `InvalidConversation` unless every provider would accept these messages."""
    found = faults(messages)
    if found:
        raise InvalidConversation(found)


def _faults(messages: tuple[Message, ...]) -> Iterator[str]:
    before = "start"
    asked: tuple[ToolCall, ...] = ()
    ids: set[str] = set()
    for index, message in enumerate(messages):
        calls: tuple[ToolCall, ...] = ()
        match message:
            case UserMessage(content):
                role = "user"
                yield from () if _is_plain_text(content) else _content_faults(index, content, _USER_PARTS)
            case AssistantMessage(content):
                calls = message.tool_calls
                role = "assistant with calls" if calls else "assistant"
                yield from () if _is_plain_text(content) else _content_faults(index, content, _ASSISTANT_PARTS)
                yield from _call_faults(index, calls, ids) if calls else ()
            case ToolMessage(results):
                role = "tool"
                if [result.call_id for result in results] != [call.id for call in asked]:
                    yield f"message {index}: results do not answer the calls one by one, in order"
                for result in results:
                    yield from (
                        () if _is_plain_text(result.content) else _content_faults(index, result.content, _USER_PARTS)
                    )
        if role not in _MAY_FOLLOW[before]:
            yield f"message {index}: {role} after {before}"
        asked, before = calls, role
    if asked:
        yield f"the last message asks for {len(asked)} tools and nothing answers"


def _is_plain_text(content: tuple[object, ...]) -> bool:
    """Whether content is one text that is as it should be: the usual case, told fast."""
    if len(content) != 1 or not isinstance(part := content[0], Text):
        return False
    text = part.text
    return text != "" and not text.isspace() and encodes(text)


def _content_faults(index: int, content: tuple[object, ...], allowed: tuple[type, ...]) -> Iterator[str]:
    if not content:
        yield f"message {index}: no content"
    for part in content:
        if not isinstance(part, allowed):
            yield f"message {index}: a {type(part).__name__} has no place there"
        match part:
            case Text(text) | CutNote(text):
                if not text.strip():
                    yield f"message {index}: blank text"
                if not encodes(text):
                    yield f"message {index}: text that cannot be encoded"
            case Reasoning(text):
                if not encodes(text):
                    yield f"message {index}: reasoning that cannot be encoded"
            case Image(_, data, url, file_id=file_id) | Document(_, data, url, file_id=file_id):
                if not data and not url and not file_id:
                    yield f"message {index}: an attachment with neither data nor url nor file_id"
            case _:
                pass


def _call_faults(index: int, calls: tuple[ToolCall, ...], ids: set[str]) -> Iterator[str]:
    for call in calls:
        if call.id in ids:
            yield f"message {index}: call id {call.id!r} is used twice"
        ids.add(call.id)
        if not _IDENTIFIER.fullmatch(call.id):
            yield f"message {index}: call id {call.id!r} has characters that providers refuse"
        if not _IDENTIFIER.fullmatch(call.name) or len(call.name) > 64:
            yield f"message {index}: tool name {call.name!r} is not one that providers accept"
        try:
            msgspec.json.encode(call.arguments)
        except (TypeError, ValueError, RecursionError):
            yield f"message {index}: the arguments of {call.id!r} are not JSON"


def user_message(prompt: Prompt) -> UserMessage:
    """A prompt as a message, of exact types. Raises `InvalidPrompt` for anything that cannot be one."""
    match prompt:
        case str():
            message = UserMessage((Text(prompt),))
            if type(prompt) is str and _is_plain_text(message.content):  # the usual case, told fast
                return message
        case UserMessage():
            message = prompt
        case list() | tuple():
            message = UserMessage(tuple(Text(part) if isinstance(part, str) else part for part in prompt))
        case _:  # pyright: ignore[reportUnnecessaryComparison]
            raise InvalidPrompt(prompt)
    try:
        message = exact(message, UserMessage)
        wrong = faults((message,))
    except NotJSON as error:
        wrong = (str(error),)
    if wrong:
        raise InvalidPrompt(prompt, f"This prompt cannot be sent: {'; '.join(wrong)}.")
    return message
