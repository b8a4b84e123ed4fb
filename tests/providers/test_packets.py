"""How a network cuts a response into packets changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx2
import pytest

from quiesce import Agent, Retry
from quiesce.result import RunResult

from .recordings import ANSWER, ANTHROPIC, BEDROCK, GEMINI, OLLAMA, OPENAI_CHAT, OPENAI_RESPONSES, Provider

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
            200, headers={"content-type": provider.answer.content_type, **headers}, stream=_Packets(packets)
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
    """https://github.com/openai/openai-python/issues/1401: some servers send an error event after the last chunk."""
    assert provider.mid_stream_error is not None
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
