"""A provider on this machine that streams words over HTTP, and the model and agent that talk to it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httpx2

from quiesce import Agent
from quiesce.events import AnswerEnd, AnswerStart, Delta, TextDelta
from quiesce.models.base import ModelRequest
from quiesce.usage import Price

PROVIDER: Final = "QUIESCE_BENCH_PROVIDER"


class LoopbackModel:
    """Reads lines from the provider whose address is in the environment. Leaving the context closes the connection."""

    name = "loopback"
    price: Price | None = None

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        self._client = self._client or httpx2.AsyncClient(timeout=None, trust_env=False)
        prompt = request.messages[-1].text  # pyright: ignore
        async with self._client.stream("GET", f"{os.environ[PROVIDER]}/{prompt}") as response:
            yield _deltas(response)


async def _deltas(response: httpx2.Response) -> AsyncIterator[Delta]:
    yield AnswerStart()
    async for line in response.aiter_lines():
        yield TextDelta(line + "\n")
    yield AnswerEnd()


agent = Agent(LoopbackModel())
