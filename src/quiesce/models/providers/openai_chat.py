"""OpenAI Chat Completions, and every server that speaks it."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Unpack, get_args

import httpx2

from ... import messages
from ...errors import ConfigurationError, ModelNotFound, UnknownModel
from ...events import UsageDelta
from ..base import Effort, ModelRequest
from ..decoders.openai_chat import ChatDecoder, usage_of_generation
from ..server_tools import ServerTool
from ..wire import convert, schemas
from ..wire.attachments import sendable
from ..wire.common_settings import one_of, openai_cache
from ..wire.encoding import MessageEncoder, encode
from ..wire.failures import no_key
from ..wire.http import PlainModel, WireOptions, headers_in, headers_of
from ..wire.server_tools import as_body, for_chat
from .compatible import SERVERS, Server, vocabulary_of

# Servers that take films: https://openrouter.ai/docs and https://docs.vllm.ai (multimodal inputs).
_WITH_VIDEO: Final = frozenset({"openrouter", "vllm"})


class OpenAIChat(PlainModel):
    """A model behind OpenAI's Chat Completions, or behind a server that speaks it.

    `server` names the kind of server: a key of `compatible.SERVERS`, or a `Server` of your own. The rest as for
    `WireModel`. Raises `AuthenticationFailed` without a key where one is needed, and `ConfigurationError` where the
    address is not known.
    """

    _waits_only_for_provider = True

    def __init__(
        self,
        model: str,
        *,
        server: str | Server = "openai",
        api_key: str | None = None,
        base_url: str | None = None,
        **options: Unpack[WireOptions],
    ) -> None:
        self.server: Final = server if isinstance(server, Server) else _server(server)
        self.provider = server if isinstance(server, str) else self.server.label.lower()
        if self.server is SERVERS["openai"]:
            self.provider = "openai-chat"
        self.stop_policy = self.server.stop_policy
        key = api_key or key_for(self.server, own_address=base_url is not None)
        address = base_url or address_of(self.server)
        self.tokenizer = vocabulary_of(model, self.server, address)
        super().__init__(model, api_key=key, base_url=address, label=self.server.label, **options)
        self.is_deployment: Final = self.server is SERVERS["azure"]
        self.supports_prefill: Final = self.server.prefill is not None
        self.after_hang_up: Final = self.server.after_hang_up
        self._headers: Final = openai_headers(key, self.extra_headers, own=self.server.key == SERVERS["openai"].key)
        self._settled: Final = MessageEncoder(_ChatFormat(self.server, self.provider, in_tool_loop=False).message)
        self._in_tool_loop: Final = MessageEncoder(_ChatFormat(self.server, self.provider, in_tool_loop=True).message)

    def _decoder(self, request: ModelRequest) -> ChatDecoder:
        del request
        return ChatDecoder(self._failures, provider=self.provider)

    async def _address(self) -> str:
        """Where requests go."""
        return self.base_url

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        content = encode(self.body(request, encoded=True))  # before the address: a local server is started for that
        return await self._post(f"{await self._address()}/chat/completions", content, self._headers)

    async def lookup_usage(self, request_id: str) -> UsageDelta | None:
        """The usage of a request that was cut; None when the server has no record yet. For OpenRouter."""
        url = f"{await self._address()}/generation?id={urllib.parse.quote(request_id, safe='')}"
        try:
            return usage_of_generation(await self._ask("GET", url, self._headers))
        except ModelNotFound:  # it takes a moment until the record is there
            return None

    def server_tools(self, tools: Iterable[ServerTool]) -> dict[str, Any]:
        """What a request carries for these. Raises `ConfigurationError` for those that there are none of."""
        return as_body(for_chat(tools, self.provider, self.server.label))

    def body(self, request: ModelRequest, *, encoded: bool = False) -> dict[str, Any]:
        """The request as this server wants it."""
        sent = self._messages(request, encoded=encoded)
        body: dict[str, Any] = {"model": self.model, "stream": True, "messages": sent}
        if request.tools:
            body["tools"] = convert.function_tools(request)
        choice = convert.tool_choice(request, self.server.label)
        if choice is not None:
            named = {"type": "function", "function": {"name": choice}}
            body["tool_choice"] = choice if choice in ("auto", "none", "required") else named
        if request.output_schema is not None:
            body["response_format"] = self._response_format(request.output_schema)
        if self.server.prefill and request.messages and isinstance(request.messages[-1], messages.AssistantMessage):
            body |= self.server.prefill
        settings, limit = convert.settings_of(request)
        body |= self._asked(settings)
        body |= convert.renamed(settings, {"stop_sequences": "stop"})
        if limit is not None:
            body[self.server.max_tokens] = limit
        server_tools = self.server_tools(request.server_tools)
        whole = convert.merged(self.server.body, body, server_tools, settings, self.extra_body)
        convert.one_answer(whole.get("n"), self.server.label)
        return whole

    def _asked(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings that all providers have, in this server's words."""
        server = self.server
        asked = openai_cache(settings, self.model if server is SERVERS["openai"] else "", server.label)
        if "top_logprobs" in settings:
            asked["logprobs"] = True
        if not server.tiers:
            one_of(settings, "service_tier", server.label, ())
        effort = one_of(settings, "effort", server.label, get_args(Effort) if server.effort else ())
        if effort is not None:
            asked |= {"reasoning": {"effort": effort}} if server.effort == "reasoning" else {"reasoning_effort": effort}
        return asked

    def _response_format(self, schema: dict[str, Any]) -> dict[str, Any]:
        if self.server.structured == "json_object":
            return {"type": "json_object"}
        return {"type": "json_schema", "json_schema": convert.answer_format(schema)}

    def _messages(self, request: ModelRequest, *, encoded: bool) -> list[Any]:
        instructions = request.instructions or ""
        if request.output_schema is not None and self.server.structured == "json_object":
            instructions = schemas.in_words(instructions, request.output_schema)
        first = [{"role": "system", "content": instructions}] if instructions else []
        settled, loop = self._split(request.messages)
        return [
            *first,
            *self._settled.items(settled, encoded=encoded),
            *self._in_tool_loop.items(loop, encoded=encoded),
        ]

    def _split(
        self, sent: tuple[messages.Message, ...]
    ) -> tuple[tuple[messages.Message, ...], tuple[messages.Message, ...]]:
        """The messages up to the last prompt, and those after it, where these differ to this server."""
        if self.server.reasoning_field is None:
            return sent, ()
        prompts = (index for index in reversed(range(len(sent))) if isinstance(sent[index], messages.UserMessage))
        end = next(prompts, -1) + 1
        return sent[:end], sent[end:]


