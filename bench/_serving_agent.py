"""The agent of `bench.serving`: what it does is what the prompt says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from quiesce import Agent
from quiesce.events import AnswerEnd, AnswerStart, Delta, TextDelta
from quiesce.models.base import ModelRequest
from quiesce.usage import Price

EVERY = 0.02


class ServingModel:
    """Answers at once, or with a word every 20 ms, or not to the end."""

    name = "serving"
    price: Price | None = None

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        yield self._deltas(request.messages[-1].text)  # pyright: ignore

    async def _deltas(self, prompt: str) -> AsyncIterator[Delta]:
        yield AnswerStart()
        yield TextDelta("Well, ")
        kind, _, count = prompt.partition(" ")
        for _ in range(int(count or 0)):
            await asyncio.sleep(EVERY)
            yield TextDelta("word ")
        if kind == "stall":
            await asyncio.Event().wait()
        yield AnswerEnd()


agent = Agent(ServingModel())
