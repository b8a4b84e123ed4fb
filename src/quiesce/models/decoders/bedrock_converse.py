"""The answer of Bedrock ConverseStream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from ... import events
from ...conversation.answer import parse_arguments
from ..wire.failures import Failures, read_error
from ..wire.sse import UNREADABLE, readable, unreadable_event


class _ToolUse(Struct, gc=False, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    input: str | None = None
    type: str | None = None


class _Start(Struct, gc=False, rename="camel"):
    tool_use: _ToolUse | None = None
    tool_result: dict[str, Any] | None = None
    image: dict[str, Any] | None = None


class _Thought(Struct, gc=False, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _Piece(Struct, gc=False, rename="camel"):
    text: str | None = None
    tool_use: _ToolUse | None = None
    tool_result: list[dict[str, Any]] | None = None
    citation: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    reasoning_content: _Thought | None = None


class _Usage(Struct, gc=False, rename="camel"):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class _Event(Struct, gc=False, rename="camel"):
    content_block_index: int | None = None
    start: _Start | None = None
    delta: _Piece | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


_decode: Final = msgspec.json.Decoder(_Event).decode
_TAG: Final = {"provider": "bedrock"}
_REASONS: Final[Mapping[str, events.AnswerStop]] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
}


class ConverseDecoder:
    """Decodes the binary event stream of one answer: each message has its length and two checksums."""

    def __init__(self, failures: Failures) -> None:
        from botocore.eventstream import EventStreamBuffer

        self.ended = False
        self.done = False
        self.taken: list[events.Delta] = []
        self._failures: Final = failures
        self._buffer: Final[Any] = EventStreamBuffer()
        self._calls: Final[dict[int, str]] = {}
        self._begun: Final[set[int]] = set()
        self._parts: Final[dict[int, dict[str, Any]]] = {}
        self._started = False
        self._server_tools = False

    def feed(self, data: bytes) -> list[events.Delta]:
        """The deltas that these bytes complete."""
        into: list[events.Delta] = []
        self.taken = into
        self._buffer.add_data(data)
        while True:
            try:
                message = next(self._buffer)
            except StopIteration:
                return into
            except Exception as error:  # what the parser raises for garbage has no common root
                raise unreadable_event("Bedrock", data, error) from None
            self._take(message.headers, message.payload, into)

    def finish(self) -> list[events.Delta]:
        """Nothing: a message is whole or it is not there."""
        return []

    def _take(self, headers: dict[str, Any], payload: bytes, into: list[events.Delta]) -> None:
        kind = headers.get(":exception-type") or headers.get(":error-code")
        if headers.get(":message-type") in ("exception", "error") or kind:
            words = read_error(_loose(payload))[1]
            raise self._failures.reported(str(kind or ""), str(headers.get(":error-message") or words))
        try:
            event = _decode(payload)
        except UNREADABLE as error:
            return self._take(headers, readable("Bedrock", payload, error), into)
        match headers.get(":event-type"):
            case "contentBlockDelta" if event.delta is not None and not self.ended:
                self._take_piece(event.content_block_index or 0, event.delta, into)
            case "messageStart" if not self._started:
                self._started = True
                into.append(events.AnswerStart())
            case "contentBlockStart" if event.start is not None:
                self._begin(event.content_block_index or 0, event.start, into)
            case "contentBlockStop":
                self._end_block(event.content_block_index or 0, into)
            case "messageStop" if not self.ended:
                self.ended = True
                why = _REASONS.get(event.stop_reason or "", "end_turn")
                why = "max_tokens" if self._calls and why != "refusal" else why
                into.append(events.AnswerEnd(why, event.stop_reason or "" if why == "refusal" else ""))
            case "metadata" if event.usage is not None:
                self.done = self.ended
                into.append(_usage_delta(event.usage, server_tools=self._server_tools))
            case _:
                pass
        return None

    def _begin(self, index: int, start: _Start, into: list[events.Delta]) -> None:
        use = start.tool_use
        if index in self._begun or self.ended:
            return
        self._begun.add(index)
        if start.tool_result is not None:
            self._parts[index] = {"toolResult": {**start.tool_result, "content": []}}
        elif start.image is not None:
            self._parts[index] = {"image": dict(start.image)}
        elif use is not None and use.type == "server_tool_use":  # run by the provider, not here
            self._server_tools = True
            called = {"toolUseId": use.tool_use_id, "name": use.name, "type": use.type, "input": ""}
            self._parts[index] = {"toolUse": called}
        elif use is not None:
            self._calls[index] = use.tool_use_id or f"tooluse_{index}"
            into.append(events.ToolCallStart(self._calls[index], use.name or ""))

    def _end_block(self, index: int, into: list[events.Delta]) -> None:
        call_id, part = self._calls.pop(index, None), self._parts.pop(index, None)
        if call_id is not None:
            into.append(events.ToolCallEnd(call_id))
        if part is not None:
            if "toolUse" in part:
                part["toolUse"]["input"] = parse_arguments(part["toolUse"]["input"]) or {}
            into.append(events.ProviderPartDelta("bedrock", next(iter(part)), part))

    def _take_piece(self, index: int, piece: _Piece, into: list[events.Delta]) -> None:
        if piece.text:
            into.append(events.TextDelta(piece.text))
        elif piece.citation is not None:
            cited = self._parts.setdefault(index, {"citations": []})
            cited.get("citations", []).append(piece.citation)
        elif index in self._parts:
            part = self._parts[index]
            if "toolUse" in part and piece.tool_use is not None:
                part["toolUse"]["input"] += piece.tool_use.input or ""
            elif "toolResult" in part:
                part["toolResult"]["content"] += piece.tool_result or []
            elif "image" in part:
                part["image"] |= piece.image or {}
        elif piece.tool_use is not None:
            if index in self._calls and piece.tool_use.input:
                into.append(events.ToolCallArguments(self._calls[index], piece.tool_use.input))
        elif piece.reasoning_content is not None:
            thought = piece.reasoning_content
            if thought.text:
                into.append(events.ReasoningDelta(thought.text))
            if thought.signature:
                into.append(events.ReasoningDelta("", thought.signature, _TAG))
            if thought.redacted_content:
                into.append(events.ReasoningDelta("", thought.redacted_content, {**_TAG, "redacted": True}))


def _loose(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except UNREADABLE:
        return payload.decode("utf-8", "replace")


def _usage_delta(usage: _Usage, *, server_tools: bool) -> events.UsageDelta:
    read, written = usage.cache_read_input_tokens, usage.cache_write_input_tokens
    whole = None if usage.input_tokens is None else usage.input_tokens + (read or 0) + (written or 0)
    return events.UsageDelta(whole, usage.output_tokens, read, written, final=True, server_tools=server_tools)
