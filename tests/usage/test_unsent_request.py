"""A request that was never sent is not on the bill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quiesce import Agent
from quiesce.events import Delta
from quiesce.models.base import ModelRequest
from quiesce.testing import ScriptedModel

pytestmark = pytest.mark.promise("P6")


class InItsOwnTask(ScriptedModel):
    """A model that streams itself, which the run reads in a task of its own."""

    asked = 0

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Delta]]:
        self.asked += 1
        async with super().stream(request) as deltas:
            yield deltas


async def test_a_stop_before_the_model_was_asked() -> None:
    """As when `asyncio.run` ends: every task is cancelled, and that of the model has not begun."""
    model = InItsOwnTask(then="Hello.")
    run = Agent(model).start("Go.")
    while not any(task.get_name() == "model stream" for task in asyncio.all_tasks()):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    receipt = await run.stopped()
    assert model.asked == 0
    assert receipt.stop_reason == "cancelled"
    assert receipt.usage.calls == 0
