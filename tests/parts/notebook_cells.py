"""What the cells of a notebook import."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from quiesce import AfterRun, Agent, Receipt
from quiesce.events import Delta
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Say, ScriptedModel, Stall

ended: list[Receipt] = []


class AudibleModel(ScriptedModel):
    """Says in the notebook that it has been asked."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        async with super().stream(request) as deltas:
            print("asked", flush=True)
            yield deltas


def note(event: AfterRun) -> None:
    ended.append(event.result.receipt)


def make_agent() -> Agent:
    """Stalls in its first answer, and gives a second one."""
    return Agent(AudibleModel([Say("Well, "), Stall()], then="Fine."), hooks=[note])
