"""Anthropic Messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import httpx2
import msgspec
from msgspec import Struct

from ..errors import AuthenticationFailed
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
    AssistantContent,
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
from .convert import base64_of, closed_schema, is_text, merged, not_supported, own, settings_of, takes_prefill
from .failures import Failures, read_error
from .http import PerLoop, WireModel
from .sdk import settle_platform, vendor_sdk
from .sse import EventStreamDecoder, garbage

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

# The API wants a limit on every answer. This is one that all current models accept.
DEFAULT_MAX_TOKENS: Final = 8192
# What the counter takes of a request.
_COUNTED: Final = frozenset({"messages", "system", "tools", "tool_choice", "thinking", "output_config"})


class Anthropic(WireModel):
    """A Claude model.

    max_tokens  the limit on an answer, when the request names none
    cache       mark the stable beginning of the conversation for caching: True, False, or how long ("5m", "1h")

    The rest as for `WireModel`; the key is taken from ANTHROPIC_API_KEY. Thinking and the like go into `settings` or
    `extra_body`, in the provider's own words. Raises `MissingExtra` and `AuthenticationFailed`.
    """

    provider = "anthropic"
    label: ClassVar[str] = "Anthropic"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        cache: bool | Literal["5m", "1h"] = True,
        timeout: float | httpx2.Timeout | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        price: Price | None = None,
        stop_policy: StopPolicyName = "hang_up",
        tokenizer: str | None = "claude",
        http_client: Callable[[], httpx2.AsyncClient] | None = None,
    ) -> None:
        self._api_key: Final = api_key or os.environ.get("ANTHROPIC_API_KEY")
        if not self._api_key:
            raise AuthenticationFailed(
                "There is no key for Anthropic.",
                kept="Nothing was sent.",
                todo="Set ANTHROPIC_API_KEY or pass api_key=.",
            )
        super().__init__(
            model,
            api_key=self._api_key,
            base_url=base_url or os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com",
            timeout=timeout,
            extra_headers=extra_headers,
            extra_body=extra_body,
            price=price,
            stop_policy=stop_policy,
            tokenizer=tokenizer,
            http_client=http_client,
        )
        self._max_tokens: Final = max_tokens
        self._cache: Final[dict[str, Any] | None] = (
            None if not cache else {"type": "ephemeral"} | ({} if cache is True else {"ttl": cache})
        )
        self._sdk: Final = vendor_sdk("anthropic", "Anthropic")
        self._clients: Final = PerLoop(self._new_client, _close_client)

    def _new_client(self) -> AsyncAnthropic:
        client = self._sdk.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self.base_url,
            timeout=self.timeout,
            max_retries=0,  # Quiesce tries again itself, so that a stop need not wait for it
            default_headers=self.extra_headers or None,
            http_client=self.new_http_client(),
        )
        settle_platform(client)
        return client

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        body = self.body(request)
        client = await self._clients.get()
        answer = await client.messages.with_streaming_response.create(
            model=self.model,
            messages=body.pop("messages"),
            max_tokens=body.pop("max_tokens"),
            stream=True,
            extra_body=body,
            timeout=self.timeout,
        ).__aenter__()
        return answer.http_response

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """What a request costs to send, by the provider's own counter. It costs nothing, but its rate is limited."""
        body = {name: value for name, value in self.body(request).items() if name in _COUNTED}
        client = await self._clients.get()
        counted = await client.messages.count_tokens(model=self.model, messages=body.pop("messages"), extra_body=body)
        return counted.input_tokens

    @property
    def supports_prefill(self) -> bool:
        """Whether a request may end in the beginning of the answer: up to Claude 4.5, and without thinking."""
        return "thinking" not in self.extra_body and takes_prefill(self.model)

    def _decoder(self, request: ModelRequest) -> MessagesDecoder:
        del request
        return MessagesDecoder(self._failures)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """The request as the API wants it."""
        settings, limit = settings_of(request)
        body: dict[str, Any] = {
            "max_tokens": limit or self._max_tokens,
            "messages": [_message(message) for message in request.messages],
        }
        if request.instructions:
            body["system"] = [{"type": "text", "text": request.instructions}]
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                for tool in request.tools
            ]
        if request.output_schema is not None:
            schema = closed_schema(request.output_schema)
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        if self._cache is not None:
            self._mark(body)
        return merged(body, settings, self.extra_body)

    def _mark(self, body: dict[str, Any]) -> None:
        """Mark what the next request will begin with too: the tools, the instructions, the conversation so far."""
        last_message = body["messages"][-1]["content"]
        for blocks in (body.get("tools"), body.get("system"), last_message):
            if blocks and blocks[-1].get("type") not in ("thinking", "redacted_thinking"):
                blocks[-1]["cache_control"] = self._cache


async def _close_client(client: AsyncAnthropic) -> None:
    await client.close()


# --- The conversation ----------------------------------------------------------------------------------------------


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(content):
            return {"role": "user", "content": [_part(part) for part in content]}
        case AssistantMessage(content):
            said = list(_assistant(content))
            return {"role": "assistant", "content": said or [{"type": "text", "text": "(No answer.)"}]}
        case ToolMessage(results):
            return {"role": "user", "content": [_result(result) for result in results]}


