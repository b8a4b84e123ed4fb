"""OpenAI Responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, Unpack, get_args

import httpx2

from ... import messages
from ...events import UsageDelta
from ..base import Effort, ModelRequest
from ..decoders.openai_responses import ResponsesDecoder, usage_of
from ..server_tools import ServerTool
from ..wire import convert
from ..wire.common_settings import one_of, openai_cache
from ..wire.encoding import MessageEncoder, encode
from ..wire.http import PlainModel, WireOptions
from ..wire.json_values import as_dict
from ..wire.server_tools import as_body, for_responses
from .compatible import SERVERS, vocabulary_of
from .openai_chat import address_of, key_for, openai_headers

# These are nothing without their ids.
_WITH_ID: Final = frozenset(
    {
        "image_generation_call",
        "code_interpreter_call",
        "file_search_call",
        "local_shell_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_call",
        "program",
        "program_output",
    }
)


class OpenAIResponses(PlainModel):
    """A model behind OpenAI's Responses API.

    server      whose Responses API it is
    background  let the provider work in the background: it keeps the answer for a while, goes on when a connection
                breaks, and has a request to cancel it, which a stop sends

    Otherwise nothing is stored at the provider: the conversation is sent each time, with the reasoning in its encrypted
    form. The rest as for `WireModel`; the key is taken from OPENAI_API_KEY, or the variable of that server. Raises
    `AuthenticationFailed`, and `ConfigurationError` where the address is not known.
    """

    _waits_only_for_provider = True

    def __init__(
        self,
        model: str,
        *,
        server: Literal["openai", "azure", "xai", "perplexity"] = "openai",
        api_key: str | None = None,
        base_url: str | None = None,
        background: bool = False,
        **options: Unpack[WireOptions],
    ) -> None:
        self.server: Final = SERVERS[server]
        self.provider = "openai" if server == "openai" else f"{server}-responses"
        self.stop_policy = "cancel_at_provider" if background else "hang_up"
        key = api_key or key_for(self.server, own_address=base_url is not None)
        address = base_url or address_of(self.server)
        self.tokenizer = vocabulary_of(model, self.server, address)
        super().__init__(model, api_key=key, base_url=address, label=self.server.label, **options)
        self._background: Final = background
        self._headers: Final = openai_headers(key, self.extra_headers, own=server == "openai")
        self.is_deployment: Final = server == "azure"
        self._messages = MessageEncoder(_ResponsesFormat(self.provider).items)

    def _decoder(self, request: ModelRequest) -> ResponsesDecoder:
        del request
        return ResponsesDecoder(self._failures, provider=self.provider)

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        return await self._post(f"{self.base_url}/responses", encode(self.body(request, encoded=True)), self._headers)

    async def cancel_request(self, request_id: str) -> UsageDelta | None:
        """Cancel a response that is made in the background; its usage, where the provider says it."""
        return usage_of(await self._ask("POST", f"{self.base_url}/responses/{request_id}/cancel", self._headers))

    async def lookup_usage(self, request_id: str) -> UsageDelta | None:
        """What a response that is kept at the provider has used; None when that is not known yet."""
        return usage_of(await self._ask("GET", f"{self.base_url}/responses/{request_id}", self._headers))

    def server_tools(self, tools: Iterable[ServerTool]) -> dict[str, Any]:
        """What a request carries for these. Raises `ConfigurationError` for those that there are none of."""
        return as_body(for_responses(tools, self.server.label))

    def _function_tools(self, request: ModelRequest) -> list[dict[str, Any]]:
        return [{"type": "function", **convert.function_spec(tool), "strict": False} for tool in request.tools]

    def body(self, request: ModelRequest, *, encoded: bool = False) -> dict[str, Any]:
        """The request as the API wants it."""
        body: dict[str, Any] = {
            "model": self.model,
            "stream": True,
            "input": self._messages.items(request.messages, encoded=encoded),
            "store": self._background,
            "include": ["reasoning.encrypted_content"],
        }
        if self._background:
            body["background"] = True
        if request.instructions:
            body["instructions"] = request.instructions
        if request.tools:
            body["tools"] = self._function_tools(request)
        choice = convert.tool_choice(request, self.server.label)
        if choice is not None:
            named = {"type": "function", "name": choice}
            body["tool_choice"] = choice if choice in ("auto", "none", "required") else named
        if request.output_schema is not None:
            body["text"] = {"format": {"type": "json_schema", **convert.answer_format(request.output_schema)}}
        settings, limit = convert.settings_of(request)
        if settings.pop("stop_sequences", None):
            raise convert.no_setting(
                "OpenAI's Responses API", "stop_sequences", 'use "openai-chat:" (Chat Completions)'
            )
        if limit is not None:
            body["max_output_tokens"] = limit
        if "top_logprobs" in settings:
            body["include"].append("message.output_text.logprobs")
        asked = openai_cache(settings, self.model if self.server is SERVERS["openai"] else "", self.server.label)
        effort = one_of(settings, "effort", self.server.label, get_args(Effort))
        if effort is not None:
            asked["reasoning"] = {"effort": effort}
        return convert.merged(body, self.server_tools(request.server_tools), asked, settings, self.extra_body)


# --- The conversation ----------------------------------------------------------------------------------------------


class _ResponsesFormat:
    """`provider`: what came from it goes back to it, and what came from others does not."""

    def __init__(self, provider: str) -> None:
        self._provider: Final = provider

    def items(self, message: messages.Message) -> Iterator[dict[str, Any]]:
        """A message, as one or more items."""
        match message:
            case messages.UserMessage(content):
                yield {"type": "message", "role": "user", "content": [_part(part) for part in content]}
            case messages.AssistantMessage():
                yield from self._assistant(message)
            case messages.ToolMessage(results):
                yield from (_result(result) for result in results)

    def _assistant(self, message: messages.AssistantMessage) -> Iterator[dict[str, Any]]:
        for index, part in enumerate(message.content):
            match part:
                case messages.Text(text) | messages.CutNote(text):
                    yield self._said(text, message.content[index + 1 : index + 2])
                case messages.ProviderPart():
                    if part.provider == self._provider and part.kind != "message":
                        yield from _item_back(part)
                case messages.ToolCall():
                    arguments = convert.arguments_of(part)
                    yield {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments}
                case messages.Reasoning():
                    # Reasoning is taken back only together with what it led to.
                    led_to = next(
                        (each for each in message.content[index + 1 :] if not isinstance(each, messages.Reasoning)),
                        None,
                    )
                    kept = messages.Text | messages.ToolCall | messages.ProviderPart
                    if convert.is_from(self._provider, part) and isinstance(led_to, kept):
                        yield _reasoning(part)

    def _said(self, text: str, following: tuple[messages.AssistantContent, ...]) -> dict[str, Any]:
        """A message, with the phase and the citations that it came with."""
        said: dict[str, Any] = {"type": "output_text", "text": text}
        item = {"type": "message", "role": "assistant", "content": [said]}
        for part in following:
            if isinstance(part, messages.ProviderPart) and (part.provider, part.kind) == (self._provider, "message"):
                said |= {name: part.data[name] for name in ("annotations",) if name in part.data}
                item |= {name: part.data[name] for name in ("phase",) if name in part.data}
        return item


def _part(part: messages.UserContent) -> dict[str, Any]:
    match part:
        case messages.Text(text):
            return {"type": "input_text", "text": text}
        case messages.Image():
            shown = {"image_url": convert.data_url(part)} if part.file_id is None else {"file_id": part.file_id}
            return {"type": "input_image", **shown} | ({"detail": part.detail} if part.detail else {})
        case messages.Document():
            convert.refuse_media(part, "The Responses API")
            if part.file_id is not None:
                return {"type": "input_file", "file_id": part.file_id}
            words = convert.text_of_document(part)
            if words is not None:
                return {"type": "input_text", "text": words}
            if part.url is not None:
                return {"type": "input_file", "file_url": part.url}
            return {"type": "input_file", "filename": convert.file_name(part), "file_data": convert.data_url(part)}


def _reasoning(part: messages.Reasoning) -> dict[str, Any]:
    """Without its id: where answers are stored, an item with an id is refused before one that has none."""
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    return {"type": "reasoning", "summary": summary, "encrypted_content": part.signature}


def _item_back(part: messages.ProviderPart) -> Iterator[dict[str, Any]]:
    """An item as it came, and the output that the API wants for a call that is not run here."""
    item = part.data if part.kind in _WITH_ID else {name: each for name, each in part.data.items() if name != "id"}
    call = {"call_id": part.data.get("call_id")}
    match part.kind:
        case "computer_call":  # its output would be a screenshot
            return
        case "custom_tool_call":
            output = {"type": "custom_tool_call_output", **call, "output": convert.NOT_RUN}
        case "local_shell_call":
            output = {"type": "local_shell_call_output", "id": part.data.get("call_id"), "output": convert.NOT_RUN}
        case "apply_patch_call":
            output = {"type": "apply_patch_call_output", **call, "status": "failed", "output": convert.NOT_RUN}
        case "shell_call" if as_dict(part.data.get("environment")).get("type") in (None, "local"):
            failed = {"stdout": "", "stderr": convert.NOT_RUN, "outcome": {"type": "exit", "exit_code": 1}}
            output = {"type": "shell_call_output", **call, "output": [failed]}
        case "mcp_approval_request":
            output = {"type": "mcp_approval_response", "approval_request_id": part.data.get("id"), "approve": False}
        case "tool_search_call" if part.data.get("execution") == "client":
            none: list[Any] = []
            output = {"type": "tool_search_output", **call, "execution": "client", "tools": none}
        case _:
            yield item
            return
    yield item
    yield output


def _result(result: messages.ToolResult) -> dict[str, Any]:
    is_text = all(isinstance(part, messages.Text) for part in result.content)
    output = result.text if is_text else [_part(part) for part in result.content]
    return {"type": "function_call_output", "call_id": result.call_id, "output": output}
