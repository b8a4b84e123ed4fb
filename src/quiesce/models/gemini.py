"""Google Gemini."""

from __future__ import annotations

import inspect
import os
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

import httpx2
import msgspec
from msgspec import Struct

from ..errors import AuthenticationFailed, RequestRejected
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
from .convert import base64_of, merged, own, renamed, settings_of
from .failures import Failures, read_error
from .http import PerLoop, WireModel
from .loose import as_dict
from .sse import EventStreamDecoder, garbage

_ADDRESS: Final = "https://generativelanguage.googleapis.com/v1beta"
# Settings that other providers have at the top, under their names here.
_GENERATION: Final = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "stop_sequences": "stopSequences",
}
# What Google documents for calls that another model made, in place of the signature that its own calls carry.
_NO_SIGNATURE: Final = "skip_thought_signature_validator"


class Gemini(WireModel):
    """A Gemini model, from the Gemini API or, with `base_url` and `access_token`, from Vertex AI.

    access_token  a function that returns an OAuth token, sent instead of a key; it may be async

    The rest as for `WireModel`; the key is taken from GEMINI_API_KEY or GOOGLE_API_KEY. Raises `AuthenticationFailed`.
    """

    provider = "gemini"
    label: ClassVar[str] = "Gemini"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        access_token: Callable[[], str | Awaitable[str]] | None = None,
        base_url: str | None = None,
        timeout: float | httpx2.Timeout | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        price: Price | None = None,
        stop_policy: StopPolicyName = "drain",
        tokenizer: str | None = "gemma",
        http_client: Callable[[], httpx2.AsyncClient] | None = None,
    ) -> None:
        key = api_key or os.environ.get("GEMINI_API_KEY") or os.environ.get("GOOGLE_API_KEY")
        if not key and access_token is None:
            raise AuthenticationFailed(
                "There is no key for Gemini.", kept="Nothing was sent.", todo="Set GEMINI_API_KEY or pass api_key=."
            )
        super().__init__(
            model,
            api_key=key,
            base_url=base_url or _ADDRESS,
            timeout=timeout,
            extra_headers=extra_headers,
            extra_body=extra_body,
            price=price,
            stop_policy=stop_policy,
            tokenizer=tokenizer,
            http_client=http_client,
        )
        self._api_key: Final = key
        self._access_token: Final = access_token
        self._clients: Final = PerLoop(self.new_http_client, _close_client)

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        return await self._post("streamGenerateContent?alt=sse", self.body(request), stream=True)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """What a request costs to send, by the provider's own counter, which costs nothing."""
        body = {"model": f"models/{self.model}", **self.body(request)}
        answer = await self._post("countTokens", {"generateContentRequest": body})
        found = as_dict(msgspec.json.decode(answer.content)).get("totalTokens") if answer.is_success else None
        return found if isinstance(found, int) else None

    async def _post(self, method: str, body: dict[str, Any], *, stream: bool = False) -> httpx2.Response:
        client = await self._clients.get()
        sent = client.build_request(
            "POST",
            f"{self.base_url}/models/{urllib.parse.quote(self.model)}:{method}",
            content=msgspec.json.encode(body),
            headers={
                "content-type": "application/json",
                "accept-encoding": "identity",
                **await self._credentials(),
                **self.extra_headers,
            },
            timeout=self.timeout,
        )
        return await client.send(sent, stream=stream)

    async def _credentials(self) -> dict[str, str]:
        if self._access_token is None:
            return {"x-goog-api-key": self._api_key or ""}
        token = self._access_token()
        return {"authorization": f"Bearer {await token if inspect.isawaitable(token) else token}"}

    def _decoder(self, request: ModelRequest) -> GeminiDecoder:
        used = sum(len(each.tool_calls) for each in request.messages if isinstance(each, AssistantMessage))
        return GeminiDecoder(self._failures, first_call=used + 1)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """The request as the API wants it."""
        settings, limit = settings_of(request)
        generation = renamed(settings, _GENERATION)
        if limit is not None:
            generation["maxOutputTokens"] = limit
        if request.output_schema is not None:
            generation |= {"responseMimeType": "application/json", "responseJsonSchema": request.output_schema}
        body: dict[str, Any] = {"contents": [self._content(message) for message in request.messages]}
        if request.instructions:
            body["systemInstruction"] = {"parts": [{"text": request.instructions}]}
        if request.tools:
            declared = [
                {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declared}]
        if generation:
            body["generationConfig"] = generation
        return merged(body, settings, self.extra_body)

    def _content(self, message: Message) -> dict[str, Any]:
        match message:
            case UserMessage(content):
                return {"role": "user", "parts": [_part(part) for part in content]}
            case AssistantMessage():
                said = list(self._assistant(message))
                return {"role": "model", "parts": said or [{"text": "(No answer.)"}]}
            case ToolMessage(results):
                return {"role": "user", "parts": [part for result in results for part in _result(result)]}

    def _assistant(self, message: AssistantMessage) -> Iterator[dict[str, Any]]:
        wants_signature = self.model.startswith("gemini-3")  # on the first call of each message, or it is refused
        for part in message.content:
            match part:
                case Text(text) | CutNote(text):
                    yield {"text": text}
                case Reasoning():
                    if own("gemini", part):
                        yield {"text": part.text, "thoughtSignature": part.signature}
                case ToolCall():
                    signature = _signature(part) or (_NO_SIGNATURE if wants_signature else None)
                    wants_signature = False
                    called: dict[str, Any] = {"functionCall": {"name": part.name, "args": part.arguments}}
                    yield called | {"thoughtSignature": signature} if signature else called


