"""The agent of `bench.fleet_stop`: it reads from the provider, or waits in a tool."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

from bench._loopback import LoopbackModel
from quiesce import Agent, tool
from quiesce.messages import UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Call, ScriptedModel


@tool
async def wait_for_ever() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return "never"


class BenchModel(LoopbackModel):
    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[Any]:
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.text.startswith("tool"):
            return ScriptedModel([Call("wait_for_ever")]).stream(request)
        if not isinstance(last, UserMessage) or last.text.startswith("done"):
            return ScriptedModel("Done.").stream(request)
        return super().stream(request)


agent = Agent(BenchModel(), tools=[wait_for_ever], name="fleet")
