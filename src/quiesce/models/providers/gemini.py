"""Google Gemini."""

from __future__ import annotations

import inspect
import os
import re
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, ClassVar, Final, Unpack

import httpx2
import msgspec

from ...messages import AssistantContent, Document, Image, ProviderPart, Reasoning, Text, ToolCall, ToolResult
from ..base import ModelRequest
from ..decoders.gemini import GeminiDecoder
from ..server_tools import ServerTool
from ..wire import schemas
from ..wire.common_settings import cached_anyway, gemini_effort, one_of
from ..wire.convert import (
    SEE_ATTACHMENT,
    base64_of,
    media_type_of,
    merged,
    one_answer,
    renamed,
    settings_of,
    tool_choice,
)
from ..wire.encoding import MessageEncoder, encode
from ..wire.failures import no_key
from ..wire.http import PlainModel, WireOptions
from ..wire.json_values import as_dict
from ..wire.message_format import MessageBlock, MessageFormat
from ..wire.server_tools import as_body, for_gemini
from .compatible import vocabulary_of

_ADDRESS: Final = "https://generativelanguage.googleapis.com/v1beta"
# Settings that other providers have at the top, under their names here.
_GENERATION: Final = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "stop_sequences": "stopSequences",
    "top_logprobs": "logprobs",
}
_TIERS: Final = {"default": "standard", "standard": "standard", "flex": "flex", "priority": "priority"}
# What Google documents for calls that another model made, in place of the signature that its own calls carry.
_NO_SIGNATURE: Final = "skip_thought_signature_validator"


_NUMBERED: Final = re.compile(r"call_[\d_]+")
# From Gemini 3 on, the first call of each message is refused without a signature, and results may hold attachments.
_GEMINI_3: Final = re.compile(r"gemini-[3-9]")
_IN_RESULTS: Final = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})


class Gemini(PlainModel):
    """A Gemini model, from the Gemini API.

    access_token  a function that returns an OAuth token, sent instead of a key; it may be async

    The rest as for `WireModel`; the key is taken from GOOGLE_API_KEY or GEMINI_API_KEY. Raises `AuthenticationFailed`.
    """

    provider = "gemini"
    label: ClassVar[str] = "Gemini"
    stop_policy = "drain"
    tokenizer: str | None = "gemma"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        access_token: Callable[[], str | Awaitable[str]] | None = None,
        base_url: str | None = None,
        **options: Unpack[WireOptions],
    ) -> None:
        key = api_key or os.environ.get("GOOGLE_API_KEY") or os.environ.get("GEMINI_API_KEY")
        if not key and access_token is None:
            raise no_key("Gemini", "GEMINI_API_KEY")
        given = os.environ.get("GOOGLE_GEMINI_BASE_URL", "").rstrip("/")
        base_url = base_url or (f"{given}/v1beta" if given else None)
        if base_url is not None:  # a server with any model
            self.tokenizer = vocabulary_of(model)
        super().__init__(model, api_key=key, base_url=base_url or _ADDRESS, **options)
        self._api_key: Final = key
        self._access_token: Final = access_token
        self._messages: Final = MessageEncoder(_GeminiFormat(is_gemini_3=_GEMINI_3.search(model) is not None).items)

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        return await self._call("streamGenerateContent?alt=sse", self.body(request, encoded=True), stream=True)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """What a request costs to send, by the provider's own counter, which costs nothing."""
        answer = await self._call("countTokens", self._counted(request), stream=False)
        found = as_dict(msgspec.json.decode(answer.content)).get("totalTokens") if answer.is_success else None
        return found if isinstance(found, int) else None

    def _counted(self, request: ModelRequest) -> dict[str, Any]:
        """What the counter is sent."""
        return {"generateContentRequest": {"model": f"models/{self.model}", **self.body(request, encoded=True)}}

    async def _call(self, method: str, body: dict[str, Any], *, stream: bool) -> httpx2.Response:
        url = f"{self.base_url}/models/{urllib.parse.quote(self.model)}:{method}"
        headers = {**await self._credentials(), **self.extra_headers}
        return await self._post(url, encode(body), headers, stream=stream)

    async def _credentials(self) -> dict[str, str]:
        if self._access_token is None:
            return {"x-goog-api-key": self._api_key or ""}
        token = self._access_token()
        return {"authorization": f"Bearer {await token if inspect.isawaitable(token) else token}"}

    def _decoder(self, request: ModelRequest) -> GeminiDecoder:
        return GeminiDecoder(self._failures, first_call=len(self._messages.called(request.messages)) + 1)

    def server_tools(self, tools: Iterable[ServerTool]) -> dict[str, Any]:
        """What a request carries for these. Raises `ConfigurationError` for those that there are none of."""
        return as_body(for_gemini(tools))

    def body(self, request: ModelRequest, *, encoded: bool = False) -> dict[str, Any]:
        """The request as the API wants it."""
        settings, limit = settings_of(request)
        generation = renamed(settings, _GENERATION)
        if "logprobs" in generation:
            generation["responseLogprobs"] = True
        if limit is not None:
            generation["maxOutputTokens"] = limit
        if request.output_schema is not None:
            generation |= {"responseMimeType": "application/json", "responseJsonSchema": _schema(request.output_schema)}
        body: dict[str, Any] = {"contents": self._messages.items(request.messages, encoded=encoded)}
        if request.instructions:
            body["systemInstruction"] = {"parts": [{"text": request.instructions}]}
        if request.tools:
            declared = [
                {"name": tool.name, "description": tool.description, "parametersJsonSchema": _schema(tool.schema)}
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declared}]
        choice = tool_choice(request, "Gemini")
        if choice is not None:
            mode = {"auto": "AUTO", "none": "NONE"}.get(choice, "ANY")
            named = {} if choice in ("auto", "none", "required") else {"allowedFunctionNames": [choice]}
            body["toolConfig"] = {"functionCallingConfig": {"mode": mode, **named}}
        if generation:
            body["generationConfig"] = generation
        tier = one_of(settings, "service_tier", "Gemini", _TIERS)
        asked = gemini_effort(settings, self.model) | ({"serviceTier": tier} if tier else {})
        cached_anyway(settings, "Gemini")
        whole = merged(body, self.server_tools(request.server_tools), asked, settings, self.extra_body)
        one_answer(as_dict(whole.get("generationConfig")).get("candidateCount"), "Gemini")
        return whole


