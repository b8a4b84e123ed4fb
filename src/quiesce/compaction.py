"""Compaction: which messages of a long conversation are sent. The conversation itself keeps all of them.

The oldest exchanges are left out as a whole: a user message with everything up to the next one. Inside a long exchange,
an answer with tool calls goes together with its results, and the prompt stays. A call is never separated from its
result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from .conversation.answer import AnswerBuilder
from .errors import ConfigurationError, ModelError
from .messages import (
    AssistantMessage,
    CutNote,
    Document,
    Image,
    Message,
    ProviderPart,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from .models.base import Model, ModelRequest
from .models.resolve import resolve_model

# About how many tokens a picture is at most providers; and how many bytes of text are a token.
_PICTURE: Final = 1600
_BYTES: Final = 4
_OVERHEAD: Final = 4

SUMMARISE: Final = (
    "Summarise the conversation up to here, for yourself: you will see only your summary from now on. Keep what was"
    " asked for, what was decided, what was done with which result, and every name, number and open question that may"
    " matter. Answer with the summary alone."
)
SizeFunction: TypeAlias = Callable[[Message], int]

HEADING: Final = "(A summary of the conversation so far:)"
_BEFORE_SUMMARY: Final = "(Before I go on, I am asked for a summary.)"
# The share of the limit that is used after messages were left out.
_ROOM: Final = 0.7


class Summary(Struct, frozen=True):
    """A summary of the first `covers` messages of a conversation; `mark` is a hash that tells whether they changed.

    Without `text` they are left out, and nothing stands in their place.
    """

    covers: int
    mark: str
    text: str


class CompactionHost(Protocol):
    """The part of a run that compaction uses."""

    def message_size(self, message: Message) -> int:
        """About how many tokens a message is, for the model of the run."""
        ...

    @property
    def summary(self) -> Summary | None:
        """The last summary of this conversation."""
        ...

    def keep_summary(self, summary: Summary) -> None:
        """Keep a summary, in the session where there is one."""

    async def ask(self, request: ModelRequest, model: Model | None) -> AnswerBuilder:
        """Send a separate request to a model: it can be stopped, and is in the ledger. Raises a `ModelError`."""
        ...


class Context(Protocol):
    """A way to keep a conversation inside the window."""

    async def fit(self, messages: tuple[Message, ...], host: CompactionHost) -> tuple[Message, ...]:
        """What to send of these messages: a valid conversation that ends as they do."""
        ...


class Trim:
    """Leaves out the oldest exchanges, so that what is sent is no more than about `tokens`, or `messages`.

    The newest exchange always stays; when it alone is too long, its oldest answers go, each with its tool results. Once
    the limit is reached, three tenths of it are freed at once: until it is reached again, each request begins like the
    one before it, and a provider's cache serves that part.
    """

    def __init__(self, *, tokens: int | None = None, messages: int | None = None) -> None:
        self._tokens: Final = _positive("tokens", tokens)
        self._messages: Final = _positive("messages", messages)
        if tokens is None and messages is None:
            raise ConfigurationError("Trim() without a size.", todo="Use Trim(tokens=...) or Trim(messages=...).")

    async def fit(self, messages: tuple[Message, ...], host: CompactionHost) -> tuple[Message, ...]:
        """See `Context.fit`."""
        kept = _valid(host.summary, messages)
        before = 0 if kept is None or kept.text else kept.covers
        start = _Sizes(messages, host.message_size).fitting_start(self._tokens, self._messages, before)
        if start != before:
            host.keep_summary(Summary(start, _mark(messages, start), ""))
        return _sent_from(messages, start)


class Summarise:
    """Replaces the oldest messages by a summary, once the conversation is longer than about `tokens`.

    What is newer than about `keep` tokens (half of `tokens` by default) stays as it is. In a long exchange its prompt
    stays too, and the summary stands for its oldest answers and their tool results. The summary is written by `model`
    (a model or its name), the agent's own unless given; that call goes through the agent's middleware, can be stopped
    like any other, and is on the bill. When it fails, the oldest messages are left out instead.
    Raises `ConfigurationError`, and `UnknownModel` for a name that no provider claims.
    """

    def __init__(
        self, tokens: int, *, keep: int | None = None, model: Model | str | None = None, instructions: str = SUMMARISE
    ) -> None:
        self._tokens: Final = _positive("tokens", tokens) or 0
        self._keep: Final = _positive("keep", keep) or max(1, self._tokens // 2)
        if self._keep >= self._tokens:
            raise ConfigurationError("Summarise keeps more than it allows.", todo="Make keep smaller than tokens.")
        if not isinstance(instructions, str) or not instructions.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError("Summarise without instructions.", todo="Say what a summary is to contain.")
        self._model: Final = None if model is None else resolve_model(model)
        self._instructions: Final = instructions

    async def fit(self, messages: tuple[Message, ...], host: CompactionHost) -> tuple[Message, ...]:
        """See `Context.fit`."""
        found = _valid(host.summary, messages)
        before, text = (0, "") if found is None or not found.text else (found.covers, found.text)
        current = _sent_from(messages, before, text)
        if total_size(current, host.message_size) <= self._tokens:
            return current
        start = _Sizes(messages, host.message_size).newest_start(self._keep, before)
        if start is not None:
            try:
                written = await self._summarise(_sent_from(messages[:start], before, text), host)
            except ModelError:
                written = ""
            if written:
                host.keep_summary(Summary(start, _mark(messages, start), written))
                current = _sent_from(messages, start, written)
        return trimmed(current, self._tokens, None, host.message_size)

    async def _summarise(self, messages: tuple[Message, ...], host: CompactionHost) -> str:
        if isinstance(messages[-1], ToolMessage):  # roles must alternate
            messages = (*messages, AssistantMessage((CutNote(_BEFORE_SUMMARY),)))
        asked = UserMessage((Text(self._instructions),))
        answer = await host.ask(ModelRequest(messages=(*messages, asked)), self._model)
        return answer.text().strip() if answer.complete else ""


# --- Cutting ---------------------------------------------------------------------------------------------------------


def trimmed(
    messages: tuple[Message, ...], tokens: int | None, count: int | None, message_size: SizeFunction
) -> tuple[Message, ...]:
    """The newest part of a conversation that fits, valid like the whole."""
    return _sent_from(messages, _Sizes(messages, message_size).fitting_start(tokens, count))


def _starts(messages: tuple[Message, ...]) -> list[int]:
    """Where a request may begin: at a user message, or, with its prompt before it, at an answer after tool results."""
    return [
        index
        for index, message in enumerate(messages)
        if index and (isinstance(message, UserMessage) or isinstance(messages[index - 1], ToolMessage))
    ]


def _sent_from(messages: tuple[Message, ...], start: int, summary: str = "") -> tuple[Message, ...]:
    """The messages from `start` on, with a summary of those before it; an answer has its prompt before it."""
    if start == 0:
        return messages
    note = (Text(f"{HEADING}\n{summary}"),) if summary else ()
    first = messages[start]
    if isinstance(first, UserMessage):
        return (UserMessage((*note, *first.content)), *messages[start + 1 :]) if note else messages[start:]
    prompt = next(each for each in reversed(messages[:start]) if isinstance(each, UserMessage))
    return (UserMessage((*prompt.content, *note)) if note else prompt, *messages[start:])


class _Sizes:
    """The tokens of a conversation from each place on where it may begin."""

    def __init__(self, messages: tuple[Message, ...], message_size: SizeFunction) -> None:
        self._messages: Final = messages
        self._message_sizes: Final = [message_size(message) for message in messages]
        self._from: Final = [*accumulate(reversed(self._message_sizes), initial=0)][::-1]
        self._starts: Final = _starts(messages)
        places = (index if isinstance(message, UserMessage) else 0 for index, message in enumerate(messages))
        self._prompt_at: Final = [*accumulate(places, max)]

    def _size(self, start: int) -> tuple[int, int]:
        """How many tokens and messages are sent from here."""
        tokens, count = self._from[start], len(self._messages) - start
        prompt = self._prompt_at[start]
        return (tokens, count) if prompt == start else (tokens + self._message_sizes[prompt], count + 1)

    def fitting_start(self, tokens: int | None, count: int | None, before: int = 0) -> int:
        """Where to begin: `before` while that fits, else where there is room again."""

        def fits(start: int, share: float) -> bool:
            size, length = self._size(start)
            return (tokens is None or size <= tokens * share) and (count is None or length <= max(1, count * share))

        if fits(before, 1):
            return before
        later = [start for start in self._starts if start > before]
        exchanges = [start for start in later if isinstance(self._messages[start], UserMessage)]
        last = exchanges[-1] if exchanges else before
        inside = [start for start in later if start > last]
        for start in exchanges:
            if fits(start, _ROOM):
                return start
        if exchanges and fits(last, 1):
            return last
        return next((start for start in inside if fits(start, _ROOM)), (inside or exchanges or [before])[-1])

    def newest_start(self, keep: int, before: int) -> int | None:
        """Where the newest messages begin that are at most `keep` tokens together; else the last possible place."""
        later = [start for start in self._starts if start > before]
        return next((start for start in later if self._size(start)[0] <= keep), later[-1] if later else None)


# --- Sizes -----------------------------------------------------------------------------------------------------------


def total_size(messages: Iterable[Message], message_size: SizeFunction) -> int:
    """About how many tokens some messages are."""
    return sum(map(message_size, messages))


def by_rule_of_thumb(message: Message) -> int:
    """About how many tokens a message is, for any model."""
    total = _OVERHEAD + media_size(message)
    for part in _parts(message):
        match part:
            case Text(text) | Reasoning(text) | CutNote(text):
                total += _size(text) // _BYTES + 1
            case ToolCall():
                total += (_size(part.name) + len(msgspec.json.encode(part.arguments))) // _BYTES + _OVERHEAD
            case ProviderPart():
                total += len(msgspec.json.encode(part.data)) // _BYTES
            case Document(kind, bytes(data)) if kind.startswith("text/"):
                total += len(data) // _BYTES + 1
            case _:
                pass
    return total


def media_size(message: Message) -> int:
    """About how many tokens the pictures and files of a message are, other than text."""
    total = 0
    for part in _parts(message):
        match part:
            case Image():
                total += _PICTURE
            case Document(kind, data) if data is None or not kind.startswith("text/"):
                total += _PICTURE if data is None else max(_PICTURE, len(data) // _BYTES)
            case _:
                pass
    return total


def _parts(message: Message) -> Iterator[object]:
    match message:
        case ToolMessage(results):
            for result in results:
                yield from result.content
        case UserMessage(content) | AssistantMessage(content):
            yield from content


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


# --- Summaries -------------------------------------------------------------------------------------------------------


def is_summarised(messages: tuple[Message, ...]) -> bool:
    """Whether some messages begin with a summary of earlier ones."""
    first = messages[0] if messages else None
    parts = first.content if isinstance(first, UserMessage) else ()
    return any(isinstance(part, Text) and part.text.startswith(HEADING) for part in parts)


def _valid(summary: Summary | None, messages: tuple[Message, ...]) -> Summary | None:
    """The summary, if the conversation still begins with what it covers."""
    if summary is None or not 0 < summary.covers < len(messages) or summary.covers not in _starts(messages):
        return None
    return summary if summary.mark == _mark(messages, summary.covers) else None


def _mark(messages: tuple[Message, ...], covers: int) -> str:
    last = msgspec.json.encode(messages[covers - 1])
    return hashlib.blake2b(last, digest_size=8).hexdigest()


def _positive(name: str, value: int | None) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and (not whole or value < 1):
        raise ConfigurationError(f"{name}={value!r} makes no sense.", todo="Use a whole number from 1 up.")
    return value
