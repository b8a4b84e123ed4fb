"""The answer that a model is writing right now, built up delta by delta."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Container
from types import NoneType
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from .._exact import NotJSON, encodes, exact, exact_text
from ..errors import ModelProtocolError
from ..events import (
    AnswerEnd,
    AnswerStart,
    AnswerStop,
    Delta,
    ProviderPartDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    UsageDelta,
)
from ..messages import AssistantContent, AssistantMessage, CutNote, ProviderPart, Reasoning, Text, ToolCall
from ..usage.estimate.answer_count import Block
from ..usage.estimate.pieces import GROUP, Pieces

_log: Final = logging.getLogger("quiesce")
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 64
# So many pieces before a position in an answer decide how the first token after it is cut.
_CONTEXT: Final = 8
# An answer with more calls is no answer. Sealing them is one step, which holds the event loop for 0.1 ms each.
_MOST_CALLS: Final = 400
# No model writes so many characters in one answer: it is one without end, or no answer.
_LONGEST_ANSWER: Final = 5_000_000
# No request has more tokens.
_MOST_TOKENS: Final = 1_000_000_000
_EXACT: Final = frozenset({str, int, bool, float, NoneType})


class AnswerBuilder:
    """Takes a model's deltas in order and can say at any moment what they amount to.

    `taken` are the call ids that the conversation has used already. Once `close()` was called, nothing more is taken:
    what it contains then is what the conversation keeps. `continued_content` is the beginning of this answer, from an
    earlier request, which the model now continues.
    """

    __slots__ = (
        "__weakref__",
        "_blocks",
        "_calls",
        "_continued_content",
        "_current",
        "_given",
        "_length",
        "_reported_at",
        "_taken",
        "complete",
        "detail",
        "ended",
        "is_open",
        "model",
        "request_id",
        "usage",
    )

    def __init__(self, taken: Container[str] = (), continued_content: tuple[AssistantContent, ...] = ()) -> None:
        self._continued_content: Final = continued_content
        self._taken: Final = taken
        self._given: Final[dict[str, None]] = {}
        self._blocks: Final[list[_TextBlock | _Call | _ProviderBlock]] = []
        self._current: _TextBlock | None = None
        self._calls: Final[dict[str, _Call]] = {}
        self.is_open = True
        self.complete = False
        """Whether the model said that its answer is complete."""
        self.ended: AnswerStop | None = None
        self.detail = ""
        """What the provider says about the end of its answer."""
        self.request_id: str | None = None
        self.model: str | None = None
        """The model that answers, by the provider's name for it."""
        self.usage: UsageDelta | None = None
        self._reported_at: list[int] = []
        self._length = 0

    def add(self, delta: Delta) -> Delta:
        """Take one delta. Returns it, with its call id made unique and legal where the model's was not.

        Raises `ModelProtocolError` for a delta that makes no sense here.
        """
        if delta.__class__ is TextDelta:  # first, because nearly every delta is one
            text = delta.text  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
            current = self._current
            if current is None or current.kind is not Text:
                current = self._begin(Text)
            self._length += len(text)  # pyright: ignore[reportUnknownArgumentType]
            if self._length > _LONGEST_ANSWER:
                raise _too_long()
            parts = current.parts
            parts.append(text)  # pyright: ignore[reportUnknownArgumentType]
            if not len(parts) % GROUP:
                parts.join_group()
            return delta if text.__class__ is str else TextDelta(exact_text(text))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        take = self._TAKE.get(delta.__class__)
        if take is None:
            raise ModelProtocolError(f"The model yielded a {type(delta).__name__}, which is not a delta.")
        if self.ended is not None and not isinstance(delta, UsageDelta):
            raise ModelProtocolError("The model went on after the end of its answer.")
        return take(self, _plain(delta))

    def close(self) -> None:
        """Take nothing more."""
        self.is_open = False

    @property
    def has_content(self) -> bool:
        """Whether anything at all was written that a reader could have seen."""
        return any(block.has_content for block in self._blocks)

    def text(self) -> str:
        """The text of the answer so far."""
        said = (block.text for block in self._continued_content if isinstance(block, Text))
        parts = (block.join() for block in self._blocks if isinstance(block, _TextBlock) and block.kind is Text)
        return "".join((*said, *parts))

    def blocks(self) -> tuple[Block, ...]:
        """What the model wrote, block by block, for counting."""
        return tuple([block.block() for block in tuple(self._blocks)])

    def extent(self) -> tuple[object, ...]:
        """How far the answer has come: another value whenever a delta has brought something new."""
        blocks = tuple(self._blocks)
        ended = sum(1 for call in blocks if isinstance(call, _Call) and call.ended)
        return len(blocks), sum(len(block.parts) for block in blocks), ended, self.usage, self.complete

    def blocks_since_report(self) -> tuple[Block, ...] | None:
        """The same, without what was written before the provider last reported output; None when nothing was."""
        marks = self._reported_at
        if not any(marks):
            return None
        blocks: list[Block] = []
        for index, block in enumerate(self.blocks()):
            mark = marks[index] if index < len(marks) else 0
            context = "".join(block.parts[max(0, mark - _CONTEXT) : mark])
            rest = Pieces((block.parts.text(mark),))
            blocks.append(Block(block.kind, rest, "" if mark else block.name, context))
        return tuple(blocks)

    def content(self) -> tuple[AssistantContent, ...]:
        """The answer as conversation content. A block that was torn says so; a call that was torn is left out."""
        last = self._blocks[-1] if self._blocks else None
        blocks = [block.build(cut=block is last and not self.complete) for block in self._blocks]
        written = tuple([block for block in blocks if block is not None])
        if self.ended == "refusal" and (self.detail or not written):
            written = (*written, CutNote(_refused(self.detail)))
        return _go_on(self._continued_content, written, cut=not self.complete) if self._continued_content else written

    def message(self) -> AssistantMessage | None:
        """The answer as a message; None when it has no content. One that the provider has paused is not whole."""
        content = self.content()
        return AssistantMessage(content, cut=not self.complete or self.ended == "pause") if content else None

    def torn_calls(self) -> tuple[tuple[str, str], ...]:
        """Id and name of each call whose arguments never came to an end."""
        return tuple([(call.id, call.name) for call in self._blocks if isinstance(call, _Call) and not call.ended])

    # --- One method for each kind of delta ---------------------------------------------------------------------

    def _begin(self, kind: type[Text | Reasoning]) -> _TextBlock:
        if self.ended is not None:
            raise ModelProtocolError("The model went on after the end of its answer.")
        block = _TextBlock(kind)
        self._blocks.append(block)
        self._current = block
        return block

    def _add_piece(self, parts: Pieces, text: str) -> None:
        self._length += len(text)
        if self._length > _LONGEST_ANSWER:
            raise _too_long()
        parts.append(text)
        if not len(parts) % GROUP:
            parts.join_group()

    def _answer_start(self, delta: AnswerStart) -> Delta:
        self.request_id = delta.request_id or self.request_id
        self.model = delta.model or self.model
        return delta

    def _reasoning(self, delta: ReasoningDelta) -> Delta:
        current = self._current
        if current is None or current.kind is not Reasoning or current.signature is not None:
            current = self._begin(Reasoning)
        self._add_piece(current.parts, delta.text)
        current.signature = delta.signature
        if delta.provider_data is not None:
            current.provider_data = {**(current.provider_data or {}), **delta.provider_data}
        return delta

    def _call_start(self, delta: ToolCallStart) -> Delta:
        self._current = None
        if len(self._calls) >= _MOST_CALLS:
            raise ModelProtocolError(f"The model asked for more than {_MOST_CALLS:,} tool calls in one answer.")
        call = _Call(self._unused(delta.id), _legal_name(delta.name), delta.provider_data)
        self._calls[delta.id] = call
        self._blocks.append(call)
        return ToolCallStart(call.id, call.name, delta.provider_data)

    def _call_arguments(self, delta: ToolCallArguments) -> Delta:
        call = self._open_call(delta.id)
        self._add_piece(call.parts, delta.fragment)
        return delta if delta.id == call.id else ToolCallArguments(call.id, delta.fragment)

    def _call_end(self, delta: ToolCallEnd) -> Delta:
        call = self._open_call(delta.id)
        call.ended = True
        return delta if delta.id == call.id else ToolCallEnd(call.id)

    def _provider_part(self, delta: ProviderPartDelta) -> Delta:
        self._current = None
        self._blocks.append(_ProviderBlock(ProviderPart(delta.provider, delta.kind, delta.data)))
        return delta

    def _usage(self, delta: UsageDelta) -> Delta:
        delta = possible(delta)
        self.usage = delta if self.usage is None else newer(self.usage, delta)
        if delta.output is not None:
            self._reported_at = [len(block.parts) for block in self._blocks]
        return delta

    def _answer_end(self, delta: AnswerEnd) -> Delta:
        for call in self._calls.values():
            if not call.ended and delta.reason not in ("max_tokens", "refusal"):
                raise ModelProtocolError(f"The model ended its answer in the middle of a call to {call.name!r}.")
        self.ended, self.detail = delta.reason, delta.detail
        self.complete = True
        self._current = None
        return delta

    def _open_call(self, call_id: str) -> _Call:
        call = self._calls.get(call_id)
        if call is None or call.ended:
            raise ModelProtocolError(f"The model wrote arguments for a call {call_id!r} that is not open.")
        return call

    def _unused(self, wanted: str) -> str:
        """A call id that providers accept and that this conversation has not used."""
        base = _ILLEGAL.sub("_", wanted) or "call"
        name, count = base, 1
        while name in self._taken or name in self._given:
            count += 1
            name = f"{base}_{count}"
        self._given[name] = None
        return name

    _TAKE: ClassVar[dict[type, Callable[[AnswerBuilder, Any], Delta]]] = {
        AnswerStart: _answer_start,
        ReasoningDelta: _reasoning,
        ToolCallStart: _call_start,
        ToolCallArguments: _call_arguments,
        ToolCallEnd: _call_end,
        ProviderPartDelta: _provider_part,
        UsageDelta: _usage,
        AnswerEnd: _answer_end,
    }


