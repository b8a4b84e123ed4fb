"""Audio, video, the detail of images, files by their id, and logprobs: what each vendor is sent, or is not.

Sources: the types of the packages openai 3.49, anthropic 2.8, google-genai 3.3 and botocore 1.44, and
https://openrouter.ai/docs/guides/overview/multimodal/llms-full.txt for video by OpenRouter.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent, Audio, Document, Image, Text, UserMessage, Video
from quiesce.errors import InvalidPrompt, RequestRejected
from quiesce.messages import AssistantMessage, ProviderPart
from quiesce.models.base import ModelRequest
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.models.scripted import ScriptedModel

from .recordings import ANTHROPIC, BEDROCK, GEMINI, KEY, OLLAMA, OPENAI_CHAT, OPENAI_RESPONSES, Provider
from .recordings.openai_responses import Responses, response, responses_usage
from .test_endings import holds
from .wire import sse, streamed, wire

pytestmark = pytest.mark.promise("P2", "P3")
DATA = b"RIFF not really"
SENT = base64.b64encode(DATA).decode()


def body_of(model: Any, *parts: Any, **request: Any) -> dict[str, Any]:
    made: dict[str, Any] = model.body(ModelRequest((UserMessage((Text("Listen."), *parts)),), **request))
    return made


@pytest.mark.parametrize(
    ("provider", "part", "sent"),
    [
        (OPENAI_CHAT, Audio(data=DATA), {"type": "input_audio", "input_audio": {"data": SENT, "format": "wav"}}),
        (OPENAI_CHAT, Audio("audio/mpeg", DATA), {"input_audio": {"data": SENT, "format": "mp3"}}),
        (GEMINI, Audio("audio/mpeg", DATA), {"inlineData": {"mimeType": "audio/mpeg", "data": SENT}}),
        (GEMINI, Video(data=DATA), {"inlineData": {"mimeType": "video/mp4", "data": SENT}}),
        (
            GEMINI,
            Video(url="https://youtu.be/x"),
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://youtu.be/x"}},
        ),
        (BEDROCK, Video("video/quicktime", DATA), {"video": {"format": "mov", "source": {"bytes": SENT}}}),
        (BEDROCK, Audio(data=DATA), {"audio": {"format": "wav", "source": {"bytes": SENT}}}),
        (
            OPENAI_CHAT,
            Image(url="https://a.org/a.png", detail="low"),
            {"image_url": {"url": "https://a.org/a.png", "detail": "low"}},
        ),
        (OPENAI_RESPONSES, Image(url="https://a.org/a.png", detail="high"), {"type": "input_image", "detail": "high"}),
        (OPENAI_RESPONSES, Image(file_id="file-1"), {"type": "input_image", "file_id": "file-1"}),
        (OPENAI_RESPONSES, Document(file_id="file-1"), {"type": "input_file", "file_id": "file-1"}),
        (OPENAI_CHAT, Document(file_id="file-1"), {"type": "file", "file": {"file_id": "file-1"}}),
        (ANTHROPIC, Image(file_id="file_1"), {"source": {"type": "file", "file_id": "file_1"}}),
        (ANTHROPIC, Document(file_id="file_1"), {"source": {"type": "file", "file_id": "file_1"}}),
        (
            GEMINI,
            Document(file_id="files/abc"),
            {
                "fileData": {
                    "mimeType": "application/pdf",
                    "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc",
                }
            },
        ),
    ],
    ids=str,
)
def test_what_a_vendor_is_sent(provider: Provider, part: Any, sent: Any) -> None:
    assert holds(body_of(provider.make("http://127.0.0.1:9"), part), sent)


def test_video_by_openrouter() -> None:
    model = OpenAIChat("some-model", server="openrouter", api_key=KEY)
    for part, url in ((Video(url="https://a.org/a.mp4"), "https://a.org/a.mp4"), (Video(data=DATA), f"base64,{SENT}")):
        body = body_of(model, part)
        assert holds(body, "video_url")
        assert holds(body, url)


@pytest.mark.parametrize(
    ("provider", "part", "words"),
    [
        (ANTHROPIC, Audio(data=DATA), "Anthropic does not take audio"),
        (ANTHROPIC, Video(data=DATA), "Anthropic does not take video"),
        (OPENAI_RESPONSES, Audio(data=DATA), "Responses API does not take audio"),
        (OPENAI_CHAT, Video(data=DATA), "OpenAI does not take video"),
        (OPENAI_CHAT, Audio(url="https://a.org/a.wav"), "OpenAI takes no audio by address"),
        (OPENAI_CHAT, Image(file_id="file-1"), "OpenAI takes no image by the id of a file"),
        (BEDROCK, Document(file_id="file-1"), "Bedrock takes no document by the id of a file"),
        (OLLAMA, Audio(data=DATA), "Ollama does not take"),
        (OLLAMA, Image(file_id="file-1"), "Ollama takes no image by the id of a file"),
    ],
    ids=str,
)
def test_a_sentence_where_a_vendor_takes_none(provider: Provider, part: Any, words: str) -> None:
    with pytest.raises(RequestRejected, match=words):
        body_of(provider.make("http://127.0.0.1:9"), part)


@pytest.mark.promise("P2", "P9")
def test_they_are_kept_in_a_session(tmp_path: Path) -> None:
    parts = (Text("Look."), Audio(data=DATA), Video(url="https://a.org/a.mp4"), Image(file_id="f", detail="low"))
    where = f"sqlite:///{tmp_path}/sessions.db"
    Agent(ScriptedModel("Seen."), session="sky", store=where)(list(parts))
    again = Agent(ScriptedModel("Yes."), session="sky", store=where)
    assert again("And?").messages[0] == UserMessage(parts)
    with pytest.raises(InvalidPrompt):
        again([Audio()])


# --- Logprobs --------------------------------------------------------------------------------------------------------

_TOKEN = {"token": "Blue", "logprob": -0.1, "bytes": [66], "top_logprobs": [{"token": "Grey", "logprob": -2.5}]}


@pytest.mark.parametrize(
    ("provider", "sent"),
    [
        (OPENAI_CHAT, {"logprobs": True, "top_logprobs": 2}),
        (OPENAI_RESPONSES, {"top_logprobs": 2}),
        (GEMINI, {"responseLogprobs": True, "logprobs": 2}),
    ],
    ids=str,
)
def test_logprobs_are_asked_for(provider: Provider, sent: Any) -> None:
    body = body_of(provider.make("http://127.0.0.1:9"), settings={"top_logprobs": 2})
    assert holds(body, sent)
    if provider is OPENAI_RESPONSES:
        assert body["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]


@pytest.mark.parametrize("provider", [ANTHROPIC, BEDROCK, OLLAMA], ids=str)
def test_logprobs_that_a_vendor_has_not(provider: Provider) -> None:
    with pytest.raises(RequestRejected, match="has no top_logprobs=2"):
        body_of(provider.make("http://127.0.0.1:9"), settings={"top_logprobs": 2})


def responses_logprobs() -> bytes:
    event = Responses()
    part = {"type": "output_text", "text": "Blue", "annotations": [], "logprobs": [_TOKEN]}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return streamed(
        [
            event("response.created", response=response("in_progress")),
            event("response.output_text.delta", **place, delta="Blue", logprobs=[_TOKEN]),
            event("response.output_item.done", output_index=0, item=item),
            event("response.completed", response=response("completed", responses_usage(1))),
        ],
        "text/event-stream",
    )


_CHOSEN = {"chosenCandidates": [{"token": "Blue", "tokenId": 7, "logProbability": -0.1}]}


def gemini_logprobs() -> bytes:
    candidate = {
        "content": {"parts": [{"text": "Blue"}], "role": "model"},
        "finishReason": "STOP",
        "index": 0,
        "logprobsResult": _CHOSEN,
    }
    usage = {"promptTokenCount": 25, "candidatesTokenCount": 1}
    return streamed([sse({"candidates": [candidate], "usageMetadata": usage})], "text/event-stream")


@pytest.mark.parametrize(
    ("provider", "played", "kind", "found"),
    [
        (OPENAI_RESPONSES, responses_logprobs(), "message", {"logprobs": [_TOKEN]}),
        (GEMINI, gemini_logprobs(), "logprobsResult", _CHOSEN),
    ],
    ids=["openai-responses", "gemini"],
)
def test_logprobs_are_kept_and_do_not_go_back(provider: Provider, played: bytes, kind: str, found: Any) -> None:
    async def main() -> None:
        async with wire(played, otherwise=provider.answer.response) as server:
            agent = Agent(provider.make(server.url), settings={"top_logprobs": 2})
            result = await agent.invoke_async("What colour?")
            assert result.text == "Blue"
            answer = result.messages[-1]
            assert isinstance(answer, AssistantMessage)
            assert [part.data for part in answer.content if isinstance(part, ProviderPart)] == [found]
            assert [part.kind for part in answer.content if isinstance(part, ProviderPart)] == [kind]
            await agent.invoke_async("And now?")
            assert "-0.1" not in str(server.requests[-1].json)

    asyncio.run(main())