# --- The conversation ----------------------------------------------------------------------------------------------


class _GeminiFormat(MessageFormat):
    provider = "gemini"
    assistant = "model"
    blocks = "parts"

    def __init__(self, *, is_gemini_3: bool) -> None:
        self._is_gemini_3: Final = is_gemini_3

    def assistant_blocks(self, content: Iterable[AssistantContent]) -> list[MessageBlock]:
        blocks = super().assistant_blocks(content)
        first_call = next((block for block in blocks if "functionCall" in block), None)
        if first_call is not None and self._is_gemini_3:
            first_call.setdefault("thoughtSignature", _NO_SIGNATURE)
        return blocks

    def text(self, text: str) -> MessageBlock:
        return {"text": text}

    def image(self, part: Image) -> MessageBlock:
        return _file(part)

    def document(self, part: Document) -> MessageBlock:
        return _file(part)

    def call(self, call: ToolCall) -> MessageBlock:
        signature = _signature(call)
        called: MessageBlock = {"functionCall": {"name": call.name, "args": call.arguments, **_id(call.id)}}
        return called | {"thoughtSignature": signature} if signature else called

    def reasoning(self, part: Reasoning) -> MessageBlock:
        thought = {"thought": True} if part.text else {}
        return {"text": part.text, **thought, "thoughtSignature": part.signature}

    def add_provider_part(self, part: ProviderPart, blocks: list[MessageBlock]) -> None:
        """Add a part of the answer. Notes on it, such as its sources, are left out: a request has no field for them."""
        if not part.kind.endswith(("Metadata", "Result")) or part.kind == "codeExecutionResult":
            blocks.append(dict(part.data))

    def result(self, result: ToolResult) -> Iterator[MessageBlock]:
        text = result.text or SEE_ATTACHMENT
        answer = {"error" if result.is_error else "output": text}
        attached = [part for part in result.content if not isinstance(part, Text)]
        inside = [part for part in attached if self._is_gemini_3 and _fits_in_result(part)]
        parts = {"parts": [self.part(part) for part in inside]} if inside else {}
        yield {"functionResponse": {"name": result.name, "response": answer, **_id(result.call_id), **parts}}
        yield from (self.part(part) for part in attached if part not in inside)


def _fits_in_result(part: Image | Document) -> bool:
    return part.data is not None and media_type_of(part) in _IN_RESULTS


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    return schemas.for_output(schema, schemas.GEMINI) or schema


def _file(part: Image | Document) -> MessageBlock:
    if part.data is None:
        address = part.url or f"{_ADDRESS}/{part.file_id}"
        return {"fileData": {"mimeType": media_type_of(part), "fileUri": address}}
    return {"inlineData": {"mimeType": media_type_of(part), "data": base64_of(part.data)}}


def _id(call_id: str) -> dict[str, str]:
    """The id of a call, when Gemini gave it one. The others are numbered here."""
    return {} if _NUMBERED.fullmatch(call_id) else {"id": call_id}


def _signature(call: ToolCall) -> str | None:
    data = call.provider_data or {}
    return data.get("signature") if data.get("provider") == "gemini" else None
