"""How a network cuts a response into packets changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx2
import pytest

from quiesce import Agent, Retry
from quiesce.errors import AuthenticationFailed, ModelError, QuotaExceeded, RateLimited, ServerError
from quiesce.result import RunResult

from .recordings import ANSWER, ANTHROPIC, BEDROCK, GEMINI, OLLAMA, OPENAI_CHAT, OPENAI_RESPONSES, Provider
from .recordings.source import Source, assumed, thread

pytestmark = pytest.mark.promise("P3", "P6")


class _Packets(httpx2.AsyncByteStream):
    def __init__(self, packets: Iterable[bytes]) -> None:
        self._packets = list(packets)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for packet in self._packets:
            yield packet


def in_packets(provider: Provider, packets: Iterable[bytes], **headers: str) -> Any:
    """A model whose provider answers with these packets."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, headers={"content-type": provider.answer.content_type} | headers, stream=_Packets(packets)
        )

    return provider.make(
        "http://127.0.0.1:9", http_client=lambda: httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    )


async def result_of(model: Any) -> RunResult:
    run = Agent(model, retry=Retry(attempts=1)).start("What colour?")
    await run.stopped()
    result = run.inspect().result
    assert result is not None
    return result


@pytest.mark.parametrize("provider", [OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, BEDROCK, GEMINI, OLLAMA], ids=str)
def test_an_error_after_the_end_of_an_answer_leaves_it_as_it_is(provider: Provider) -> None:
    """https://openrouter.ai/docs/api-reference/streaming: a gateway reports a failure in an event, at any place."""
    events = [*provider.answer.events[:-1], provider.answer.events[-1], provider.mid_stream_error]
    if provider is OPENAI_CHAT:  # before [DONE], in the place where gateways put it
        events = [*provider.answer.events[:-1], provider.mid_stream_error, provider.answer.events[-1]]
    whole = b"".join(events)
    end = len(b"".join(provider.answer.events[: provider.answer.complete_at])) if provider.answer.complete_at > 0 else 0

    async def main() -> None:
        cuts = {len(whole), *range(end, len(whole), 37)}
        for cut in sorted(cuts):
            result = await result_of(in_packets(provider, [whole[:cut], whole[cut:]] if cut else [whole]))
            assert result.error is None, cut
            assert result.text == ANSWER
            assert (result.usage.input.value, result.usage.output.value) == (25, 12), cut
            assert result.usage.is_final

    asyncio.run(main())


# --- No stream at all ----------------------------------------------------------------------------------------------

USAGE = {"prompt_tokens": 25, "completion_tokens": 12, "total_tokens": 37}
WHOLE: list[tuple[Provider, Source, Any]] = [
    (
        OPENAI_CHAT,
        thread("decolua/9router/issues/3492", "A whole answer where a stream was announced."),
        {
            "id": "c1",
            "object": "chat.completion",
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}],
            "usage": USAGE,
        },
    ),
    (
        OPENAI_RESPONSES,
        assumed("The object that `stream: false` gives."),
        {
            "id": "resp_1",
            "object": "response",
            "status": "completed",
            "output": [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
            ],
            "usage": {"input_tokens": 25, "output_tokens": 12},
        },
    ),
    (
        ANTHROPIC,
        assumed("The object that `stream: false` gives."),
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": ANSWER}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 25, "output_tokens": 12},
        },
    ),
    (
        GEMINI,
        thread("google-gemini/gemini-cli/issues/6454", "A list: without `alt=sse`. There, with an error in it."),
        [
            {"candidates": [{"content": {"parts": [{"text": ANSWER[:5]}]}}]},
            {
                "candidates": [{"content": {"parts": [{"text": ANSWER[5:]}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 25, "candidatesTokenCount": 12},
            },
        ],
    ),
]


@pytest.mark.parametrize(
    ("provider", "whole"), [(each[0], each[2]) for each in WHOLE], ids=[str(each[0]) for each in WHOLE]
)
def test_an_answer_that_is_not_streamed(provider: Provider, whole: Any) -> None:
    async def main() -> None:
        for indent in (None, 2):
            written = json.dumps(whole, indent=indent).encode()
            for cut in (1, len(written) // 2, len(written)):
                packets = [written[:cut], written[cut:]]
                result = await result_of(in_packets(provider, packets, **{"content-type": "application/json"}))
                assert result.error is None
                assert result.text == ANSWER
                assert (result.usage.input.value, result.usage.output.value) == (25, 12)

    asyncio.run(main())


@pytest.mark.parametrize("provider", [OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, GEMINI, OLLAMA], ids=str)
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"code": 429, "message": "Rate limit exceeded"}}, RateLimited),
        ({"error": {"code": 402, "message": "Insufficient credits"}}, QuotaExceeded),
        ({"error": {"code": "502", "message": "Provider returned error"}}, ServerError),
        ({"error": {"code": 401, "message": "No auth credentials found"}}, AuthenticationFailed),
    ],
    ids=["429", "402", "502", "401"],
)
@pytest.mark.promise("P7")
def test_an_error_with_status_200(provider: Provider, body: Any, kind: type[ModelError]) -> None:
    """https://openrouter.ai/docs/api/reference/errors-and-debugging: the status is the code of the error."""
    if provider is OLLAMA:
        body = {"error": f"{body['error']['code']}: {body['error']['message']}"}
        kind = QuotaExceeded if kind is QuotaExceeded else ServerError

    async def main() -> None:
        packets = [json.dumps(body).encode()]
        result = await result_of(in_packets(provider, packets, **{"content-type": "application/json"}))
        assert type(result.error) is kind

    asyncio.run(main())
