"""Quiesce, now and in an earlier version: what is used here is in both."""

from __future__ import annotations

import asyncio
import importlib
import os
from typing import Any

from quiesce import Agent, Conversation, Limits, tool

from ._base import Client, Stop, never, result_of, soon


def _chat_model() -> Any:
    try:
        module = importlib.import_module("quiesce.models.providers.openai_chat")
    except ModuleNotFoundError:  # where it was before
        module = importlib.import_module("quiesce.models.openai_chat")
    return module.OpenAIChat


@tool
async def nothing(number: int) -> str:
    """Do nothing."""
    return result_of(number)


@tool
async def sleeping() -> str:
    """Sleep."""
    return await never()


class Quiesce(Client):
    async def open(self) -> None:
        self._models: dict[str, Any] = {}
        self._agents: dict[tuple[str, int], Any] = {}

    def _model(self, kind: str) -> Any:
        if kind not in self._models:
            options: dict[str, Any] = {}
            if self.wire.authority is not None:
                os.environ["SSL_CERT_FILE"] = self.wire.authority
            if self.wire.http2:
                httpx2 = importlib.import_module("httpx2")
                options["http_client"] = lambda: httpx2.AsyncClient(timeout=600, **self.wire.options())
            base_url = self.wire.base(kind)
            self._models[kind] = _chat_model()("gpt-4o-mini", base_url=base_url, api_key="none", **options)
        return self._models[kind]

    async def run(self, kind: str, turns: int) -> str:
        agent = self._agents.get((kind, turns))
        if agent is None:
            agent = Agent(self._model(kind), tools=[nothing] if turns > 1 else [], limits=Limits(turns=turns))
            self._agents[kind, turns] = agent
        text = ""
        async for event in agent.stream_async("Go.", conversation=Conversation()):
            if type(event).__name__ == "TextDelta":
                text += event.text
        return text

    async def begin(self, kind: str) -> Stop:
        tools: list[Any] = [sleeping]
        if kind == "child":
            tools = [Agent(self._model("stall")).as_tool(name="helper")]
        run = Agent(self._model(kind), tools=tools).start("Go.")
        awaited = {"sleep": "ToolStarted", "child": "ChildEvent"}.get(kind, "TextDelta")
        async for each in run.events():
            inner = getattr(each, "event", each)
            if type(each).__name__ == awaited and type(inner).__name__ in ("TextDelta", "ToolStarted"):
                break
        begun = asyncio.Event()
        begun.set()
        await soon(begun)

        async def stop() -> None:
            run.cancel()
            await run.stopped()

        return stop


client = Quiesce
