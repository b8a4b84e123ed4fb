"""Each provider's wire format, from a real server: answers, parallel calls, reasoning, and what is sent back."""

from __future__ import annotations

import asyncio

import pytest

from quiesce import Agent, tool
from quiesce.conversation.validity import faults
from quiesce.events import Event, TextDelta
from quiesce.messages import AssistantMessage, Reasoning, ToolMessage
from quiesce.models.base import Model

from .recordings import ANSWER, PROVIDERS, THOUGHT, Provider
from .wire import wire

pytestmark = pytest.mark.promise("P3", "P6")
each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=str)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}"


@each_provider
async def test_an_answer_with_its_usage(provider: Provider) -> None:
    async with wire(otherwise=provider.answer.response) as server:
        model = provider.make(server.url)
        assert isinstance(model, Model)
        agent = Agent(model, instructions="Be brief.")
        events: list[Event] = []
        async for event in agent.stream_async("What colour?"):
            events.append(event)
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == ANSWER
        assert agent.messages[-1].text == ANSWER  # type: ignore[union-attr]
        usage = agent.usage
        recording = provider.answer
        assert (usage.input.value, usage.output.value) == (recording.input, recording.output)
        assert usage.tokens.cache_read.value == recording.cache_read
        assert usage.is_final
        assert usage.entries[0].ended == "completed"
        assert server.requests[0].path == provider.path
        await agent.invoke_async("And now?")
        # The body was read to its end, so the connection was used again.
        assert server.connections == 1


@each_provider
async def test_parallel_calls_and_their_results(provider: Provider) -> None:
    async with wire(provider.calls.response, provider.answer.response) as server:
        agent = Agent(provider.make(server.url), tools=[weather])
        result = await agent.invoke_async("Compare the weather.")
        assert result.text == ANSWER
        results = [message for message in agent.messages if isinstance(message, ToolMessage)]
        assert [each.text for each in results[0].results] == ["Sunny in Paris", "Sunny in Rome"]
        assert not faults(agent.messages)
        assert result.usage.output.value == provider.calls.output + provider.answer.output
        sent = server.requests[1].body
        assert sent.count(b"Sunny in Paris") == 1
        assert sent.count(b"Sunny in Rome") == 1
        assert b"Compare the weather." in sent


@each_provider
def test_reasoning_is_kept_and_goes_back_where_it_may(provider: Provider) -> None:
    async def main() -> None:
        async with wire(provider.reasoning.response, provider.answer.response) as server:
            agent = Agent(provider.make(server.url))
            result = await agent.invoke_async("What colour?")
            assert result.text == ANSWER
            answer = agent.messages[1]
            assert isinstance(answer, AssistantMessage)
            thoughts = [part for part in answer.content if isinstance(part, Reasoning)]
            assert thoughts[0].text == THOUGHT
            assert result.usage.tokens.reasoning.value == provider.reasoning.reasoning
            assert result.usage.output.value == provider.reasoning.output
            await agent.invoke_async("Sure?")
            sent = server.requests[1].body.decode()
            for thought in thoughts:
                assert thought.signature is None or thought.signature in sent
            if provider.name in ("openai-chat", "ollama"):
                assert THOUGHT not in sent

    asyncio.run(main())
