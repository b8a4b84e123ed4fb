"""What makes a conversation valid, and how a torn one is sealed.

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

from ..errors import InvalidConversation, InvalidPrompt
from ..interrupts import PendingCall, PendingTurn
from ..messages import (
    AssistantContent,
    AssistantMessage,
    CutNote,
    Document,
    Image,
    Message,
    Outcome,
    Prompt,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from .answer import AnswerBuilder

DEFAULT_CUT_NOTE: Final = "(This answer was stopped here.)"
DEFAULT_FAILED_NOTE: Final = "(This answer ended here because of an error.)"

# What a call that has no result of its own is answered with. Each sentence claims only what is known.
SENTENCES: Final[Mapping[Outcome, str]] = {
    Outcome.NEVER_STARTED: "Not run: the run was stopped before this tool started.",
    Outcome.CANCELLED: "Stopped while it was running: its work may be incomplete.",
    Outcome.KILLED: "Killed while it was running: its work may be incomplete.",
    Outcome.ABANDONED: "No result: it did not stop in time and was left running. What it did is not known.",
    Outcome.UNKNOWN: "No result yet: whether it ran is not known.",
}

_USER_PARTS: Final = (Text, Image, Document)
_ASSISTANT_PARTS: Final = (Text, Reasoning, ToolCall, CutNote)
_IDENTIFIER: Final = re.compile(r"[a-zA-Z0-9_-]+")
_MAY_FOLLOW: Final[Mapping[str, frozenset[str]]] = {
    "start": frozenset({"user"}),
    "user": frozenset({"assistant"}),
    "assistant": frozenset({"user"}),
    "assistant with calls": frozenset({"tool"}),
    "tool": frozenset({"assistant"}),
}


# --- Valid ---------------------------------------------------------------------------------------------------------


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
    for place, message in enumerate(messages):
        role = _role(message)
        if role.split()[0] not in _MAY_FOLLOW[before]:
            yield f"message {place}: {role} after {before}"
        match message:
            case UserMessage(content):
                yield from _content_faults(place, content, _USER_PARTS)
            case AssistantMessage(content):
                yield from _content_faults(place, content, _ASSISTANT_PARTS)
                yield from _call_faults(place, message.tool_calls, ids)
            case ToolMessage(results):
                if tuple(result.call_id for result in results) != tuple(call.id for call in asked):
                    yield f"message {place}: results do not answer the calls one by one, in order"
                for result in results:
                    yield from _content_faults(place, result.content, _USER_PARTS)
        asked = message.tool_calls if isinstance(message, AssistantMessage) else ()
        before = role
    if asked:
        yield f"the last message asks for {len(asked)} tools and nothing answers"


def _role(message: Message) -> str:
    match message:
        case UserMessage():
            return "user"
        case AssistantMessage():
            return "assistant with calls" if message.tool_calls else "assistant"
        case ToolMessage():
            return "tool"


def _content_faults(place: int, content: tuple[object, ...], allowed: tuple[type, ...]) -> Iterator[str]:
    if not content:
        yield f"message {place}: no content"
    for part in content:
        if not isinstance(part, allowed):
            yield f"message {place}: a {type(part).__name__} has no place there"
        match part:
            case Text(text) | CutNote(text):
                if not text.strip():
                    yield f"message {place}: blank text"
                if not _encodes(text):
                    yield f"message {place}: text that cannot be encoded"
            case Reasoning(text):
                if not _encodes(text):
                    yield f"message {place}: reasoning that cannot be encoded"
            case Image(_, data, url) | Document(_, data, url):
                if not data and not url:
                    yield f"message {place}: an attachment with neither data nor url"
            case _:
                pass


def _call_faults(place: int, calls: tuple[ToolCall, ...], ids: set[str]) -> Iterator[str]:
    for call in calls:
        if call.id in ids:
            yield f"message {place}: call id {call.id!r} is used twice"
        ids.add(call.id)
        if not _IDENTIFIER.fullmatch(call.id):
            yield f"message {place}: call id {call.id!r} has characters that providers refuse"
        if not _IDENTIFIER.fullmatch(call.name) or len(call.name) > 64:
            yield f"message {place}: tool name {call.name!r} is not one that providers accept"
        try:
            msgspec.json.encode(call.arguments)
        except (TypeError, ValueError, RecursionError):
            yield f"message {place}: the arguments of {call.id!r} are not JSON"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- Sealed --------------------------------------------------------------------------------------------------------


def seal_turn(builder: AnswerBuilder | None, results: Mapping[str, ToolResult]) -> tuple[Message, ...]:
    """What a turn adds to the conversation, however far it came: the answer, and a result for each of its calls.

    A call with no result in `results` did not start, and its result says so.
    """
    content = builder.content() if builder is not None else ()
    if not content:
        return ()
    return seal_answer(AssistantMessage(content, cut=builder is not None and not builder.complete), results)


def seal_answer(answer: AssistantMessage, results: Mapping[str, ToolResult]) -> tuple[Message, ...]:
    """An answer, and a result for each of its calls. A call with no result in `results` did not start."""
    calls = answer.tool_calls
    if not calls:
        return (answer,)
    answered = (results.get(call.id) or unfinished(call, Outcome.NEVER_STARTED) for call in calls)
    return (answer, ToolMessage(tuple(answered)))


def seal_pending(pending: PendingTurn, note: str) -> tuple[Message, ...]:
    """The messages of a turn whose pending approval is dropped."""
    crashed = pending.taken_by is not None
    results = {each.call.id: each.result or _unanswered(each, crashed=crashed) for each in pending.calls}
    return close_turn(seal_answer(pending.answer, results), (), note)


def _unanswered(pending: PendingCall, *, crashed: bool) -> ToolResult:
    if crashed and not pending.interrupts:  # it was free to run, and how far it came is not known
        return unfinished(pending.call, Outcome.UNKNOWN)
    return unfinished(pending.call, Outcome.CANCELLED if pending.started else Outcome.NEVER_STARTED)


def close_turn(turn: tuple[Message, ...], before: tuple[Message, ...], note: str) -> tuple[Message, ...]:
    """End a stopped or failed run's last turn so that a user message may follow: with a note to the model.

    `before` is the conversation up to this turn. A turn whose answer came to its own end needs no note.
    """
    last = turn[-1] if turn else before[-1] if before else None
    match last:
        case AssistantMessage(content, model, cut=True) if turn:
            noted: tuple[AssistantContent, ...] = (*content, CutNote(note))
            return (*turn[:-1], AssistantMessage(noted, model, cut=True))
        case AssistantMessage() | None:
            return turn
        case UserMessage() | ToolMessage():
            return (*turn, AssistantMessage((CutNote(note),), cut=True))


def last_complete_turn(messages: tuple[Message, ...], at: int | None = None) -> tuple[Message, ...]:
    """The first `at` messages (all, unless given; negative from the end), without a turn that would be torn there."""
    kept = messages if at is None else messages[:at]
    while kept and not (isinstance(kept[-1], AssistantMessage) and not kept[-1].tool_calls):
        kept = kept[:-1]
    return kept


def unfinished(call: ToolCall, outcome: Outcome, sentence: str = "") -> ToolResult:
    """The result of a call that has none of its own."""
    return ToolResult(call.id, call.name, (Text(sentence or SENTENCES[outcome]),), outcome, is_error=True)


# --- Prompts -------------------------------------------------------------------------------------------------------


def user_message(prompt: Prompt) -> UserMessage:
    """A prompt as a message. Raises `InvalidPrompt` for anything that cannot be one."""
    match prompt:
        case str():
            message = UserMessage((Text(prompt),))
        case UserMessage():
            message = prompt
        case list() | tuple():
            message = UserMessage(tuple(Text(part) if isinstance(part, str) else part for part in prompt))
        case _:  # pyright: ignore[reportUnnecessaryComparison]
            raise InvalidPrompt(prompt)
    wrong = faults((message,))
    if wrong:
        raise InvalidPrompt(prompt, f"This prompt cannot be sent: {'; '.join(wrong)}.")
    return message