def _server(name: str) -> Server:
    if name not in SERVERS:
        raise UnknownModel(f"There is no kind of server {name!r}.", todo=f"Use one of: {', '.join(SERVERS)}.")
    return SERVERS[name]


def key_for(server: Server, *, own_address: bool) -> str | None:
    """The key from the environment. Raises `AuthenticationFailed` where one is needed and there is none."""
    if server.key is None:
        return None
    key = next((os.environ[name] for name in (server.key, *server.other_keys) if os.environ.get(name)), None)
    if not key and not own_address:  # a server of one's own may need no key
        raise no_key(server.label, server.key)
    return key


def openai_headers(key: str | None, extra_headers: Mapping[str, str], *, own: bool) -> dict[str, str]:
    """The headers of every request. Only OpenAI's own servers get the OpenAI account of the environment."""
    account = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"} if own else {}
    known = {name: os.environ[variable] for name, variable in account.items() if variable in os.environ}
    fixed = {"authorization": f"Bearer {key or 'none'}", "accept": "application/json"}
    return headers_of(fixed, known, headers_in("OPENAI_CUSTOM_HEADERS"), extra_headers)


def address_of(server: Server) -> str:
    """Where the server is: from the environment, or at its usual place."""
    address = os.environ.get(server.address, "") if server.address else ""
    if server.path and address and server.path.split("/")[1] not in urllib.parse.urlsplit(address).path.split("/"):
        address = f"{address.rstrip('/')}{server.path}"
    if not address and server.base_url is None:
        raise ConfigurationError(
            f"Where is {server.label}?", todo=f"Set {server.address} or pass base_url=." if server.address else ""
        )
    if address and "://" not in address:
        address = f"http://{address}"
    return address or server.base_url or ""


# --- The conversation ----------------------------------------------------------------------------------------------


