"""Hanging up on a model: what has begun to close is let finish, and what does not close is not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quiesce import Agent
from quiesce.events import TextDelta


class Talker:
    """A model that says a word in each pass of the loop, and takes a few passes to close."""

    name = "talker"
    price = None

    def __init__(self, closing: float = 0.0) -> None:
        self.closed: list[str] = []
        self._closing = closing

    @asynccontextmanager
    async def stream(self, request: object) -> AsyncGenerator[AsyncIterator[TextDelta]]:
        async def deltas() -> AsyncGenerator[TextDelta]:
            while True:
                await asyncio.sleep(0)
                yield TextDelta("word ")

        try:
            yield deltas()
        finally:
            try:
                for _ in range(5):
                    await asyncio.sleep(0)
                await asyncio.sleep(self._closing)
                self.closed.append("whole")
            except asyncio.CancelledError:
                self.closed.append("cut")
                raise


async def stopped(model: Talker, mode: str):
    run = Agent(model).start("go")
    async for event in run:
        if isinstance(event, TextDelta):
            run.cancel(mode=mode)
    return await run.stopped()


@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("mode", ["now", "kill"])
async def test_a_stream_that_has_begun_to_close_is_not_cut(mode: str) -> None:
    model = Talker()
    receipt = await stopped(model, mode)
    assert model.closed == ["whole"]
    assert receipt.still_running == ()


@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("mode", ["now", "kill"])
async def test_a_stream_that_does_not_come_to_close_is_cut_in_the_end(mode: str) -> None:
    model = Talker(closing=1000.0)
    receipt = await stopped(model, mode)
    assert model.closed == ["cut"]
    assert receipt.still_running == ()
