"""Agno. A stop takes effect at its next checkpoint, which a stalled stream delays: it is not measured."""

from __future__ import annotations

import uuid

import httpx2
from agno.agent import Agent, RunContentEvent
from agno.models.openai import OpenAIChat

from ._base import Client, Stop, result_of


async def nothing(number: int) -> str:
    """Do nothing."""
    return result_of(number)


class Agno(Client):
    async def open(self) -> None:
        self._agents: dict[tuple[str, bool], Agent] = {}

    def _agent(self, kind: str, *, with_tool: bool) -> Agent:
        if (kind, with_tool) not in self._agents:
            options = self.wire.options()
            http = {"http_client": httpx2.AsyncClient(timeout=600, **options)} if options else {}
            model = OpenAIChat(id="gpt-4o-mini", base_url=self.wire.base(kind), api_key="none", **http)
            self._agents[kind, with_tool] = Agent(model=model, tools=[nothing] if with_tool else [], telemetry=False)
        return self._agents[kind, with_tool]

    async def run(self, kind: str, turns: int) -> str:
        text = ""
        events = self._agent(kind, with_tool=turns > 1).arun(
            "Go.", session_id=str(uuid.uuid4()), stream=True, stream_events=True
        )
        async for event in events:
            if isinstance(event, RunContentEvent):
                text += str(event.content or "")
        return text

    async def begin(self, kind: str) -> Stop:
        raise NotImplementedError


client = Agno