def _part(part: UserContent) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": "image", "source": _source(part)}
        case Document():
            named = {} if part.name is None else {"title": part.name}
            if part.data is not None and is_text(part.media_type):
                source = {"type": "text", "media_type": "text/plain", "data": part.data.decode("utf-8", "replace")}
                return {"type": "document", "source": source, **named}
            if part.media_type != "application/pdf":
                raise not_supported("Anthropic", f"documents of type {part.media_type}")
            return {"type": "document", "source": _source(part), **named}


def _source(part: Image | Document) -> dict[str, Any]:
    if part.url is not None:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.media_type, "data": base64_of(part.data or b"")}


def _assistant(content: tuple[AssistantContent, ...]) -> Iterator[dict[str, Any]]:
    for part in content:
        match part:
            case Text(text) | CutNote(text):
                yield {"type": "text", "text": text}
            case ToolCall():
                yield {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
            case Reasoning():
                if own("anthropic", part):  # thinking that was cut has no signature, and is refused
                    yield _thinking(part)


def _thinking(part: Reasoning) -> dict[str, Any]:
    if part.provider_data is not None and part.provider_data.get("redacted"):
        return {"type": "redacted_thinking", "data": part.signature}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _result(result: ToolResult) -> dict[str, Any]:
    answer = {"type": "tool_result", "tool_use_id": result.call_id, "content": [_part(part) for part in result.content]}
    return answer | {"is_error": True} if result.is_error else answer


# --- The answer ----------------------------------------------------------------------------------------------------


class _OutputDetails(Struct, gc=False):
    thinking_tokens: int | None = None


class _Usage(Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


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


class _Event(Struct, gc=False):
    type: str
    index: int | None = None
    delta: _Piece | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Event).decode
_TAG: Final = {"provider": "anthropic"}
_REASONS: Final[Mapping[str, AnswerStop]] = {
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
        super().__init__()
        self._failures: Final = failures
        self._open: Final[dict[int, _Block]] = {}
        self._seen: Final[set[int]] = set()
        self._usage = _Usage()

    def take(self, name: bytes, data: bytes, into: list[Delta]) -> None:
        """One event."""
        del name  # the type is in the data as well
        try:
            event = _decode(data)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise garbage("Anthropic", data, error) from None
        if event.type == "content_block_delta":
            self._take_piece(event.index, event.delta, into)
            return
        match event.type:
            case "message_start":
                self._start(event.message or _Message(), into)
            case "content_block_start":
                self._begin(event.index, event.content_block, into)
            case "content_block_stop":
                block = self._open.pop(-1 if event.index is None else event.index, None)
                if block is not None and block.type == "tool_use":
                    into.append(ToolCallEnd(block.id or ""))
            case "message_delta":
                self._end(event, into)
            case "message_stop":
                self.done = self.ended
            case "error":
                kind, message, wait = read_error(event.error)
                raise self._failures.reported(kind, message, retry_after=wait)
            case _:  # ping, and what is yet to come
                pass

    def _start(self, message: _Message, into: list[Delta]) -> None:
        into.append(AnswerStart(message.id, message.model))
        if message.usage is not None:
            self._usage = message.usage
            into.append(self._report(final=False))

    def _begin(self, index: int | None, block: _Block | None, into: list[Delta]) -> None:
        if index is None or block is None or index in self._seen or self.ended:
            return
        self._seen.add(index)
        self._open[index] = block
        match block.type:
            case "tool_use":
                block.id = block.id or f"toolu_{index}"
                into.append(ToolCallStart(block.id, block.name or ""))
                if block.input:
                    into.append(ToolCallArguments(block.id, msgspec.json.encode(block.input).decode()))
            case "redacted_thinking":
                into.append(ReasoningDelta("", block.data, {**_TAG, "redacted": True}))
            case "thinking" if block.thinking:
                into.append(ReasoningDelta(block.thinking))
            case "text" if block.text:
                into.append(TextDelta(block.text))
            case _:
                pass

    def _take_piece(self, index: int | None, piece: _Piece | None, into: list[Delta]) -> None:
        if piece is None or self.ended:
            return
        if piece.type == "text_delta":
            if piece.text:
                into.append(TextDelta(piece.text))
        elif piece.type == "input_json_delta":
            block = self._open.get(-1 if index is None else index)
            if block is not None and block.type == "tool_use" and piece.partial_json:
                into.append(ToolCallArguments(block.id or "", piece.partial_json))
        elif piece.type == "thinking_delta":
            if piece.thinking:
                into.append(ReasoningDelta(piece.thinking))
        elif piece.type == "signature_delta" and piece.signature:
            into.append(ReasoningDelta("", piece.signature, _TAG))

    def _end(self, event: _Event, into: list[Delta]) -> None:
        reason = None if event.delta is None else event.delta.stop_reason
        if event.usage is not None:
            _update(self._usage, event.usage)
            into.append(self._report(final=reason is not None or self.ended))
        if reason is None or self.ended:
            return
        self.ended = True
        torn = any(block.type == "tool_use" for block in self._open.values())
        into.append(AnswerEnd("max_tokens" if torn else _REASONS.get(reason, "end_turn")))

    def _report(self, *, final: bool) -> UsageDelta:
        usage = self._usage
        read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        whole = None if usage.input_tokens is None else usage.input_tokens + (read or 0) + (written or 0)
        thought = None if usage.output_tokens_details is None else usage.output_tokens_details.thinking_tokens
        return UsageDelta(whole, usage.output_tokens, read, written, thought, final)


def _update(usage: _Usage, newer: _Usage) -> None:
    for field in _Usage.__struct_fields__:
        value = getattr(newer, field)
        if value is not None:
            setattr(usage, field, value)
