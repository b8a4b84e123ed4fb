"""Results of tools with several parts, and with attachments that a model does not take."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from quiesce import Agent, Conversation, tool
from quiesce.errors import RequestRejected
from quiesce.messages import AssistantMessage, Document, Image, Text, ToolCall, ToolMessage, ToolResult, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.providers.openai_chat import OpenAIChat

from .recordings import ANTHROPIC, BEDROCK, GEMINI, OLLAMA, OPENAI_CHAT, OPENAI_RESPONSES, PROVIDERS, Provider
from .wire import Wire, refused, wire

pytestmark = pytest.mark.promise("P2")
PNG = b"\x89PNG\r\n\x1a\nnot really"
SHOWN = base64.b64encode(PNG).decode()


def request_with(*parts: Any) -> ModelRequest:
    call, result = ToolCall("call_a", "look", {}), ToolResult("call_a", "look", parts)
    return ModelRequest((UserMessage((Text("Look."),)), AssistantMessage((call,)), ToolMessage((result,))))


@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
def test_text_parts_of_a_result_are_on_lines_of_their_own(provider: Provider) -> None:
    body = provider.make("http://127.0.0.1:9").body(request_with(Text("one"), Text("two")))  # type: ignore[attr-defined]
    assert "onetwo" not in json.dumps(body)
    if provider not in (ANTHROPIC, BEDROCK):
        assert "one\\ntwo" in json.dumps(body)


@pytest.mark.parametrize(
    ("provider", "part"),
    [
        (OLLAMA, Image(url="https://example.com/a.png")),
        (OLLAMA, Document("application/pdf", b"%PDF")),
        (OPENAI_CHAT, Document(url="https://example.com/a.pdf")),
        (ANTHROPIC, Document("application/zip", b"PK")),
        (BEDROCK, Image(url="https://example.com/a.png")),
    ],
    ids=str,
)
def test_an_attachment_that_a_provider_does_not_take_is_a_sentence(provider: Provider, part: Any) -> None:
    body = provider.make("http://127.0.0.1:9").body(request_with(Text("Here."), part))  # type: ignore[attr-defined]
    assert f"of type {part.media_type} is left out here" in json.dumps(body)


@tool
def weather(city: str) -> list[Text | Image]:
    """The sky, as a picture."""
    return [Text(f"The sky over {city}."), Image("image/png", PNG)]


def said(server: Wire) -> list[bool]:
    """For each request, whether it had a picture."""
    return [SHOWN in request.body.decode() for request in server.requests]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "Invalid content type. image_url is only supported by certain models."),
        (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
        (404, "No endpoints found that support image input"),
        (400, "messages[2]: unknown variant `image_url`, expected `text`"),
        (400, "This model does not support image input."),
    ],
)
def test_a_model_that_takes_no_images(status: int, words: str) -> None:
    no = refused(status, {"error": {"message": words, "type": "invalid_request_error"}})

    async def main() -> None:
        answer = OPENAI_CHAT.answer.response
        async with wire(OPENAI_CHAT.calls.response, no, answer, answer) as server:
            agent = Agent(OPENAI_CHAT.make(server.url), tools=[weather])
            assert (await agent.invoke_async("Look.")).stop_reason == "end_turn"
            assert (await agent.invoke_async("And now?")).stop_reason == "end_turn"
            # The server says it once, and is not asked again; the sentence is in place of the picture.
            assert said(server) == [False, True, False, False]
            assert "is left out here" in server.requests[-1].body.decode()
        async with wire(GEMINI.answer.response) as other:
            await Agent(GEMINI.make(other.url), conversation=Conversation(agent.messages)).invoke_async("And you?")
            assert said(other) == [True]

    asyncio.run(main())


def test_one_image_that_is_refused_says_nothing_about_others() -> None:
    no = refused(400, {"error": {"message": "image exceeds 5 MB maximum", "type": "invalid_request_error"}})

    async def main() -> None:
        answer = OPENAI_CHAT.answer.response
        async with wire(OPENAI_CHAT.calls.response, no, answer, answer) as server:
            agent = Agent(OPENAI_CHAT.make(server.url), tools=[weather])
            await agent.invoke_async("Look.")
            await agent.invoke_async("And now?")
            assert said(server) == [False, True, False, True]

    asyncio.run(main())


def test_an_image_of_the_prompt_itself_is_not_left_out() -> None:
    no = refused(400, {"error": {"message": "This model does not support images.", "type": "invalid_request_error"}})

    async def main() -> None:
        async with wire(no, OPENAI_CHAT.answer.response) as server:
            agent = Agent(OPENAI_CHAT.make(server.url))
            with pytest.raises(RequestRejected, match="does not support images"):
                await agent.invoke_async([Text("Look."), Image("image/png", PNG)])
            await agent.invoke_async("Then without.")
            assert len(server.requests) == 2

    asyncio.run(main())


@pytest.mark.parametrize("provider", [OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, BEDROCK, GEMINI], ids=str)
def test_a_jpeg_under_the_name_that_many_programs_give_it(provider: Provider) -> None:
    """anthropic 2.8, types/base64_image_source_param.py: image/jpeg, and no image/jpg"""
    request = ModelRequest((UserMessage((Image("image/jpg", PNG),)),))
    body = json.dumps(provider.make("http://127.0.0.1:9").body(request))  # type: ignore[attr-defined]
    assert "jpeg" in body
    assert "jpg" not in body


@pytest.mark.parametrize(
    ("server", "part", "sent"),
    [
        # mistralai 3.7: client/models/documenturlchunk.py
        (
            "mistral",
            Document(url="https://example.com/a.pdf"),
            {"type": "document_url", "document_url": "https://example.com/a.pdf"},
        ),
        (
            "mistral",
            Document(data=b"%PDF"),
            {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERg=="},
        ),
        # https://openrouter.ai/docs/features/multimodal/pdfs
        (
            "openrouter",
            Document(url="https://example.com/a.pdf", name="a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "https://example.com/a.pdf"}},
        ),
    ],
)
def test_documents_in_the_words_of_a_server(server: str, part: Document, sent: dict[str, Any]) -> None:
    model = OpenAIChat("m", server=server, api_key="k")
    body = model.body(ModelRequest((UserMessage((Text("Read."), part)),)))
    assert body["messages"][0]["content"][1] == sent
