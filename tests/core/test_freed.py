"""A finished run is freed by reference counts alone: the garbage collector finds nothing of it."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quiesce import Agent, tool
from quiesce.events import TextDelta, ToolStarted
from quiesce.hooks import AfterRun
from quiesce.run.handle import Run, state_of
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.testing import Call, Say, ScriptedModel, Stall

pytestmark = pytest.mark.promise("P5")
RUNS = 100
STORE = MemoryStore()


@tool
async def quick() -> str:
    return "quick"


@tool
async def slow() -> str:
    await asyncio.Event().wait()
    return "never"


@tool
def blocking() -> str:
    return "blocked"


helper = Agent(ScriptedModel(then="Helped.")).as_tool(name="helper")


def answering(*tools: Any) -> Agent:
    calls = [Call(each.name) if each is not helper else Call("helper", {"prompt": "Help"}) for each in tools]
    return Agent(ScriptedModel([Say("Look: "), *calls], then="Done."), tools=tools)


async def text() -> Run[Any]:
    return await ended(Agent(ScriptedModel(then="Done.")))


async def with_a_tool() -> Run[Any]:
    return await ended(answering(quick))


async def with_a_thread() -> Run[Any]:
    run = await ended(answering(blocking))
    for thread in threading.enumerate():  # it has given its result, and may not have ended
        if thread.name.startswith("quiesce-blocking"):
            thread.join()
    return run


async def with_a_sub_agent() -> Run[Any]:
    return await ended(answering(helper))


async def with_hooks() -> Run[Any]:
    async def hook(event: AfterRun) -> None:
        await asyncio.sleep(0)

    return await ended(Agent(ScriptedModel(then="Done."), hooks=[hook]))


async def in_a_session() -> Run[Any]:
    return await ended(Agent(ScriptedModel(then="Done."), session="one", store=STORE))


async def stopped_in_its_answer() -> Run[Any]:
    return await stopped_at(Agent(ScriptedModel([Say("Well"), Stall()])), TextDelta)


async def stopped_in_its_tool() -> Run[Any]:
    return await stopped_at(answering(slow), ToolStarted)


async def ended(agent: Agent) -> Run[Any]:
    run = agent.start("Go")
    await run
    return run


async def stopped_at(agent: Agent, kind: type) -> Run[Any]:
    run = agent.start("Go")
    async for event in run:
        if isinstance(event, kind):
            run.cancel("enough")
    await run.stopped()
    return run


@asynccontextmanager
async def without_collector() -> AsyncIterator[list[object]]:
    """What a collection after the block finds; in it there are none."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += [each for each in gc.garbage if type(each).__module__.startswith("quiesce")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


KINDS = [
    text,
    with_a_tool,
    with_a_thread,
    with_a_sub_agent,
    with_hooks,
    in_a_session,
    stopped_in_its_answer,
    stopped_in_its_tool,
]


@pytest.mark.parametrize("play", KINDS)
async def test_a_finished_run_is_gone_with_its_handle(play: Callable[[], Awaitable[Run[Any]]]):
    await play()
    async with without_collector() as found:
        for _ in range(RUNS if play is text else 3):
            run = await play()
            result = run.inspect().result
            assert result is not None
            state, events = weakref.ref(state_of(run)), weakref.ref(state_of(run).events)
            assert run.usage.entries == result.usage.entries
            assert run.messages == result.messages
            await asyncio.sleep(0)
            del run
            assert (state(), events()) == (None, None)
            assert result.receipt.still_running == ()
        del result
    assert Counter(type(each).__qualname__ for each in found) == {}
