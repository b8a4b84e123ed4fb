"""OpenAI Agents SDK, stopped with `result.cancel()`."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from ._base import Client, Stop, never, result_of, soon

set_tracing_disabled(True)


@function_tool
async def nothing(number: int) -> str:
    """Do nothing."""
    return result_of(number)


class OpenAIAgents(Client):
    async def open(self) -> None:
        self._models: dict[str, Any] = {}
        self._agents: dict[tuple[str, bool], Agent] = {}

    def _model(self, kind: str) -> OpenAIChatCompletionsModel:
        if kind not in self._models:
            options = self.wire.options()
            http = {"http_client": httpx2.AsyncClient(timeout=600, **options)} if options else {}
            client = AsyncOpenAI(base_url=self.wire.base(kind), api_key="none", timeout=600, **http)
            self._models[kind] = OpenAIChatCompletionsModel("gpt-4o-mini", openai_client=client)
        return self._models[kind]

    def _agent(self, kind: str, *tools: Any) -> Agent:
        # With usage asked for, as the others do by themselves.
        return Agent("bench", model=self._model(kind), tools=[*tools], model_settings=ModelSettings(include_usage=True))

    async def run(self, kind: str, turns: int) -> str:
        agent = self._agents.get((kind, turns > 1))
        if agent is None:
            agent = self._agents[kind, turns > 1] = self._agent(kind, *([nothing] if turns > 1 else ()))
        text = ""
        async for event in Runner.run_streamed(agent, "Go.", max_turns=turns).stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += event.data.delta
        return text

    async def begin(self, kind: str) -> Stop:
        begun = asyncio.Event()

        @function_tool
        async def sleeping() -> str:
            """Sleep."""
            begun.set()
            return await never()

        @function_tool
        async def helper(prompt: str) -> str:
            """Help."""
            child = Runner.run_streamed(self._agent("stall"), prompt)
            await _read(child, begun)
            return child.final_output

        result = Runner.run_streamed(self._agent(kind, sleeping, helper), "Go.")
        reading = asyncio.create_task(_read(result, begun))
        await soon(begun)

        async def stop() -> None:
            result.cancel()
            await reading

        return stop


async def _read(result: Any, begun: asyncio.Event) -> None:
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            begun.set()


client = OpenAIAgents
