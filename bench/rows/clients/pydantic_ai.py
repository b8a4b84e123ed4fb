"""Pydantic AI, stopped with its cancellation token."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import httpx2
from openai import AsyncOpenAI
from pydantic_ai import Agent, CancellationToken
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from ._base import Client, Stop, never, result_of, soon


async def nothing(number: int) -> str:
    """Do nothing."""
    return result_of(number)


class PydanticAI(Client):
    async def open(self) -> None:
        self._models: dict[str, Any] = {}
        self._agents: dict[tuple[str, bool], Agent] = {}

    def _model(self, kind: str) -> OpenAIChatModel:
        if kind not in self._models:
            options = self.wire.options()
            http = {"http_client": httpx2.AsyncClient(timeout=600, **options)} if options else {}
            client = AsyncOpenAI(base_url=self.wire.base(kind), api_key="none", timeout=600, **http)
            self._models[kind] = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(openai_client=client))
        return self._models[kind]

    def _agent(self, kind: str, *, with_tool: bool) -> Agent:
        if (kind, with_tool) not in self._agents:
            self._agents[kind, with_tool] = Agent(self._model(kind), tools=[nothing] if with_tool else [])
        return self._agents[kind, with_tool]

    async def run(self, kind: str, turns: int) -> str:
        agent = self._agent(kind, with_tool=turns > 1)
        text: list[str] = []
        limits = UsageLimits(request_limit=turns)
        await agent.run("Go.", event_stream_handler=_reader(text.append), usage_limits=limits)
        return "".join(text)

    async def begin(self, kind: str) -> Stop:
        begun = asyncio.Event()
        agent, token = Agent(self._model(kind)), CancellationToken()
        handler = _reader(lambda _: begun.set())

        @agent.tool_plain
        async def sleeping() -> str:
            """Sleep."""
            begun.set()
            return await never()

        @agent.tool_plain
        async def helper(prompt: str) -> str:
            """Help."""
            child = Agent(self._model("stall"))
            return (await child.run(prompt, event_stream_handler=handler, cancellation_token=token)).output

        async def work() -> None:
            with suppress(RunCancelled):
                await agent.run("Go.", event_stream_handler=handler, cancellation_token=token)

        task = asyncio.create_task(work())
        await soon(begun)

        async def stop() -> None:
            token.cancel()
            await task

        return stop


def _reader(show: Any) -> Any:
    """What reads a run's events, and shows each piece of text."""

    async def read(_context: Any, events: Any) -> None:
        async for event in events:
            match event:
                case (
                    PartStartEvent(part=TextPart(content=text))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                ):
                    if text:
                        show(text)
                case _:
                    pass

    return read


client = PydanticAI
