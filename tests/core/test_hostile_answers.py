"""Answers that no honest model gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from quiesce import Agent, Retry, TextDelta, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ModelProtocolError, RunError, ServerError
from quiesce.models.providers.ollama import Ollama
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.testing import Call, Say, ScriptedModel, Stall, Used
from quiesce.usage import register_vocabulary


@tool
async def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.promise("P2", "P1")
async def test_an_answer_with_too_many_calls_is_refused_in_words() -> None:
    agent = Agent(ScriptedModel([Call("look")] * 401, then="Yes."), tools=[look], retry=Retry(attempts=1))
    with pytest.raises(ModelProtocolError, match="more than 400 tool calls"):
        await agent.invoke_async("Go.")
    assert faults(agent.messages) == ()
    assert (await agent.invoke_async("And now?")).text == "Yes."


@pytest.mark.promise("P6")
@pytest.mark.parametrize("wrong", [-1, 10**15])
async def test_token_counts_that_cannot_be_true_are_unknown_and_estimated(
    wrong: int, caplog: pytest.LogCaptureFixture
) -> None:
    result = await Agent(ScriptedModel([Say("Some words."), Used(wrong, wrong)])).invoke_async("Go.")
    usage = result.usage
    assert usage.input.source != "reported"
    assert 0 < usage.input.value < 1000
    assert 0 < usage.output.value < 1000
    assert "cannot be true" in caplog.text


@pytest.mark.promise("P6")
async def test_token_counts_of_a_model_of_ones_own_that_are_floats_are_rounded() -> None:
    counts: Any = (25.4, 12.0)
    result = await Agent(ScriptedModel([Say("Some words."), Used(*counts)])).invoke_async("Go.")
    assert (result.usage.input.value, result.usage.output.value) == (25, 12)
    assert type(result.usage.input.value) is int


def answering(handler: Any) -> Any:
    return lambda: httpx2.AsyncClient(transport=httpx2.MockTransport(handler))


class OneRead(httpx2.AsyncByteStream):
    """A body that comes in one piece."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body


@pytest.mark.promise("P3")
async def test_a_bad_event_in_the_same_read_as_the_end_loses_nothing() -> None:
    lines = [
        '{"id":"1","choices":[{"index":0,"delta":{"content":"All of it."},"finish_reason":null}]}',
        '{"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
        '{"id":"1","choices":[],"usage":{"prompt_tokens":"many"}}',
    ]
    body = "".join(f"data: {line}\n\n" for line in lines).encode()

    def handler(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=OneRead(body))

    model = OpenAIChat("gpt-x", api_key="k" * 20, http_client=answering(handler))
    result = await Agent(model, retry=Retry(attempts=1)).invoke_async("Go.")
    assert (result.text, result.stop_reason) == ("All of it.", "end_turn")


class Endless(httpx2.AsyncByteStream):
    """A body without end; `read` is how much of it was taken."""

    read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            Endless.read += 65536
            yield b"x" * 65536
            await asyncio.sleep(0)


@pytest.mark.promise("P1")
@pytest.mark.parametrize("make", [Ollama, OpenAIChat])
async def test_the_body_of_an_error_is_read_within_a_bound(make: Any) -> None:
    Endless.read = 0

    def handler(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(500, stream=Endless())

    agent = Agent(make("m", api_key="k" * 20, http_client=answering(handler)), retry=Retry(attempts=1))
    with pytest.raises((ServerError, RunError)):
        async with asyncio.timeout(20):
            await agent.invoke_async("Go.")
    assert Endless.read < 1_000_000


@pytest.mark.promise("P1", "P6")
@pytest.mark.parametrize("piece", ["a" * 1000, "日本" * 500, "word " * 200])
async def test_a_text_of_any_length_is_counted_in_bounded_time(piece: str) -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text) // 4

    register_vocabulary("recorded", count)
    model = ScriptedModel([Say(piece * 600, chunk=10_000_000), Stall()])
    model.tokenizer = "recorded"
    run = Agent(model).start(piece * 600)
    async for event in run:
        if isinstance(event, TextDelta):
            run.cancel()
    usage = (await run).usage
    assert max(map(len, counted)) <= 200_000
    assert max(len(word) for text in counted for word in text.split()) <= 50_000
    for figure in (usage.input, usage.output):
        assert figure.source == "heuristic"
        assert figure.low <= len(piece) * 600 / 4 <= figure.high


@pytest.mark.promise("P2", "P1")
async def test_an_answer_without_end_is_ended_in_words() -> None:
    agent = Agent(ScriptedModel([Say("x" * 11_000_000, chunk=1_000_000)], then="Yes."), retry=Retry(attempts=1))
    with pytest.raises(ModelProtocolError, match="more than 5,000,000 characters") as raised:
        await agent.invoke_async("Go.")
    assert len(raised.value.result.text) == 5_000_000
    assert faults(agent.messages) == ()
    assert (await agent.invoke_async("And now?")).text == "Yes."