class _ChatFormat:
    """`in_tool_loop`: the messages follow the last prompt, so that reasoning is taken back."""

    def __init__(self, server: Server, provider: str, *, in_tool_loop: bool) -> None:
        self.server: Final = server
        self._provider: Final = provider
        self._takes_reasoning: Final = server.reasoning_field if in_tool_loop else None

    def message(self, message: messages.Message) -> Iterator[dict[str, Any]]:
        """A message, as one or more of this server's."""
        match message:
            case messages.UserMessage(content):
                yield {"role": "user", "content": self._user_content(content)}
            case messages.AssistantMessage():
                custom = _custom_calls(message, self._provider)
                yield self._assistant(message, custom)
                yield from ({"role": "tool", "tool_call_id": call["id"], "content": convert.NOT_RUN} for call in custom)
            case messages.ToolMessage(results):
                taken = [sendable(result, self._part) for result in results]
                yield from (self._result(result) for result in taken)
                shown = [part for result in taken for part in self._shown_apart(result)]
                if shown:
                    yield {"role": "user", "content": shown}

    def _user_content(self, content: tuple[messages.UserContent, ...]) -> str | list[dict[str, Any]]:
        if all(isinstance(part, messages.Text) for part in content):
            return "".join(part.text for part in content if isinstance(part, messages.Text))
        return [self._part(part) for part in content]

    def _part(self, part: messages.UserContent) -> dict[str, Any]:
        match part:
            case messages.Text(text):
                return {"type": "text", "text": text}
            case messages.Image():
                if part.file_id is not None:
                    raise convert.not_by_id(self.server.label, "image")
                detail = {"detail": part.detail} if part.detail else {}
                return {"type": "image_url", "image_url": {"url": convert.data_url(part), **detail}}
            case messages.Document() if part.media_type.startswith(("audio/", "video/")):
                return self._media(part)
            case messages.Document():
                words = convert.text_of_document(part)
                if words is not None:
                    return {"type": "text", "text": words}
                if part.file_id is not None:
                    return {"type": "file", "file": {"file_id": part.file_id}}
                if self.server.documents == "document_url":
                    return {"type": "document_url", "document_url": convert.data_url(part)}
                if part.data is None and self.server.documents != "file or url":
                    raise convert.not_by_address(self.server.label, "document")
                return {
                    "type": "file",
                    "file": {"filename": convert.file_name(part), "file_data": convert.data_url(part)},
                }

    def _media(self, part: messages.Document) -> dict[str, Any]:
        """Audio; video where it is taken."""
        label = self.server.label
        if part.media_type.startswith("video/"):
            if self._provider not in _WITH_VIDEO:
                raise convert.not_supported(label, "video")
            return {"type": "video_url", "video_url": {"url": convert.data_url(part)}}
        data = convert.base64_of(convert.bytes_of(part, label, "audio"))
        kind = part.media_type.partition("/")[2].removeprefix("x-")
        return {"type": "input_audio", "input_audio": {"data": data, "format": "mp3" if kind == "mpeg" else kind}}

    def _assistant(self, message: messages.AssistantMessage, custom: list[dict[str, Any]]) -> dict[str, Any]:
        said: dict[str, Any] = {"role": "assistant", "content": convert.text_of(message) or None}
        calls = [
            {
                "id": self._id(call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": convert.arguments_of(call)},
            }
            for call in message.tool_calls
        ]
        if calls or custom:
            said["tool_calls"] = [*calls, *custom]
        if self._takes_reasoning is not None and calls:
            thought = "".join(part.text for part in message.content if isinstance(part, messages.Reasoning))
            said |= {self._takes_reasoning: thought} if thought else {}
        for part in message.content:
            if isinstance(part, messages.ProviderPart) and part.provider == self._provider:
                said |= _sent_back(part)
        if said["content"] is None and not calls and not custom and "audio" not in said:  # nothing that is taken back
            said["content"] = convert.NO_ANSWER
        return said

    def _result(self, result: messages.ToolResult) -> dict[str, Any]:
        text: Any = result.text or convert.SEE_ATTACHMENT
        if self.server.rich_results and any(not isinstance(part, messages.Text) for part in result.content):
            text = [self._part(part) for part in result.content]
        return {"role": "tool", "tool_call_id": self._id(result.call_id), "content": text}

    def _shown_apart(self, result: messages.ToolResult) -> list[dict[str, Any]]:
        """Attachments of a result: most servers take only text in tool messages, so they follow in a user message."""
        if self.server.rich_results:
            return []
        attached = [self._part(part) for part in result.content if not isinstance(part, messages.Text)]
        return [{"type": "text", "text": f"From the tool {result.name}:"}, *attached] if attached else []

    def _id(self, call_id: str) -> str:
        return convert.short_id(call_id) if self.server.short_ids else call_id


def _sent_back(part: messages.ProviderPart) -> dict[str, Any]:
    """The fields that send a part back with its message. Audio goes by its id; notes on the answer are left out."""
    match part.kind:
        case "reasoning_details" | "images":
            return part.data
        case "audio":
            return {"audio": {"id": part.data["audio"].get("id")}}
        case _:
            return {}


def _custom_calls(message: messages.AssistantMessage, provider: str) -> list[dict[str, Any]]:
    """The calls of custom tools, which are not run here."""
    return [
        call
        for part in message.content
        if isinstance(part, messages.ProviderPart) and (part.provider, part.kind) == (provider, "tool_calls")
        for call in part.data["tool_calls"]
    ]
