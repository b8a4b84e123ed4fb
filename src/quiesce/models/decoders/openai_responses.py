"""The answer of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from ... import events
from ..wire.counts import with_whole_counts
from ..wire.failures import Failures
from ..wire.json_values import as_dict, as_list
from ..wire.sse import UNREADABLE, EventStreamDecoder, unreadable_event


class _TokenDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
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
    thought: str | None = None


_decode: Final = msgspec.json.Decoder(_Event).decode
_TEXT_EVENTS: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_SERVER_TOOLS: Final = frozenset(
    [
        *("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "image_generation_call"),
        *("search_results", "fetch_url_results", "sandbox_results"),
    ]
)
_TYPED: Final = frozenset({"function_call", "reasoning", "message"})
_REASONING_EVENTS: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


class _Call:
    __slots__ = ("ended", "id", "written")

    def __init__(self, call_id: str) -> None:
        self.id: Final = call_id
        self.written = False
        self.ended = False


class ResponsesDecoder(EventStreamDecoder):
    """Decodes the events of one answer. What comes twice, or for something that is not open, changes nothing.

    `provider` is for what is sent back only to it.
    """

    def __init__(self, failures: Failures, *, provider: str = "openai") -> None:
        super().__init__(failures)
        self._provider: Final = provider
        self._calls: Final[dict[int, _Call]] = {}
        self._done: Final[set[object]] = set()
        self._refused = False
        self._server_tools = False

    def take(self, name: bytes, data: bytes, into: list[events.Delta]) -> None:
        """One event."""
        if data == b"[DONE]":
            return None
        try:
            event = _decode(data)
        except UNREADABLE as error:
            return self._take_unusual(name, data, error, into)
        if self.ended:
            return None
        if event.type in _TEXT_EVENTS:
            self._refused = self._refused or event.type == "response.refusal.delta"
            if event.delta:
                into.append(events.TextDelta(event.delta))
        elif event.type in _REASONING_EVENTS:
            if event.delta:
                into.append(events.ReasoningDelta(event.delta))
        elif event.type == "response.output_item.done" and event.item is not None and event.item.type not in _TYPED:
            self._take_part(as_dict(msgspec.json.decode(data)), into)
        else:
            self._take_other(event, data, into)
        return None

    def take_whole(self, whole: dict[str, Any], into: list[events.Delta]) -> None:
        """A whole response: its items, and its end."""
        for index, item in enumerate(map(as_dict, as_list(whole.get("output")))):
            for part in map(as_dict, as_list(item.get("content"))):
                text = part.get("text") or part.get("refusal")
                kind = "output_text" if part.get("type") == "output_text" else part.get("type", "")
                self._replay({"type": f"response.{kind}.delta", "delta": text}, into)
            self._replay({"type": "response.output_item.done", "output_index": index, "item": item}, into)
        self._replay({"type": f"response.{whole.get('status')}", "response": whole}, into)

    def _replay(self, event: dict[str, Any], into: list[events.Delta]) -> None:
        self.take(b"", msgspec.json.encode(event), into)

    def _take_unusual(self, name: bytes, data: bytes, error: Exception, into: list[events.Delta]) -> None:
        """An event whose fields have other types than those that are read here: kept, if it is a whole item."""
        repaired = with_whole_counts(data, self._failures.label)
        if repaired is not None:
            return self.take(name, repaired, into)
        try:
            found = as_dict(msgspec.json.decode(data))
        except UNREADABLE:
            raise unreadable_event(self._failures.label, data, error) from None
        if not isinstance(found.get("type"), str):
            raise unreadable_event(self._failures.label, data, ValueError("no type"))
        if not self.ended and found["type"] == "response.output_item.done":
            self._take_part(found, into)
        return None

    def _take_part(self, event: dict[str, Any], into: list[events.Delta]) -> None:
        """A whole item that has no type here: a search, a shell call, an image."""
        item, index = as_dict(event.get("item")), event.get("output_index")
        if isinstance(item.get("type"), str) and index not in self._done:
            self._done.add(index)
            self._server_tools = self._server_tools or item["type"] in _SERVER_TOOLS
            into.append(events.ProviderPartDelta(self._provider, item["type"], item))

    def _take_other(self, event: _Event, data: bytes, into: list[events.Delta]) -> None:
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
            case "response.output_item.done" if event.item is not None and event.item.type == "message":
                self._message_done(event.output_index, as_dict(msgspec.json.decode(data)), into)
            case "response.output_item.done" if event.item is not None:
                self._item_done(event.output_index, event.item, into)
            case "response.completed" | "response.incomplete":
                self._end(event.response or _Response(), into)
            case "response.failed" | "error":
                found = event.response.error if event.response is not None else event.error
                raise self._failures.of_error_object(found or {"code": event.code, "message": event.message})
            case _ if event.thought:  # Perplexity says so between its searches
                into.append(events.ReasoningDelta(event.thought))
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
        elif item.type == "reasoning" and item.encrypted_content and index not in self._done:
            self._done.add(index)
            into.append(events.ReasoningDelta("", item.encrypted_content, {"provider": self._provider, "id": item.id}))

    def _message_done(self, index: int | None, event: dict[str, Any], into: list[events.Delta]) -> None:
        """What a message has besides its words: its phase, citations, and the logprobs that were asked for."""
        item = as_dict(event.get("item"))
        found = {"phase": item["phase"]} if item.get("phase") else {}
        for part in map(as_dict, as_list(item.get("content"))):
            found |= {name: part[name] for name in ("annotations", "logprobs") if part.get(name)}
        if found and index not in self._done:
            self._done.add(index)
            into.append(events.ProviderPartDelta(self._provider, "message", found))

    def _end(self, response: _Response, into: list[events.Delta]) -> None:
        usage = response.usage
        if usage is not None:
            into.append(structs.replace(_usage_delta(usage), server_tools=self._server_tools))
        why = response.incomplete_details.reason if response.incomplete_details is not None else None
        self.ended = self.done = True
        reason = self._reason(why)
        into.append(events.AnswerEnd(reason, why or "" if reason == "refusal" else ""))

    def _reason(self, why: str | None) -> events.AnswerStop:
        if why == "content_filter" or self._refused:
            return "refusal"
        if why is not None or any(not call.ended for call in self._calls.values()):
            return "max_tokens"
        return "tool_use" if self._calls else "end_turn"


def usage_of(reply: Any) -> events.UsageDelta | None:
    """The usage in a response that was asked for by its id; None when it has none, or none yet."""
    try:
        usage = msgspec.convert(reply, _Response).usage
    except msgspec.ValidationError:
        return None
    return None if usage is None or usage.output_tokens is None else _usage_delta(usage)


def _usage_delta(usage: _Usage) -> events.UsageDelta:
    sent = usage.input_tokens_details or _TokenDetails()
    read = sent.cached_tokens if sent.cached_tokens is not None else sent.cache_read_input_tokens
    thought = None if usage.output_tokens_details is None else usage.output_tokens_details.reasoning_tokens
    written = sent.cache_creation_input_tokens
    return events.UsageDelta(usage.input_tokens, usage.output_tokens, read, written, thought, final=True)
