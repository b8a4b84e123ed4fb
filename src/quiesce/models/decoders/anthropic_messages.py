"""The answer of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from ... import events
from ...conversation.answer import parse_arguments
from ..wire.failures import Failures
from ..wire.json_values import as_dict, as_list
from ..wire.sse import UNREADABLE, EventStreamDecoder, readable


class _OutputDetails(Struct, gc=False):
    thinking_tokens: int | None = None


class _Counts(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Usage(_Counts):
    """`iterations` are the samplings of one request: those of server tools, and of a compaction."""

    output_tokens_details: _OutputDetails | None = None
    iterations: list[_Counts] | None = None


class _Message(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    content: Any = None
    stop_reason: str | None = None


class _StopDetails(Struct, gc=False):
    category: Any = None
    explanation: Any = None


class _Block(Struct, gc=False):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    data: str | None = None
    input: Any = None


class _Piece(Struct, gc=False):
    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Event(Struct, gc=False):
    type: str
    index: int | None = None
    delta: _Piece | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Event).decode
_TYPED: Final = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
SERVER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_TAG: Final = {"provider": "anthropic"}
_REASONS: Final[Mapping[str, events.AnswerStop]] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "pause",
}


class MessagesDecoder(EventStreamDecoder):
    """Decodes the events of one answer.

    Events that come twice, or for a block that is not open, change nothing: a block is begun once and ended once.
    """

    def __init__(self, failures: Failures) -> None:
        super().__init__(failures)
        self._open: Final[dict[int, _Block]] = {}
        self._seen: Final[set[int]] = set()
        self._parts: Final = _Parts()
        self._usage = _Usage()
        self._server_tools = False

    def take(self, name: bytes, data: bytes, into: list[events.Delta]) -> None:
        """One event."""
        try:
            event = _decode(data)
        except UNREADABLE as error:
            return self.take(name, readable("Anthropic", data, error), into)
        if event.type == "content_block_delta":
            if event.index in self._parts.open or (event.delta is not None and event.delta.type == "citations_delta"):
                self._parts.add(event.index, as_dict(as_dict(msgspec.json.decode(data)).get("delta")))
            else:
                self._take_piece(event.index, event.delta, into)
            return None
        match event.type:
            case "message_start":
                self._take_start(event.message or _Message(), into)
            case "content_block_start" if event.content_block is not None and event.content_block.type not in _TYPED:
                self._begin_part(event.index, data, into)
            case "content_block_start":
                self._begin(event.index, event.content_block, into)
            case "content_block_stop":
                self._end_block(-1 if event.index is None else event.index, into)
            case "message_delta":
                self._end(event, into)
            case "message_stop":
                self.done = self.ended
            case "error":
                raise self._failures.of_error_object(event.error)
            case _:  # ping, and what is yet to come
                pass
        return None

    def take_whole(self, whole: dict[str, Any], into: list[events.Delta]) -> None:
        """A whole message."""
        self.take(b"", msgspec.json.encode({"type": "message_start", "message": whole}), into)

    def _take_start(self, message: _Message, into: list[events.Delta]) -> None:
        into.append(events.AnswerStart(message.id, message.model))
        if message.usage is not None:
            self._usage = message.usage
            into.append(self._report(final=message.stop_reason is not None))
        for index, block in enumerate(as_list(message.content)):  # some servers send the whole answer here
            self._take_whole(index, as_dict(block), into)
        if message.stop_reason is not None:
            self._end(_Event("message_delta", delta=_Piece(stop_reason=message.stop_reason)), into)

    def _begin_part(self, index: int | None, data: bytes, into: list[events.Delta]) -> None:
        """A block that has no type here. A tool that the provider runs makes it read more."""
        if self.ended or index is None or index in self._seen:
            return
        self._seen.add(index)
        block = as_dict(as_dict(msgspec.json.decode(data)).get("content_block"))
        self._parts.begin(index, block)
        if block.get("type") in SERVER_CALLS:
            self._server_tools = True
            into.append(self._report(final=False))

    def _take_whole(self, index: int, block: dict[str, Any], into: list[events.Delta]) -> None:
        if block.get("type") not in _TYPED:
            self._parts.begin(index, block)
            self._seen.add(index)
        else:
            self._begin(index, msgspec.convert(block, _Block, strict=False), into)
            if block.get("signature"):
                into.append(events.ReasoningDelta("", str(block["signature"]), _TAG))
        self._end_block(index, into)

    def _end_block(self, index: int, into: list[events.Delta]) -> None:
        block = self._open.pop(index, None)
        if block is not None and block.type == "tool_use":
            into.append(events.ToolCallEnd(block.id or ""))
        into.extend(self._parts.end(index))

    def _begin(self, index: int | None, block: _Block | None, into: list[events.Delta]) -> None:
        if index is None or block is None or index in self._seen or self.ended:
            return
        self._seen.add(index)
        self._open[index] = block
        match block.type:
            case "tool_use":
                block.id = block.id or f"toolu_{index}"
                into.append(events.ToolCallStart(block.id, block.name or ""))
                if block.input:
                    into.append(events.ToolCallArguments(block.id, msgspec.json.encode(block.input).decode()))
            case "redacted_thinking":
                into.append(events.ReasoningDelta("", block.data, {**_TAG, "redacted": True}))
            case "thinking" if block.thinking:
                into.append(events.ReasoningDelta(block.thinking))
            case "text" if block.text:
                into.append(events.TextDelta(block.text))
            case _:
                pass

    def _take_piece(self, index: int | None, piece: _Piece | None, into: list[events.Delta]) -> None:
        if piece is None or self.ended:
            return
        if piece.type == "text_delta":
            if piece.text:
                into.append(events.TextDelta(piece.text))
        elif piece.type == "input_json_delta":
            block = self._open.get(-1 if index is None else index)
            if block is not None and block.type == "tool_use" and piece.partial_json:
                into.append(events.ToolCallArguments(block.id or "", piece.partial_json))
        elif piece.type == "thinking_delta":
            if piece.thinking:
                into.append(events.ReasoningDelta(piece.thinking))
        elif piece.type == "signature_delta" and piece.signature:
            into.append(events.ReasoningDelta("", piece.signature, _TAG))

    def _end(self, event: _Event, into: list[events.Delta]) -> None:
        reason = None if event.delta is None else event.delta.stop_reason
        if event.usage is not None:
            _update(self._usage, event.usage)
            into.append(self._report(final=reason is not None or self.ended))
        if reason is None or self.ended:
            return
        self.ended = True
        why = _REASONS.get(reason, "end_turn")
        if why != "refusal" and any(block.type == "tool_use" for block in self._open.values()):
            why = "max_tokens"
        details = None if event.delta is None else event.delta.stop_details
        said = "" if details is None else str(details.explanation or details.category or "")
        into.append(events.AnswerEnd(why, said if why == "refusal" else ""))

    def _report(self, *, final: bool) -> events.UsageDelta:
        usage = _summed(self._usage)
        read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        whole = None if usage.input_tokens is None else usage.input_tokens + (read or 0) + (written or 0)
        details = self._usage.output_tokens_details
        thought = None if details is None else details.thinking_tokens
        several = self._server_tools or len(self._usage.iterations or ()) > 1
        return events.UsageDelta(whole, usage.output_tokens, read, written, thought, final, several)


class _Parts:
    """The blocks of an answer that have no type here, such as those of server tools; and the citations of its text."""

    def __init__(self) -> None:
        self.open: Final[dict[int | None, dict[str, Any]]] = {}
        self._written: Final[dict[int | None, list[str]]] = {}

    def begin(self, index: int | None, block: dict[str, Any]) -> None:
        """A block begins, mostly whole."""
        self.open[index] = block

    def add(self, index: int | None, piece: dict[str, Any]) -> None:
        """More of a block: of the input of a call, or of a field."""
        if piece.get("type") == "citations_delta":
            block = self.open.setdefault(index, {"type": "citations", "citations": []})
            block.setdefault("citations", []).append(piece.get("citation"))
            return
        block = self.open[index]
        if piece.get("type") == "input_json_delta":
            self._written.setdefault(index, []).append(str(piece.get("partial_json") or ""))
            return
        for name, value in piece.items():
            if name != "type":
                before = block.get(name)
                block[name] = before + value if isinstance(before, str) and isinstance(value, str) else value

    def end(self, index: int | None) -> list[events.ProviderPartDelta]:
        """The block, which is whole now."""
        block = self.open.pop(index, None)
        if block is None:
            return []
        written = "".join(self._written.pop(index, ()))
        if written:
            block["input"] = parse_arguments(written) or {}
        return [events.ProviderPartDelta("anthropic", str(block.get("type")), block)]


def _summed(usage: _Usage) -> _Counts:
    """The counts of a request with several samplings. That of a compaction is in none of the other fields."""
    if not usage.iterations:
        return usage
    total = _Counts()
    for field in _Counts.__struct_fields__:
        known = [count for each in usage.iterations if (count := getattr(each, field)) is not None]
        at_top = getattr(usage, field)
        setattr(total, field, max(sum(known), at_top or 0) if known else at_top)
    return total


def _update(usage: _Usage, newer: _Usage) -> None:
    for field in _Usage.__struct_fields__:
        value = getattr(newer, field)
        if value is not None:
            setattr(usage, field, value)
