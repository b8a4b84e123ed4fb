"""The answer of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from ... import events
from ..wire.failures import Failures
from ..wire.json_values import as_dict
from ..wire.sse import EventStreamDecoder, unreadable_event


class _TokenDetails(Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _TokenDetails | None = None
    output_tokens_details: _TokenDetails | None = None


class _IncompleteDetails(Struct, gc=False):
    reason: str | None = None


class _Response(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: _IncompleteDetails | None = None


class _Item(Struct, gc=False):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    encrypted_content: str | None = None


class _Event(Struct, gc=False):
    type: str
    output_index: int | None = None
    delta: str | None = None
    item: _Item | None = None
    response: _Response | None = None
    arguments: str | None = None
    code: str | None = None
    message: str | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Event).decode
_TEXT_EVENTS: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING_EVENTS: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


class _Call:
    __slots__ = ("ended", "id", "written")

    def __init__(self, call_id: str) -> None:
        self.id: Final = call_id
        self.written = False
        self.ended = False


class ResponsesDecoder(EventStreamDecoder):
    """Decodes the events of one answer. What comes twice, or for something that is not open, changes nothing."""

    def __init__(self, failures: Failures) -> None:
        super().__init__(failures)
        self._calls: Final[dict[int, _Call]] = {}
        self._thought: Final[set[str]] = set()
        self._refused = False

    def take(self, name: bytes, data: bytes, into: list[events.Delta]) -> None:
        """One event."""
        del name  # the type is in the data as well
        if data == b"[DONE]":
            return None
        try:
            event = _decode(data)
        except msgspec.ValidationError:
            return self._take_unusual(data)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise unreadable_event("OpenAI", data, error) from None
        if self.ended:
            return None
        if event.type in _TEXT_EVENTS:
            self._refused = self._refused or event.type == "response.refusal.delta"
            if event.delta:
                into.append(events.TextDelta(event.delta))
        elif event.type in _REASONING_EVENTS:
            if event.delta:
                into.append(events.ReasoningDelta(event.delta))
        else:
            self._take_other(event, into)
        return None

    def _take_unusual(self, data: bytes) -> None:
        """An event whose fields have other types than those that matter here: one that this decoder does not know."""
        try:
            kind: Any = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise unreadable_event("OpenAI", data, error) from None
        if not isinstance(as_dict(kind).get("type"), str):
            raise unreadable_event("OpenAI", data, ValueError("no type"))

    def _take_other(self, event: _Event, into: list[events.Delta]) -> None:
        match event.type:
            case "response.created" | "response.in_progress":
                response = event.response or _Response()
                self._start(response.id, response.model, into)
            case "response.output_item.added" if event.item is not None and event.item.type == "function_call":
                self._begin(event.output_index, event.item, into)
            case "response.function_call_arguments.delta":
                call = self._calls.get(-1 if event.output_index is None else event.output_index)
                if call is not None and not call.ended and event.delta:
                    call.written = True
                    into.append(events.ToolCallArguments(call.id, event.delta))
            case "response.output_item.done" if event.item is not None:
                self._item_done(event.output_index, event.item, into)
            case "response.completed" | "response.incomplete":
                self._end(event.response or _Response(), into)
            case "response.failed" | "error":
                found = event.response.error if event.response is not None else event.error
                raise self._failures.of_error_object(found or {"code": event.code, "message": event.message})
            case _:
                pass

    def _begin(self, index: int | None, item: _Item, into: list[events.Delta]) -> None:
        if index is None or index in self._calls:
            return
        call = self._calls[index] = _Call(item.call_id or item.id or f"call_{index}")
        into.append(events.ToolCallStart(call.id, item.name or ""))

    def _item_done(self, index: int | None, item: _Item, into: list[events.Delta]) -> None:
        if item.type == "function_call" and index is not None:
            self._begin(index, item, into)  # some servers announce a call only when it is whole
            call = self._calls[index]
            if call.ended:
                return
            if not call.written and item.arguments:
                into.append(events.ToolCallArguments(call.id, item.arguments))
            call.ended = True
            into.append(events.ToolCallEnd(call.id))
        elif item.type == "reasoning" and item.encrypted_content and item.id not in self._thought:
            self._thought.add(item.id or "")
            tag = {"provider": "openai-responses", "id": item.id}
            into.append(events.ReasoningDelta("", item.encrypted_content, tag))

    def _end(self, response: _Response, into: list[events.Delta]) -> None:
        usage = response.usage
        if usage is not None:
            into.append(_usage_delta(usage))
        why = response.incomplete_details.reason if response.incomplete_details is not None else None
        self.ended = self.done = True
        into.append(events.AnswerEnd(self._reason(why)))

    def _reason(self, why: str | None) -> events.AnswerStop:
        if any(not call.ended for call in self._calls.values()) or why == "max_output_tokens":
            return "max_tokens"
        if why == "content_filter" or self._refused:
            return "refusal"
        return "tool_use" if self._calls else "end_turn"


def usage_of(reply: Any) -> events.UsageDelta | None:
    """The usage in a response that was asked for by its id; None when it has none, or none yet."""
    try:
        usage = msgspec.convert(reply, _Response).usage
    except msgspec.ValidationError:
        return None
    return None if usage is None or usage.output_tokens is None else _usage_delta(usage)


def _usage_delta(usage: _Usage) -> events.UsageDelta:
    read = None if usage.input_tokens_details is None else usage.input_tokens_details.cached_tokens
    thought = None if usage.output_tokens_details is None else usage.output_tokens_details.reasoning_tokens
    return events.UsageDelta(usage.input_tokens, usage.output_tokens, read, None, thought, final=True)
