"""OpenAI Responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import httpx2
import msgspec
from msgspec import Struct

from ..events import (
    AnswerEnd,
    AnswerStart,
    AnswerStop,
    Delta,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    UsageDelta,
)
from ..messages import (
    AssistantMessage,
    CutNote,
    Document,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserContent,
    UserMessage,
)
from ..usage.prices import Price
from .base import ModelRequest, StopPolicyName
from .compatible import SERVERS, vocabulary_of
from .convert import (
    arguments_of,
    closed_schema,
    data_url,
    file_name,
    is_strict,
    merged,
    own,
    settings_of,
    text_of_document,
)
from .failures import Failures, read_error
from .http import PerLoop, WireModel
from .loose import as_dict
from .openai_chat import address_of, key_for
from .sdk import settle_platform, vendor_sdk
from .sse import EventStreamDecoder, garbage

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIResponses(WireModel):
    """A model behind OpenAI's Responses API.

    background  let the provider work in the background: it keeps the answer for a while, goes on when a connection
                breaks, and can be told to cancel, which a stop then does

    Otherwise nothing is stored at the provider: the conversation is sent each time, with the reasoning in its encrypted
    form. The rest as for `WireModel`; the key is taken from OPENAI_API_KEY. Raises `MissingExtra` and
    `AuthenticationFailed`.
    """

    provider = "openai-responses"
    label: ClassVar[str] = "OpenAI"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        background: bool = False,
        timeout: float | httpx2.Timeout | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        price: Price | None = None,
        stop_policy: StopPolicyName | None = None,
        tokenizer: str | None = None,
        http_client: Callable[[], httpx2.AsyncClient] | None = None,
    ) -> None:
        server = SERVERS["openai"]
        self._api_key: Final = api_key or key_for(server, own_address=base_url is not None)
        super().__init__(
            model,
            api_key=self._api_key,
            base_url=base_url or address_of(server),
            timeout=timeout,
            extra_headers=extra_headers,
            extra_body=extra_body,
            price=price,
            stop_policy=stop_policy or ("cancel_at_provider" if background else "hang_up"),
            tokenizer=tokenizer or vocabulary_of(model, server),
            http_client=http_client,
        )
        self._background: Final = background
        self._sdk: Final = vendor_sdk("openai", "OpenAI Responses")
        self._clients: Final = PerLoop(self._new_client, _close_client)

    def _new_client(self) -> AsyncOpenAI:
        client = self._sdk.AsyncOpenAI(
            api_key=self._api_key or "none",
            base_url=self.base_url,
            timeout=self.timeout,
            max_retries=0,
            default_headers=self.extra_headers or None,
            http_client=self.new_http_client(),
        )
        settle_platform(client)
        return client

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        body = self.body(request)
        client = await self._clients.get()
        answer = await client.responses.with_streaming_response.create(
            model=self.model, input=body.pop("input"), stream=True, extra_body=body
        ).__aenter__()
        return answer.http_response

    async def cancel_request(self, request_id: str) -> UsageDelta | None:
        """Cancel a response that is made in the background; its usage, where the provider says it."""
        client = await self._clients.get()
        return _usage_of(await client.post(f"/responses/{request_id}/cancel", cast_to=object))

    async def lookup_usage(self, request_id: str) -> UsageDelta | None:
        """What a response that is kept at the provider has used; None when that is not known yet."""
        client = await self._clients.get()
        return _usage_of(await client.get(f"/responses/{request_id}", cast_to=object))

    def _decoder(self, request: ModelRequest) -> ResponsesDecoder:
        del request
        return ResponsesDecoder(self._failures)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """The request as the API wants it."""
        body: dict[str, Any] = {
            "input": [item for message in request.messages for item in _items(message)],
            "store": self._background,
            "include": ["reasoning.encrypted_content"],
        }
        if self._background:
            body["background"] = True
        if request.instructions:
            body["instructions"] = request.instructions
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema,
                    "strict": False,
                }
                for tool in request.tools
            ]
        if request.output_schema is not None:
            closed = closed_schema(request.output_schema)
            strict = is_strict(closed)
            schema = closed if strict else request.output_schema
            body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": strict}}
        settings, limit = settings_of(request)
        if limit is not None:
            body["max_output_tokens"] = limit
        return merged(body, settings, self.extra_body)


async def _close_client(client: AsyncOpenAI) -> None:
    await client.close()


# --- The conversation ----------------------------------------------------------------------------------------------


def _items(message: Message) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage(content):
            yield {"type": "message", "role": "user", "content": [_part(part) for part in content]}
        case AssistantMessage():
            yield from _assistant(message)
        case ToolMessage(results):
            yield from (_result(result) for result in results)


def _part(part: UserContent) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image():
            return {"type": "input_image", "image_url": data_url(part)}
        case Document():
            words = text_of_document(part)
            if words is not None:
                return {"type": "input_text", "text": words}
            if part.url is not None:
                return {"type": "input_file", "file_url": part.url}
            return {"type": "input_file", "filename": file_name(part), "file_data": data_url(part)}


def _assistant(message: AssistantMessage) -> Iterator[dict[str, Any]]:
    for place, part in enumerate(message.content):
        match part:
            case Text(text) | CutNote(text):
                yield {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
            case ToolCall():
                yield {
                    "type": "function_call",
                    "call_id": part.id,
                    "name": part.name,
                    "arguments": arguments_of(part),
                }
            case Reasoning():
                # Reasoning is taken back only together with what it led to.
                led_to = next((each for each in message.content[place + 1 :] if not isinstance(each, Reasoning)), None)
                if own("openai-responses", part) and isinstance(led_to, Text | ToolCall):
                    yield _reasoning(part)


def _reasoning(part: Reasoning) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    item = {"type": "reasoning", "summary": summary, "encrypted_content": part.signature}
    given = (part.provider_data or {}).get("id")
    return item | {"id": given} if given else item


def _result(result: ToolResult) -> dict[str, Any]:
    if all(isinstance(part, Text) for part in result.content):
        return {"type": "function_call_output", "call_id": result.call_id, "output": result.text}
    return {
        "type": "function_call_output",
        "call_id": result.call_id,
        "output": [_part(part) for part in result.content],
    }


# --- The answer ----------------------------------------------------------------------------------------------------


class _InputDetails(Struct, gc=False):
    cached_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Why(Struct, gc=False):
    reason: str | None = None


class _Response(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: _Why | None = None


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
_SAYS: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THINKS: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


class _Call:
    __slots__ = ("ended", "id", "written")

    def __init__(self, call_id: str) -> None:
        self.id: Final = call_id
        self.written = False
        self.ended = False


class ResponsesDecoder(EventStreamDecoder):
    """Decodes the events of one answer. What comes twice, or for something that is not open, changes nothing."""

    def __init__(self, failures: Failures) -> None:
        super().__init__()
        self._failures: Final = failures
        self._calls: Final[dict[int, _Call]] = {}
        self._thought: Final[set[str]] = set()
        self._started = self._refused = False

    def take(self, name: bytes, data: bytes, into: list[Delta]) -> None:
        """One event."""
        del name  # the type is in the data as well
        if data == b"[DONE]":
            return None
        try:
            event = _decode(data)
        except msgspec.ValidationError:
            return self._take_unusual(data)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise garbage("OpenAI", data, error) from None
        if self.ended:
            return None
        if event.type in _SAYS:
            self._refused = self._refused or event.type == "response.refusal.delta"
            if event.delta:
                into.append(TextDelta(event.delta))
        elif event.type in _THINKS:
            if event.delta:
                into.append(ReasoningDelta(event.delta))
        else:
            self._take_other(event, into)
        return None

    def _take_unusual(self, data: bytes) -> None:
        """An event whose fields have other types than those that matter here: one that this decoder does not know."""
        try:
            kind: Any = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise garbage("OpenAI", data, error) from None
        if not isinstance(as_dict(kind).get("type"), str):
            raise garbage("OpenAI", data, ValueError("no type"))

    def _take_other(self, event: _Event, into: list[Delta]) -> None:
        match event.type:
            case "response.created" | "response.in_progress":
                self._start(event.response or _Response(), into)
            case "response.output_item.added" if event.item is not None and event.item.type == "function_call":
                self._begin(event.output_index, event.item, into)
            case "response.function_call_arguments.delta":
                call = self._calls.get(-1 if event.output_index is None else event.output_index)
                if call is not None and not call.ended and event.delta:
                    call.written = True
                    into.append(ToolCallArguments(call.id, event.delta))
            case "response.output_item.done" if event.item is not None:
                self._item_done(event.output_index, event.item, into)
            case "response.completed" | "response.incomplete":
                self._end(event.response or _Response(), into)
            case "response.failed" | "error":
                found = event.response.error if event.response is not None else event.error
                kind, message, wait = read_error(found or {"code": event.code, "message": event.message})
                raise self._failures.reported(kind, message or "no explanation", retry_after=wait)
            case _:
                pass

    def _start(self, response: _Response, into: list[Delta]) -> None:
        if not self._started:
            self._started = True
            into.append(AnswerStart(response.id, response.model))

    def _begin(self, index: int | None, item: _Item, into: list[Delta]) -> None:
        if index is None or index in self._calls:
            return
        call = self._calls[index] = _Call(item.call_id or item.id or f"call_{index}")
        into.append(ToolCallStart(call.id, item.name or ""))

    def _item_done(self, index: int | None, item: _Item, into: list[Delta]) -> None:
        if item.type == "function_call" and index is not None:
            self._begin(index, item, into)  # some servers announce a call only when it is whole
            call = self._calls[index]
            if call.ended:
                return
            if not call.written and item.arguments:
                into.append(ToolCallArguments(call.id, item.arguments))
            call.ended = True
            into.append(ToolCallEnd(call.id))
        elif item.type == "reasoning" and item.encrypted_content and item.id not in self._thought:
            self._thought.add(item.id or "")
            tag = {"provider": "openai-responses", "id": item.id}
            into.append(ReasoningDelta("", item.encrypted_content, tag))

    def _end(self, response: _Response, into: list[Delta]) -> None:
        usage = response.usage
        if usage is not None:
            into.append(_usage_delta(usage))
        why = response.incomplete_details.reason if response.incomplete_details is not None else None
        self.ended = self.done = True
        into.append(AnswerEnd(self._reason(why)))

    def _reason(self, why: str | None) -> AnswerStop:
        if any(not call.ended for call in self._calls.values()) or why == "max_output_tokens":
            return "max_tokens"
        if why == "content_filter" or self._refused:
            return "refusal"
        return "tool_use" if self._calls else "end_turn"


def _usage_of(reply: Any) -> UsageDelta | None:
    """The usage in a response that was asked for by its id; None when it has none, or none yet."""
    try:
        usage = msgspec.convert(reply, _Response).usage
    except msgspec.ValidationError:
        return None
    return None if usage is None or usage.output_tokens is None else _usage_delta(usage)


def _usage_delta(usage: _Usage) -> UsageDelta:
    read = None if usage.input_tokens_details is None else usage.input_tokens_details.cached_tokens
    thought = None if usage.output_tokens_details is None else usage.output_tokens_details.reasoning_tokens
    return UsageDelta(usage.input_tokens, usage.output_tokens, read, None, thought, final=True)
