"""Anthropic Messages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, Unpack

import httpx2

from ...messages import (
    AssistantContent,
    AssistantMessage,
    Document,
    Image,
    Message,
    ProviderPart,
    Reasoning,
    ToolCall,
    ToolResult,
)
from ..base import CachePolicy, ModelRequest, switches_thinking_on
from ..decoders.anthropic_messages import SERVER_CALLS, MessagesDecoder
from ..server_tools import ServerTool
from ..wire import convert, schemas
from ..wire.common_settings import claude_effort, one_of
from ..wire.encoding import MessageEncoder, encode
from ..wire.failures import no_key
from ..wire.http import PlainModel, WireOptions, headers_in, headers_of
from ..wire.json_values import as_dict
from ..wire.message_format import MessageBlock, MessageFormat
from ..wire.server_tools import as_body, for_anthropic

# The version of the API that is spoken here. A test compares it with that of the vendor's SDK.
API_VERSION: Final = "2026-10-21"
# The API wants a limit on every answer. This is one that all current models accept.
DEFAULT_MAX_TOKENS: Final = 8192
_TIERS: Final = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
# What the counter takes of a request.
_COUNTED: Final = frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"})


class Anthropic(PlainModel):
    """A Claude model.

    max_tokens  the limit on an answer, when the request names none
    cache       mark the stable beginning of the conversation for caching: True, False, or how long ("5m", "1h")

    The rest as for `WireModel`; the key is taken from ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN. Thinking and the like
    go into `settings` or `extra_body`, in the provider's own words. Raises `AuthenticationFailed`.
    """

    provider = "anthropic"
    label: ClassVar[str] = "Anthropic"
    decoder = MessagesDecoder
    tokenizer = "claude"
    _waits_only_for_provider = True

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        cache: CachePolicy = True,
        **options: Unpack[WireOptions],
    ) -> None:
        key = api_key or os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN")
        if not key:
            raise no_key("Anthropic", "ANTHROPIC_API_KEY")
        address = base_url or os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
        super().__init__(model, api_key=key, base_url=address, **options)
        self._max_tokens: Final = max_tokens
        self._cache: Final = _cache_mark(cache)
        self._messages: Final = MessageEncoder(_FORMAT.items)
        fixed = {"authorization": f"Bearer {key}", "anthropic-version": API_VERSION, "accept": "application/json"}
        self._headers: Final = headers_of(fixed, headers_in("ANTHROPIC_CUSTOM_HEADERS"), self.extra_headers)

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        url = f"{self.base_url}/v1/messages"
        return await self._post(url, encode(self.body(request, encoded=True)), self._headers)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """What a request costs to send, by the provider's own counter. It costs nothing, but its rate is limited."""
        body = {name: value for name, value in self.body(request, encoded=True).items() if name in _COUNTED}
        counted = await self._ask("POST", f"{self.base_url}/v1/messages/count_tokens", self._headers, encode(body))
        found = as_dict(counted).get("input_tokens")
        return found if isinstance(found, int) else None

    @property
    def supports_prefill(self) -> bool:
        """Whether a request may end in the beginning of the answer: up to Claude 4.5, and without thinking."""
        return not switches_thinking_on(self.extra_body) and convert.takes_prefill(self.model)

    def _sent(self, messages: tuple[Message, ...], *, encoded: bool, open_end: bool) -> list[Any]:
        """The messages. An answer that the API has paused is their end, and goes back unchanged."""
        last = messages[-1]
        if not isinstance(last, AssistantMessage) or last.cut:
            return self._messages.items(messages, encoded=encoded, open_end=open_end)
        return [*self._messages.items(messages[:-1], encoded=encoded), _PAUSED.message(last)]

    def server_tools(self, tools: Iterable[ServerTool]) -> dict[str, Any]:
        """What a request carries for these. Raises `ConfigurationError` for those that there are none of."""
        return as_body(for_anthropic(tools))

    def body(self, request: ModelRequest, *, encoded: bool = False) -> dict[str, Any]:
        """The request as the API wants it."""
        settings, limit = convert.settings_of(request)
        wanted_cache: CachePolicy | None = settings.pop("cache", request.cache)
        cache = self._cache if wanted_cache is None else _cache_mark(wanted_cache)
        body: dict[str, Any] = {
            "model": self.model,
            "stream": True,
            "max_tokens": limit or self._max_tokens,
            "messages": self._sent(request.messages, encoded=encoded, open_end=cache is not None),
        }
        instructions, wanted = request.instructions, request.output_schema
        if wanted is not None:
            schema = schemas.for_output(wanted, schemas.ANTHROPIC)
            if schema is None:
                instructions = schemas.in_words(instructions, wanted)
            else:
                body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        if instructions:
            body["system"] = [{"type": "text", "text": instructions}]
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": schemas.for_tool(tool.schema)}
                for tool in request.tools
            ]
        choice = convert.tool_choice(request, "Anthropic")
        if choice is not None:
            kinds = {"auto": "auto", "none": "none", "required": "any"}
            body["tool_choice"] = {"type": kinds[choice]} if choice in kinds else {"type": "tool", "name": choice}
        if cache is not None:
            _mark(body, cache)
        tier = one_of(settings, "service_tier", "Anthropic", _TIERS)
        one_of(settings, "top_logprobs", "Anthropic", ())
        asked = claude_effort(settings, self.model, "Anthropic") | ({"service_tier": tier} if tier else {})
        server_tools = self.server_tools(request.server_tools)
        whole = convert.merged(body, server_tools, asked, settings, self.extra_body)
        budget = as_dict(whole.get("thinking")).get("budget_tokens")
        if isinstance(budget, int) and budget >= whole["max_tokens"]:  # the limit is meant for the answer
            whole["max_tokens"] += budget
        return whole


