"""Compaction: which messages of a long conversation are sent. The conversation itself keeps all of them.

The oldest exchanges are left out as a whole: a user message with everything up to the next one. Inside a long exchange,
an answer with tool calls goes together with its results. A call is never separated from its result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
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
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from .models.base import Model, ModelRequest

# About how many tokens a picture is at most providers; and how many bytes of text are a token.
_PICTURE: Final = 1600
_BYTES: Final = 4
_OVERHEAD: Final = 4

SUMMARISE: Final = (
    "Summarise the conversation up to here, for yourself: you will see only your summary from now on. Keep what was"
    " asked for, what was decided, what was done with which result, and every name, number and open question that may"
    " matter. Answer with the summary alone."
)
Weigh: TypeAlias = Callable[[Message], int]

HEADING: Final = "(What was said before, in short:)"


class Summary(Struct, frozen=True):
    """A summary of the first `covers` messages of a conversation; `mark` is a hash that tells whether they changed."""

    covers: int
    mark: str
    text: str


class CompactionHost(Protocol):
    """The part of a run that compaction uses."""

    def weigh(self, message: Message) -> int:
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

    The newest exchange always stays; when it alone is too long, its oldest answers go, each with its tool results.
    """

    def __init__(self, *, tokens: int | None = None, messages: int | None = None) -> None:
        self._tokens: Final = _positive("tokens", tokens)
        self._messages: Final = _positive("messages", messages)
        if tokens is None and messages is None:
            raise ConfigurationError("Trim() without a size.", todo="Use Trim(tokens=...) or Trim(messages=...).")

    async def fit(self, messages: tuple[Message, ...], host: CompactionHost) -> tuple[Message, ...]:
        """See `Context.fit`."""
        return trimmed(messages, self._tokens, self._messages, host.weigh)


