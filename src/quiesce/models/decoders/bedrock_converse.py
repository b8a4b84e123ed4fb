"""The answer of Bedrock ConverseStream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from ... import events
from ..wire.failures import Failures, read_error
from ..wire.sse import decoded, unreadable_event


class _ToolUse(Struct, gc=False, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    input: str | None = None


class _Start(Struct, gc=False, rename="camel"):
    tool_use: _ToolUse | None = None


class _Thought(Struct, gc=False, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _Piece(Struct, gc=False, rename="camel"):
    text: str | None = None
    tool_use: _ToolUse | None = None
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
        self._started = False

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
            self._take(message, into)

    def finish(self) -> list[events.Delta]:
        """Nothing: a message is whole or it is not there."""
        return []

    def _take(self, message: Any, into: list[events.Delta]) -> None:
        headers = message.headers
        kind = headers.get(":exception-type") or headers.get(":error-code")
        if headers.get(":message-type") in ("exception", "error") or kind:
            _, words, _ = read_error(_loose(message.payload))
            raise self._failures.reported(str(kind or ""), str(headers.get(":error-message") or words))
        event = decoded(_decode, "Bedrock", message.payload)
        match headers.get(":event-type"):
            case "contentBlockDelta" if event.delta is not None and not self.ended:
                self._take_piece(event.content_block_index or 0, event.delta, into)
            case "messageStart" if not self._started:
                self._started = True
                into.append(events.AnswerStart())
            case "contentBlockStart" if event.start is not None and event.start.tool_use is not None:
                self._begin(event.content_block_index or 0, event.start.tool_use, into)
            case "contentBlockStop":
                call_id = self._calls.pop(event.content_block_index or 0, None)
                if call_id is not None:
                    into.append(events.ToolCallEnd(call_id))
            case "messageStop" if not self.ended:
                self.ended = True
                reason = "max_tokens" if self._calls else _REASONS.get(event.stop_reason or "", "end_turn")
                into.append(events.AnswerEnd(reason))
            case "metadata" if event.usage is not None:
                self.done = self.ended
                into.append(_usage_delta(event.usage))
            case _:
                pass

    def _begin(self, index: int, use: _ToolUse, into: list[events.Delta]) -> None:
        if index in self._begun or self.ended:
            return
        self._begun.add(index)
        self._calls[index] = use.tool_use_id or f"tooluse_{index}"
        into.append(events.ToolCallStart(self._calls[index], use.name or ""))

    def _take_piece(self, index: int, piece: _Piece, into: list[events.Delta]) -> None:
        if piece.text:
            into.append(events.TextDelta(piece.text))
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
    except (msgspec.MsgspecError, UnicodeError):
        return payload.decode("utf-8", "replace")


def _usage_delta(usage: _Usage) -> events.UsageDelta:
    read, written = usage.cache_read_input_tokens, usage.cache_write_input_tokens
    whole = None if usage.input_tokens is None else usage.input_tokens + (read or 0) + (written or 0)
    return events.UsageDelta(whole, usage.output_tokens, read, written, final=True)
