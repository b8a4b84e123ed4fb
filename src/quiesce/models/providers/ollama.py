"""Ollama, through its own API."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, Unpack

import httpx2
import msgspec
from msgspec import Struct

from ...events import AnswerEnd, AnswerStop, Delta, ReasoningDelta, TextDelta, UsageDelta
from ...messages import AssistantMessage, Document, Image, Message, Text, ToolMessage, UserContent, UserMessage
from ..base import ModelRequest
from ..decoders.whole_calls import WholeCalls
from ..server_tools import ServerTool
from ..wire import convert
from ..wire.attachments import sendable
from ..wire.common_settings import cached_anyway, one_of
from ..wire.encoding import MessageEncoder, encode
from ..wire.failures import Failures
from ..wire.http import PlainModel, WireOptions
from ..wire.server_tools import as_body, for_chat
from ..wire.sse import UNREADABLE, LineDecoder, readable
from .compatible import vocabulary_of

# Settings that other providers have at the top, under their names here.
_OPTIONS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "stop_sequences": "stop",
}


class Ollama(PlainModel):
    """A model that an Ollama server runs. The arguments are those of `WireModel`; OLLAMA_HOST says where it is."""

    provider = "ollama"
    label: ClassVar[str] = "Ollama"
    _waits_only_for_provider = True

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        **options: Unpack[WireOptions],
    ) -> None:
        key = api_key or os.environ.get("OLLAMA_API_KEY")
        super().__init__(model, api_key=key, base_url=base_url or ollama_address(), **options)
        self.tokenizer = self.tokenizer or vocabulary_of(model)
        self._messages: Final = MessageEncoder(_messages)
        self._headers: Final = ({"authorization": f"Bearer {key}"} if key else {}) | self.extra_headers

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        return await self._post(f"{self.base_url}/api/chat", encode(self.body(request, encoded=True)), self._headers)

    def _decoder(self, request: ModelRequest) -> OllamaDecoder:
        return OllamaDecoder(self._failures, first_call=len(self._messages.called(request.messages)) + 1)

    def server_tools(self, tools: Iterable[ServerTool]) -> dict[str, Any]:
        """Nothing. Raises `ConfigurationError` for any tool: there are none."""
        return as_body(for_chat(tools, "ollama", "Ollama"))

    def body(self, request: ModelRequest, *, encoded: bool = False) -> dict[str, Any]:
        """The request as the server wants it."""
        messages = self._messages.items(request.messages, encoded=encoded)
        if request.instructions:
            messages.insert(0, {"role": "system", "content": request.instructions})
        body: dict[str, Any] = {"model": self.model, "messages": messages, "stream": True}
        if request.tools:
            body["tools"] = convert.function_tools(request)
        choice = convert.tool_choice(request, "Ollama")
        if choice == "none":  # the server has no such setting: it is not shown the tools
            body.pop("tools")
        elif choice not in (None, "auto"):
            raise convert.no_tool_choice("Ollama", choice)
        if request.output_schema is not None:
            body["format"] = request.output_schema
        settings, limit = convert.settings_of(request)
        effort = one_of(settings, "effort", "Ollama", ("none", "low", "medium", "high"))
        if effort is not None:  # only some models have levels
            body["think"] = effort != "none" and (effort if "gpt-oss" in self.model else True)
        for name in ("service_tier", "top_logprobs"):
            one_of(settings, name, "Ollama", ())
        cached_anyway(settings, "Ollama")
        self.server_tools(request.server_tools)
        options = convert.renamed(settings, _OPTIONS)
        if limit is not None:
            options["num_predict"] = limit
        if options:
            body["options"] = options
        return convert.merged(body, settings, self.extra_body)


def ollama_address() -> str:
    """Where the server is: OLLAMA_HOST, which may lack scheme and port, or the usual place."""
    host = os.environ.get("OLLAMA_HOST", "").strip().rstrip("/")
    if not host:
        return "http://127.0.0.1:11434"
    if "://" in host:
        return host
    host = host.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - what a server binds to is not where a client goes
    found = re.fullmatch(r"(\[.*\]|[^:/]*)(:\d+)?(/.*)?", host)
    name, port, path = found.groups("") if found else (f"[{host}]", "", "")  # else IPv6 without brackets
    return f"http://{name or '127.0.0.1'}{port or ':11434'}{path}"


def _messages(message: Message) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage(content):
            yield {"role": "user", **_content(content)}
        case AssistantMessage():
            calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in message.tool_calls]
            said: dict[str, Any] = {"role": "assistant", "content": convert.text_of(message)}
            if not said["content"] and not calls:
                said["content"] = convert.NO_ANSWER
            yield said | {"tool_calls": calls} if calls else said
        case ToolMessage(results):
            for result in results:
                taken = sendable(result, lambda part: _content((part,)))
                yield {"role": "tool", "tool_name": result.name, **_content(taken.content)}


def _content(content: tuple[UserContent, ...]) -> dict[str, Any]:
    said: list[str] = []
    images: list[str] = []
    for part in content:
        match part:
            case Text(text):
                said.append(text)
            case Image():
                images.append(convert.base64_of(convert.bytes_of(part, "Ollama", "image")))
            case Document():
                words = convert.text_of_document(part)
                if words is None:
                    raise convert.not_supported("Ollama", f"documents of type {part.media_type}")
                said.append(words)
    return {"content": "\n".join(said), **({"images": images} if images else {})}


# --- The answer ----------------------------------------------------------------------------------------------------


class _Function(Struct, gc=False):
    name: str = ""
    arguments: dict[str, Any] | str | None = None


class _Call(Struct, gc=False):
    id: str | None = None
    function: _Function | None = None


class _Message(Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(Struct, gc=False):
    model: str | None = None
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Line).decode


class OllamaDecoder(LineDecoder):
    """Decodes the lines of one answer. Calls have no ids of their own in most versions."""

    def __init__(self, failures: Failures, *, first_call: int = 1) -> None:
        super().__init__(failures)
        self._calls: Final = WholeCalls(first_call)

    def take(self, line: bytes, into: list[Delta]) -> None:
        """One line."""
        try:
            found = _decode(line)
        except UNREADABLE as error:
            return self.take(readable("Ollama", line, error), into)
        if found.error is not None:
            raise self._failures.reported("", str(found.error))
        if self.ended:
            return None
        self._start(None, found.model, into)
        message = found.message
        if message is not None:
            if message.thinking:
                into.append(ReasoningDelta(message.thinking))
            if message.content:
                into.append(TextDelta(message.content))
            for call in message.tool_calls or ():
                function = call.function or _Function()
                self._calls.take(call.id, function.name, function.arguments, into)
        if found.done:
            self._end(found, into)
        return None

    def _end(self, found: _Line, into: list[Delta]) -> None:
        self.ended = self.done = True
        if found.eval_count is not None or found.prompt_eval_count is not None:
            into.append(UsageDelta(found.prompt_eval_count, found.eval_count, final=True))
        reason: AnswerStop = "max_tokens" if found.done_reason == "length" else "end_turn"
        into.append(AnswerEnd("tool_use" if self._calls.any and reason == "end_turn" else reason))
