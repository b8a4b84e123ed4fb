"""Loops with a task factory of their own, such as `asyncio.eager_task_factory`: runs do the same as without."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from quiesce import Agent, tool
from quiesce.events import TextDelta
from quiesce.hooks import AfterRun, BeforeToolCall, OnStop
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

pytestmark = pytest.mark.promise("P7", "P8")


@tool
async def quick() -> str:
    return "done"


@tool
async def raises_cancelled() -> str:
    raise asyncio.CancelledError


@contextmanager
def task_factory(factory: Any) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        yield
    finally:
        loop.set_task_factory(None)  # for the runner: uvloop does not shut down with eager tasks


def eager(test: Any) -> Any:
    """The test, in a loop whose tasks begin at once."""

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
    @wraps(test)
    async def eagerly() -> None:
        with task_factory(asyncio.eager_task_factory):
            await test()

    return eagerly


async def test_no_task_of_a_run_is_made_by_the_loops_factory() -> None:
    made = []

    def factory(loop, coroutine, **options):
        made.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **options)

    agent = Agent(ScriptedModel([Call("quick")], [Say("Well"), Stall()], then="Fine."), tools=[quick])
    called = []
    for kind in (BeforeToolCall, OnStop, AfterRun):
        agent.hook(kind)(lambda event: called.append(type(event)))
    with task_factory(factory):
        async for event in (stream := agent.stream_async("go")):
            if isinstance(event, TextDelta):
                stream.run.cancel()
    assert set(called) == {BeforeToolCall, OnStop, AfterRun}
    assert made == []


@eager
async def test_a_stream_shows_every_delta_as_it_comes() -> None:
    agent = Agent(ScriptedModel([Say("one two three", chunk=4), Stall()]))
    seen = []
    async with agent.stream_async("go") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                seen.append(event.text)
                if len(seen) == 3:
                    break
    assert "".join(seen) == "one two thre"


@eager
async def test_the_stop_of_an_armed_agent_is_not_lost() -> None:
    agent = Agent(ScriptedModel(then="Fine."))
    agent.cancel("armed")
    result = await agent.invoke_async("go")
    assert (result.stop_reason, result.receipt.cause.reason) == ("cancelled", "armed")


@eager
async def test_a_tool_that_raises_cancelled_has_failed() -> None:
    agent = Agent(ScriptedModel([Call("raises_cancelled")], then="Fine."), tools=[raises_cancelled])
    result = await agent.invoke_async("go")
    assert (result.stop_reason, result.text) == ("end_turn", "Fine.")
    assert [(each.outcome, each.ok, each.detail) for each in result.receipt.calls] == [
        ("completed", False, "CancelledError")
    ]


@eager
async def test_the_first_step_of_a_run_comes_after_start() -> None:
    agent = Agent(ScriptedModel(then="Fine."))
    run = agent.start("go")
    assert run.phase == "created"
    assert agent.active_runs == (run,)
    run.cancel("at once")
    assert (await run).stop_reason == "cancelled"
