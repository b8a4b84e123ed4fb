"""Strands Agents. A stop takes effect at its next checkpoint, which a stalled stream delays: it is not measured."""

from __future__ import annotations

import httpx
from openai import AsyncOpenAI
from strands import Agent, tool
from strands.models.openai import OpenAIModel

from ._base import Client, Stop, result_of


@tool
async def nothing(number: int) -> str:
    """Do nothing."""
    return result_of(number)


class Strands(Client):
    async def open(self) -> None:
        self._models: dict[str, OpenAIModel] = {}

    def _model(self, kind: str) -> OpenAIModel:
        if kind not in self._models:
            limits = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
            http = httpx.AsyncClient(timeout=600, limits=limits, **self.wire.options())
            client = AsyncOpenAI(base_url=self.wire.base(kind), api_key="none", http_client=http)
            self._models[kind] = OpenAIModel(client=client, model_id="gpt-4o-mini")
        return self._models[kind]

    async def run(self, kind: str, turns: int) -> str:
        # An agent has one conversation, and one run at a time.
        agent = Agent(model=self._model(kind), tools=[nothing] if turns > 1 else [], callback_handler=None)
        text = ""
        async for event in agent.stream_async("Go."):
            if "data" in event:
                text += event["data"]
        return text

    async def begin(self, kind: str) -> Stop:
        raise NotImplementedError


client = Strands
