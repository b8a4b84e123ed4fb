"""A provider on this machine that streams words over HTTP, and the model and agent that talk to it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import httpx2

from quiesce import Agent
from quiesce.events import AnswerEnd, AnswerStart, Delta, TextDelta
from quiesce.models.base import ModelRequest
from quiesce.usage import Price

PROVIDER: Final = "QUIESCE_BENCH_PROVIDER"
EVERY: Final = 0.02


class Provider:
    """Streams words, one each `EVERY` seconds, and notes when the other side has hung up.

    A path that does not begin with `prefix` gets the beginning of an answer and no words.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.closed: dict[str, asyncio.Future[float]] = {}

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        name = head.split(b" ", 2)[1].decode().strip("/")
        closed = self.closed.setdefault(name, asyncio.get_running_loop().create_future())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        speaking = asyncio.create_task(self._speak(writer, silent=not name.startswith(self._prefix)))
        with suppress(ConnectionError):
            await reader.read()  # returns when the other side hangs up
        if not closed.done():  # a name that was used in the part before
            closed.set_result(time.perf_counter())
        speaking.cancel()
        writer.close()

    async def _speak(self, writer: asyncio.StreamWriter, *, silent: bool) -> None:
        while not silent:
            writer.write(b"5\r\nword\n\r\n")
            await asyncio.sleep(EVERY)


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