class _TextBlock:
    """A block of text or reasoning."""

    __slots__ = ("kind", "parts", "provider_data", "signature")

    def __init__(self, kind: type[Text | Reasoning]) -> None:
        self.kind: Final = kind
        self.parts: Final = Pieces()
        self.signature: str | None = None
        self.provider_data: dict[str, Any] | None = None

    @property
    def has_content(self) -> bool:
        return any(self.parts) or self.signature is not None

    def block(self) -> Block:
        return Block("text" if self.kind is Text else "reasoning", self.parts)

    def join(self) -> str:
        return well_formed(self.parts.text())

    def build(self, *, cut: bool) -> AssistantContent | None:
        text = self.join()
        if self.kind is Reasoning:
            empty = not text and self.signature is None and self.provider_data is None
            # Reasoning that is signed is whole, whatever came after it.
            torn = cut and self.signature is None
            return None if empty else Reasoning(text, self.signature, torn, self.provider_data)
        return Text(text, cut) if text.strip() else None


class _Call:
    """A tool call that is being written."""

    __slots__ = ("ended", "id", "name", "parts", "provider_data")

    def __init__(self, call_id: str, name: str, provider_data: dict[str, Any] | None) -> None:
        self.id: Final = call_id
        self.name: Final = name
        self.provider_data: Final = provider_data
        self.parts: Final = Pieces()
        self.ended = False

    has_content: Final = True

    def block(self) -> Block:
        return Block("arguments", self.parts, self.name)

    def build(self, *, cut: bool) -> ToolCall | None:
        del cut
        if not self.ended:
            return None
        written = self.parts.text()
        arguments = parse_arguments(written)
        if arguments is None:
            return ToolCall(self.id, self.name, {}, well_formed(written), self.provider_data)
        return ToolCall(self.id, self.name, arguments, None, self.provider_data)