def _cache_mark(cache: CachePolicy) -> dict[str, Any] | None:
    return None if not cache else {"type": "ephemeral"} | ({} if cache is True else {"ttl": cache})


def _mark(body: dict[str, Any], mark: dict[str, Any]) -> None:
    """Mark what the next request will begin with too: the tools, the instructions, the conversation so far."""
    last_message = body["messages"][-1]["content"]
    for blocks in (body.get("tools"), body.get("system"), last_message):
        if blocks and blocks[-1].get("type") not in ("thinking", "redacted_thinking"):
            blocks[-1]["cache_control"] = mark


# --- The conversation ----------------------------------------------------------------------------------------------


class _AnthropicFormat(MessageFormat):
    provider = "anthropic"

    def text(self, text: str) -> MessageBlock:
        return {"type": "text", "text": text}

    def image(self, part: Image) -> MessageBlock:
        return {"type": "image", "source": _source(part)}

    def document(self, part: Document) -> MessageBlock:
        named = {} if part.name is None else {"title": part.name}
        if part.data is not None and convert.is_text(part.media_type):
            source = {"type": "text", "media_type": "text/plain", "data": part.data.decode("utf-8", "replace")}
            return {"type": "document", "source": source, **named}
        convert.refuse_media(part, "Anthropic")
        if part.media_type != "application/pdf" and part.file_id is None:
            raise convert.not_supported("Anthropic", f"documents of type {part.media_type}")
        return {"type": "document", "source": _source(part), **named}

    def call(self, call: ToolCall) -> MessageBlock:
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}

    def reasoning(self, part: Reasoning) -> MessageBlock:
        if convert.is_redacted(part):
            return {"type": "redacted_thinking", "data": part.signature}
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}

    def __init__(self, *, paused: bool = False) -> None:
        self._paused: Final = paused

    def assistant_blocks(self, content: Iterable[AssistantContent]) -> list[MessageBlock]:
        """The blocks, without a server tool that has no result: it is refused before a prompt.

        Beside calls of the agent's own tools it stays: its result comes in the answer to theirs.
        """
        blocks = super().assistant_blocks(content)
        if self._paused or any(block["type"] == "tool_use" for block in blocks):
            return blocks
        answered = {block.get("tool_use_id") for block in blocks}
        return [block for block in blocks if block["type"] not in SERVER_CALLS or block.get("id") in answered]

    def add_provider_part(self, part: ProviderPart, blocks: list[MessageBlock]) -> None:
        """Citations belong to the text before them."""
        if part.kind != "citations":
            blocks.append(dict(part.data))
        elif blocks and blocks[-1]["type"] == "text":
            blocks[-1]["citations"] = part.data["citations"]

    def result(self, result: ToolResult) -> Iterator[MessageBlock]:
        shown = [self.part(part) for part in result.content]
        answer = {"type": "tool_result", "tool_use_id": result.call_id, "content": shown}
        yield answer | {"is_error": True} if result.is_error else answer


def _source(part: Image | Document) -> dict[str, Any]:
    if part.file_id is not None:
        return {"type": "file", "file_id": part.file_id}
    if part.url is not None:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": convert.media_type_of(part), "data": convert.base64_of(part.data or b"")}


_FORMAT: Final = _AnthropicFormat()
_PAUSED: Final = _AnthropicFormat(paused=True)