async def _close_client(client: httpx2.AsyncClient) -> None:
    await client.aclose()


def _signature(call: ToolCall) -> str | None:
    data = call.provider_data or {}
    return data.get("signature") if data.get("provider") == "gemini" else None


def _part(part: UserContent) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"text": text}
        case Image() | Document():
            if part.data is None:
                return {"fileData": {"mimeType": part.media_type, "fileUri": part.url}}
            return {"inlineData": {"mimeType": part.media_type, "data": base64_of(part.data)}}


def _result(result: ToolResult) -> Iterator[dict[str, Any]]:
    said = result.text or "(See the attachment.)"
    yield {"functionResponse": {"name": result.name, "response": {"error" if result.is_error else "output": said}}}
    yield from (_part(part) for part in result.content if not isinstance(part, Text))


# --- The answer ----------------------------------------------------------------------------------------------------


class _FunctionCall(Struct, gc=False):
    name: str = ""
    args: dict[str, Any] | None = None
    id: str | None = None


class _Part(Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _Content(Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _Usage(Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Feedback(Struct, gc=False, rename="camel"):
    block_reason: str | None = None


class _Chunk(Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    prompt_feedback: _Feedback | None = None
    response_id: str | None = None
    model_version: str | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode
_TAG: Final = {"provider": "gemini"}
_REFUSALS: Final = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE"}
)


class GeminiDecoder(EventStreamDecoder):
    """Decodes the chunks of one answer. Calls arrive whole and mostly without ids, so they are numbered."""

    def __init__(self, failures: Failures, *, first_call: int = 1) -> None:
        super().__init__()
        self._failures: Final = failures
        self._next_call = first_call
        self._called = self._started = False

    def take(self, name: bytes, data: bytes, into: list[Delta]) -> None:
        """One chunk."""
        del name
        try:
            chunk = _decode(data)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise garbage("Gemini", data, error) from None
        if chunk.error is not None:
            kind, message, wait = read_error(chunk.error)
            raise self._failures.reported(kind, message, retry_after=wait)
        if not self._started:
            self._started = True
            into.append(AnswerStart(chunk.response_id, chunk.model_version))
        reason = None
        if chunk.candidates and not self.ended:
            candidate = chunk.candidates[0]
            reason = candidate.finish_reason
            for part in (candidate.content.parts if candidate.content is not None else None) or ():
                self._take_part(part, into)
        elif chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            raise RequestRejected(
                f"Gemini refused the prompt: {chunk.prompt_feedback.block_reason}.", request_id=chunk.response_id
            )
        if chunk.usage_metadata is not None:
            into.append(_usage_delta(chunk.usage_metadata, final=self.ended or reason is not None))
        if reason is not None:
            self.ended = True
            into.append(AnswerEnd(self._reason(reason)))

    def _take_part(self, part: _Part, into: list[Delta]) -> None:
        call = part.function_call
        if call is not None:
            call_id = call.id or f"call_{self._next_call}"
            self._next_call += 1
            self._called = True
            signature = part.thought_signature
            into += [
                ToolCallStart(call_id, call.name, None if signature is None else {**_TAG, "signature": signature}),
                ToolCallArguments(call_id, msgspec.json.encode(call.args or {}).decode()),
                ToolCallEnd(call_id),
            ]
            return
        if part.text:
            into.append(ReasoningDelta(part.text) if part.thought else TextDelta(part.text))
        if part.thought_signature is not None:
            # It belongs to the words before it. Sent back with no words of its own, as it mostly came.
            into.append(ReasoningDelta("", part.thought_signature, _TAG))

    def _reason(self, reason: str) -> AnswerStop:
        if reason == "MAX_TOKENS":
            return "max_tokens"
        if reason in _REFUSALS:
            return "refusal"
        return "tool_use" if self._called else "end_turn"


def _usage_delta(usage: _Usage, *, final: bool) -> UsageDelta:
    sent, said, thought = usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count
    known = said is not None or thought is not None
    return UsageDelta(
        input=None if sent is None else sent + (usage.tool_use_prompt_token_count or 0),
        output=(said or 0) + (thought or 0) if known else None,
        cache_read=usage.cached_content_token_count,
        reasoning=thought,
        final=final and known,
    )