class _ProviderBlock:
    """A part that came whole."""

    __slots__ = ("part", "parts")

    def __init__(self, part: ProviderPart) -> None:
        self.part: Final = part
        self.parts: Final = Pieces()

    has_content: Final = True

    def block(self) -> Block:
        return Block("text", self.parts)

    def build(self, *, cut: bool) -> ProviderPart:
        del cut
        return self.part


def parse_arguments(written: str) -> dict[str, Any] | None:
    """A call's arguments, or None when what the model wrote is not a JSON object. Nothing at all means no arguments."""
    if not written.strip():
        return {}
    try:
        return msgspec.json.decode(written.encode(), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def well_formed(text: str) -> str:
    """Text that can be sent: surrogate halves that a stream split are joined, and lone ones replaced."""
    if type(text) is str and text.isascii():  # the usual case, told fast
        return text
    if encodes(text):
        return exact_text(text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _plain(delta: Delta) -> Delta:
    """A delta of exact types. Raises `ModelProtocolError` when a model of the user's own yields what has none."""
    for name in delta.__struct_fields__:
        if getattr(delta, name).__class__ not in _EXACT:
            return _made_plain(delta)
    return delta


def _made_plain(delta: Delta) -> Delta:
    fields = {name: getattr(delta, name) for name in delta.__struct_fields__}
    try:
        plain: dict[str, Any] = {
            name: exact_text(each) if isinstance(each, str) else exact(each, Any) for name, each in fields.items()
        }
    except NotJSON as error:
        raise ModelProtocolError(f"The model yielded a {type(delta).__name__} that cannot be kept: {error}.") from None
    return replace(delta, **plain)


def _too_long() -> ModelProtocolError:
    return ModelProtocolError(f"The model wrote more than {_LONGEST_ANSWER:,} characters in one answer.")


def possible(delta: UsageDelta) -> UsageDelta:
    """A report without figures that cannot be true: these are unknown, and are estimated."""
    counts = {name: getattr(delta, name) for name in delta.__struct_fields__ if name not in ("final", "server_tools")}
    known = {name: count for name, count in counts.items() if count is not None}
    wrong = {name: count for name, count in known.items() if type(count) is not int or not 0 <= count <= _MOST_TOKENS}
    if not wrong:
        return delta
    _log.warning("The model reported token counts that cannot be true, which are rounded or ignored: %s.", wrong)
    return replace(delta, **{name: _whole(count) for name, count in wrong.items()})


def _whole(count: object) -> int | None:
    """A count of a model of the user's own, which may be a float, as a whole number; None when it cannot be true."""
    return round(count) if isinstance(count, float) and 0 <= count <= _MOST_TOKENS else None


def _refused(detail: str) -> str:
    said = f": {well_formed(detail).strip().rstrip('.')}" if detail.strip() else ""
    return f"(The provider refused to go on with this answer{said}.)"


def _legal_name(name: str) -> str:
    return _ILLEGAL.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def _go_on(
    continued_content: tuple[AssistantContent, ...], written: tuple[AssistantContent, ...], *, cut: bool
) -> tuple[AssistantContent, ...]:
    """An answer in two parts as one, its text joined without a seam."""
    *before, last = continued_content
    if not isinstance(last, Text):
        return (*continued_content, *written)
    match written:
        case (Text(text, cut=still_cut), *rest):
            # The model did not see the blank end of what it had said, and may have begun with a blank again.
            said = last.text.rstrip() if text[:1].isspace() else last.text
            return (*before, Text(said + text, still_cut, last.provider_data), *rest)
        case _:
            return (*before, Text(last.text, cut and not written, last.provider_data), *written)


def newer(old: UsageDelta, new: UsageDelta) -> UsageDelta:
    """Cumulative figures: a later one replaces an earlier one, and what it leaves out stands."""

    def pick(before: int | None, after: int | None) -> int | None:
        return before if after is None else after

    return UsageDelta(
        pick(old.input, new.input),
        pick(old.output, new.output),
        pick(old.cache_read, new.cache_read),
        pick(old.cache_write, new.cache_write),
        pick(old.reasoning, new.reasoning),
        new.final,
        old.server_tools or new.server_tools,
    )
