"""Token counts that are no whole numbers: the answer is kept, and the figures are rounded or estimated."""

from __future__ import annotations

import asyncio
import re

import pytest

from quiesce import Agent, Retry
from quiesce.errors import ModelProtocolError

from .recordings import ANSWER, ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, PROVIDERS, Provider
from .test_failures import failure_of
from .wire import aws_event, chunk, head, streamed, wire

pytestmark = pytest.mark.promise("P3", "P6")
each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=str)

COUNT = re.compile(rb'("\w*(?:[tT]okens|TokenCount|eval_count)": )(\d+)')
# What a division, an average or a broken proxy makes of a count.
BAD = ["1e308", "1e400", "-3.7", "9" * 5000, '"many"', "NaN", "[1]", "{}", "true", "null"]


def with_counts(provider: Provider, count: bytes) -> bytes:
    """The provider's answer, each of whose token counts is another: `\\2` stands for the true one."""
    events = [COUNT.sub(rb"\g<1>" + count, event) for event in provider.answer.events]
    if provider.name == "bedrock":
        text = b'{"usage": {"inputTokens": 20, "outputTokens": 12, "cacheReadInputTokens": 5}}'
        events = [*provider.answer.events[:-1], aws_event("metadata", COUNT.sub(rb"\g<1>" + count, text))]
    assert events != provider.answer.events
    return streamed(events, provider.answer.content_type)


@each_provider
def test_counts_that_are_floats(provider: Provider, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with wire(with_counts(provider, rb"\g<2>.0"), otherwise=provider.answer.response) as server:
            result = await Agent(provider.make(server.url), retry=Retry(attempts=1)).invoke_async("What colour?")
            assert (result.text, result.stop_reason) == (ANSWER, "end_turn")
            used = result.usage.entries[0].usage
            assert (used.input.value, used.output.value) == (25, 12)
            assert len(server.requests) == 1

    asyncio.run(main())
    assert "not whole numbers" in caplog.text


@each_provider
def test_counts_that_are_no_numbers(provider: Provider, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with wire() as server:
            model = provider.make(server.url)
            for sent, count in enumerate(BAD, 1):
                caplog.clear()
                server.play(with_counts(provider, count.encode()))
                result = await Agent(model, retry=Retry(attempts=1)).invoke_async("What colour?")
                assert (result.text, result.stop_reason, len(server.requests)) == (ANSWER, "end_turn", sent)
                used = result.usage.entries[0].usage
                assert used.input.high is None or used.input.low < used.input.high  # an estimate, never a zero
                assert used.output.high is None or used.output.low < used.output.high
                assert "token counts" in caplog.text or count == "null"

    asyncio.run(main())


@pytest.mark.parametrize("provider", [OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC], ids=str)
def test_usage_that_is_no_object(provider: Provider) -> None:
    async def main() -> None:
        for usage in (b"5", b'"none"', b"[[]]"):
            events = [
                re.sub(rb'"usage": \{.*\}', b'"usage": ' + usage + b"}", event) for event in provider.answer.events
            ]
            if provider.name == "anthropic":  # its first usage is inside the message
                events[0] = events[0].replace(b"}\n", b"}}\n")
            if provider.name == "openai-responses":
                events[-1] = events[-1].replace(b"}\n", b"}}\n")
            async with wire(streamed(events, provider.answer.content_type)) as server:
                result = await Agent(provider.make(server.url), retry=Retry(attempts=1)).invoke_async("What colour?")
                assert (result.text, result.stop_reason) == (ANSWER, "end_turn")

    asyncio.run(main())


@each_provider
@pytest.mark.promise("P4")
def test_json_that_is_nested_too_deeply(provider: Provider) -> None:
    """The error says that in our words, and not that Python has a limit on recursion."""

    async def main() -> None:
        deep = b'{"x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
        events = {"bedrock": aws_event("contentBlockDelta", deep), "ollama": deep + b"\n"}
        event = events.get(provider.name, b"data: " + deep + b"\n\n")
        async with wire(head(provider.answer.content_type) + chunk(event) + b"0\r\n\r\n") as server:
            error = await failure_of(provider.make(server.url))
            assert isinstance(error, ModelProtocolError)
            assert "nested too deeply" in str(error)
            assert "ecursion" not in str(error)

    asyncio.run(main())
