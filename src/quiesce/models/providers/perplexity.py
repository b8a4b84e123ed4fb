"""Perplexity's Agent API, which has taken the place of Sonar's Chat Completions.

It follows OpenAI's Responses API in its events, and takes less of it in requests.
https://docs.perplexity.ai/docs/agent-api/migrate-from-sonar/overview
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Unpack

from ... import messages
from ..base import ModelRequest
from ..server_tools import ServerTool
from ..wire import convert
from ..wire.attachments import sendable
from ..wire.common_settings import cached_anyway, one_of
from ..wire.encoding import MessageEncoder
from ..wire.http import WireOptions
from ..wire.server_tools import as_body, for_perplexity
from .openai_responses import OpenAIResponses

_LABEL: Final = "Perplexity"
_EFFORTS: Final = ("minimal", "low", "medium", "high", "xhigh")


class Perplexity(OpenAIResponses):
    """A model behind Perplexity's Agent API: "sonar", one of another vendor ("openai/gpt-5.5"), or a preset ("fast").

    The arguments are those of `WireModel`; the key is taken from PERPLEXITY_API_KEY. Raises `AuthenticationFailed`.
    """

    def __init__(
        self, model: str, *, api_key: str | None = None, base_url: str | None = None, **options: Unpack[WireOptions]
    ) -> None:
        super().__init__(model, server="perplexity", api_key=api_key, base_url=base_url, **options)
        self.provider = "perplexity"
        self._messages = MessageEncoder(_items)

    def server_tools(self, tools: Iterable[ServerTool]) -> dict[str, Any]:
        """What a request carries for these. Raises `ConfigurationError` for those that there are none of."""
        return as_body(for_perplexity(tools))

    def body(self, request: ModelRequest, *, encoded: bool = False) -> dict[str, Any]:
        """The request as the API wants it: it refuses fields that it does not know."""
        body: dict[str, Any] = {
            **_named(self.model),
            "stream": True,
            "input": self._messages.items(request.messages, encoded=encoded),
            "store": False,
        }
        if request.instructions:
            body["instructions"] = request.instructions
        if request.tools:
            body["tools"] = self._function_tools(request)
        choice = convert.tool_choice(request, _LABEL)
        if choice not in (None, "auto"):
            raise convert.no_tool_choice(_LABEL, choice)
        if request.output_schema is not None:
            wanted = convert.answer_format(request.output_schema)
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        settings, limit = convert.settings_of(request)
        if limit is not None:
            body["max_output_tokens"] = limit
        for name in ("service_tier", "top_logprobs", "stop_sequences"):
            one_of(settings, name, _LABEL, ())
        cached_anyway(settings, _LABEL)
        effort = one_of(settings, "effort", _LABEL, _EFFORTS)
        asked = {} if effort is None else {"reasoning": {"effort": effort}}
        return convert.merged(body, self.server_tools(request.server_tools), asked, settings, self.extra_body)


def _named(model: str) -> dict[str, str]:
    """A model has its vendor before its name; what has none is a preset."""
    if model == "sonar":
        return {"model": "perplexity/sonar"}
    return {"model": model} if "/" in model else {"preset": model}


# --- The conversation ----------------------------------------------------------------------------------------------


def _items(message: messages.Message) -> Iterator[dict[str, Any]]:
    """A message, as one or more items: messages, calls and their outputs are all that the API takes back."""
    match message:
        case messages.UserMessage(content):
            yield {"type": "message", "role": "user", "content": [_part(part) for part in content]}
        case messages.AssistantMessage():
            said = convert.text_of(message)
            if said or not message.tool_calls:
                yield {"type": "message", "role": "assistant", "content": said or convert.NO_ANSWER}
            for call in message.tool_calls:
                arguments = convert.arguments_of(call)
                yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
        case messages.ToolMessage(results):
            for result in results:
                output = sendable(result, _only_text).text or convert.SEE_ATTACHMENT
                yield {"type": "function_call_output", "call_id": result.call_id, "output": output}


def _part(part: messages.UserContent) -> dict[str, Any]:
    match part:
        case messages.Text(text):
            return {"type": "input_text", "text": text}
        case messages.Image():
            if part.file_id is not None:
                raise convert.not_by_id(_LABEL, "image")
            return {"type": "input_image", "image_url": convert.data_url(part)}
        case messages.Document():
            convert.refuse_media(part, _LABEL)
            words = convert.text_of_document(part)
            if words is None:
                raise convert.not_supported(_LABEL, f"documents of type {part.media_type}")
            return {"type": "input_text", "text": words}


def _only_text(part: messages.UserContent) -> None:
    if not isinstance(part, messages.Text):
        raise convert.not_supported(_LABEL, "attachments in results")