class Summarise:
    """Replaces the oldest exchanges by a summary, once the conversation is longer than about `tokens`.

    What is newer than about `keep` tokens (half of `tokens` by default) stays as it is. The summary is written by
    `model`, the agent's own unless given; that call can be stopped like any other and is on the bill. When it fails,
    the oldest exchanges are left out instead.
    """

    def __init__(
        self, tokens: int, *, keep: int | None = None, model: Model | None = None, instructions: str = SUMMARISE
    ) -> None:
        self._tokens: Final = _positive("tokens", tokens) or 0
        self._keep: Final = _positive("keep", keep) or max(1, self._tokens // 2)
        if self._keep >= self._tokens:
            raise ConfigurationError("Summarise keeps more than it allows.", todo="Make keep smaller than tokens.")
        self._model: Final = model
        self._instructions: Final = instructions

    async def fit(self, messages: tuple[Message, ...], host: CompactionHost) -> tuple[Message, ...]:
        """See `Context.fit`."""
        summary = _valid(host.summary, messages)
        current = _with_summary(summary, messages)
        if weight(current, host.weigh) <= self._tokens:
            return current
        after = 0 if summary is None else summary.covers
        start = _start_of_kept(messages, self._keep, host.weigh, after=after)
        if start is not None:
            try:
                text = await self._summarise(_with_summary(summary, messages[:start]), host)
            except ModelError:
                text = ""
            if text:
                summary = Summary(start, _mark(messages, start), text)
                host.keep_summary(summary)
                current = _with_summary(summary, messages)
        return trimmed(current, self._tokens, None, host.weigh)

    async def _summarise(self, messages: tuple[Message, ...], host: CompactionHost) -> str:
        asked = UserMessage((Text(self._instructions),))
        answer = await host.ask(ModelRequest(messages=(*messages, asked)), self._model)
        return answer.text().strip() if answer.complete else ""


# --- Cutting ---------------------------------------------------------------------------------------------------------


def trimmed(messages: tuple[Message, ...], tokens: int | None, count: int | None, weigh: Weigh) -> tuple[Message, ...]:
    """The newest part of a conversation that fits, valid like the whole."""
    starts = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
    weights = [0 if tokens is None else weigh(message) for message in messages]
    if not starts or ((tokens is None or sum(weights) <= tokens) and (count is None or len(messages) <= count)):
        return messages
    left = sum(weights)
    done = 0
    for start in starts[1:]:
        left -= sum(weights[done:start])
        done = start
        if (tokens is None or left <= tokens) and (count is None or len(messages) - start <= count):
            return messages[start:]
    return _shortened(messages[starts[-1] :], weights[starts[-1] :], tokens, count)


def _shortened(
    exchange: tuple[Message, ...], weights: list[int], tokens: int | None, count: int | None
) -> tuple[Message, ...]:
    """One exchange without its oldest answers and their tool results."""
    left, index = sum(weights), 1
    while (
        ((tokens is not None and left > tokens) or (count is not None and len(exchange) - index + 1 > count))
        and len(exchange) - index > 2
        and isinstance(exchange[index + 1], ToolMessage)
    ):
        left -= sum(weights[index : index + 2])
        index += 2
    return (exchange[0], *exchange[index:])


def _start_of_kept(messages: tuple[Message, ...], keep: int, weigh: Weigh, *, after: int) -> int | None:
    """The index of the first of the newest exchanges that are at most `keep` tokens together, or of the last one."""
    starts = [index for index, message in enumerate(messages) if isinstance(message, UserMessage) and index > after]
    if not starts:
        return None
    best, heavy = starts[-1], 0
    wanted = set(starts)
    for index in range(len(messages) - 1, starts[0] - 1, -1):
        heavy += weigh(messages[index])
        if heavy > keep:
            break
        if index in wanted:
            best = index
    return best


# --- Sizes -----------------------------------------------------------------------------------------------------------


def weight(messages: Iterable[Message], weigh: Weigh) -> int:
    """About how many tokens some messages are."""
    return sum(map(weigh, messages))


def by_rule_of_thumb(message: Message) -> int:
    """About how many tokens a message is, for any model."""
    total = _OVERHEAD + media_weight(message)
    for part in _parts(message):
        match part:
            case Text(text) | Reasoning(text) | CutNote(text):
                total += _size(text) // _BYTES + 1
            case ToolCall():
                total += (_size(part.name) + len(msgspec.json.encode(part.arguments))) // _BYTES + _OVERHEAD
            case Document(kind, bytes(data)) if kind.startswith("text/"):
                total += len(data) // _BYTES + 1
            case _:
                pass
    return total


def media_weight(message: Message) -> int:
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


def _with_summary(summary: Summary | None, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages with a summary instead of those that it covers, at the head of the first user message that stays."""
    if summary is None or summary.covers >= len(messages):
        return messages
    first, *rest = messages[summary.covers :]
    assert isinstance(first, UserMessage)
    return (UserMessage((Text(f"{HEADING}\n{summary.text}"), *first.content)), *rest)


def is_summarised(messages: tuple[Message, ...]) -> bool:
    """Whether some messages begin with a summary of earlier ones."""
    match messages[0] if messages else None:
        case UserMessage((Text(text), *_)):
            return text.startswith(HEADING)
        case _:
            return False


def _valid(summary: Summary | None, messages: tuple[Message, ...]) -> Summary | None:
    """The summary, if the conversation still begins with what it covers."""
    if summary is None or not 0 < summary.covers < len(messages):
        return None
    if not isinstance(messages[summary.covers], UserMessage) or summary.mark != _mark(messages, summary.covers):
        return None
    return summary


def _mark(messages: tuple[Message, ...], covers: int) -> str:
    last = msgspec.json.encode(messages[covers - 1])
    return hashlib.blake2b(last, digest_size=8).hexdigest()


def _positive(name: str, value: int | None) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and (not whole or value < 1):
        raise ConfigurationError(f"{name}={value!r} makes no sense.", todo="Use a whole number from 1 up.")
    return value
