"""Cancellation from outside: settled, then passed on, never swallowed; our own never leaks."""

import asyncio

import anyio
import pytest

from quiesce import Agent, tool
from quiesce.conversation.validity import faults
from quiesce.events import RunEnded, ToolStarted
from quiesce.models.scripted import Call, Say
from tests.core.kit import Record, answers, ended, is_a, outcomes, passes, scripted, until
from tests.core.stalled import at_the_word, stalled

pytestmark = pytest.mark.promise("P5", "P7")


@tool
async def forever() -> str:
    await asyncio.get_running_loop().create_future()


# --- The one who waits is cancelled ----------------------------------------------------------------------------------


async def test_cancelling_the_task_that_waits_stops_the_run_and_goes_on():
    agent, model = stalled()
    task = asyncio.create_task(agent.invoke_async("go"))
    await until(lambda: model.open_streams)
    await passes()
    task.cancel("by the test")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert agent.active_runs == ()
    assert model.open_streams == 0
    assert faults(agent.messages) == ()
    assert agent.messages[-1].text == "Well"
    await answers(agent)


async def test_asyncio_timeout():
    agent, _ = stalled()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            now = asyncio.get_running_loop().time()
            watch = asyncio.create_task(at_the_word(agent, lambda: limit.reschedule(now)))
            await agent.invoke_async("go")
    await watch
    assert agent.active_runs == ()
    assert agent.messages[-1].text == "Well"
    await answers(agent)


async def test_anyio_move_on_after():
    agent, _ = stalled()
    with anyio.move_on_after(1000) as scope:
        watch = asyncio.create_task(at_the_word(agent, lambda: setattr(scope, "deadline", 0)))
        await agent.invoke_async("go")
    await watch
    assert scope.cancelled_caught
    assert agent.active_runs == ()
    assert agent.messages[-1].text == "Well"
    await answers(agent)


async def test_an_anyio_task_group_that_is_cancelled_waits_for_the_run():
    agent, model = stalled()
    async with anyio.create_task_group() as group:
        group.start_soon(agent.invoke_async, "go")
        await until(lambda: model.open_streams)
        group.cancel_scope.cancel()
    assert agent.active_runs == ()
    await answers(agent)


async def test_waiting_for_the_receipt_is_not_owning_the_run():
    agent, model = stalled()
    run = agent.start("go")
    await until(lambda: model.open_streams)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await run.stopped()
    assert not run.done
    run.cancel()
    assert (await run).stop_reason == "cancelled"
    assert (await run.stopped()).stop_reason == "cancelled"


async def test_leaving_the_block_of_a_run_stops_it():
    agent, model = stalled()
    async with agent.start("go") as run:
        await until(lambda: model.open_streams)
    assert run.done
    assert (await run).receipt.cause.source == "disconnect"
    async with agent.start("again") as run:
        await run
    assert (await run).stop_reason == "end_turn"


async def test_cancelling_inside_the_block_of_a_run():
    agent, _ = stalled()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), agent.start("go") as run:
            await asyncio.get_running_loop().create_future()
    assert run.inspect().result.receipt.cause.source == "caller"


# --- The run's own task is cancelled ---------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(12))
async def test_cancelling_the_runs_own_task_at_each_pass(steps):
    agent = Agent(scripted([Say("Well"), Call("forever")]), tools=[forever])
    run = agent.start("go")
    record = Record(run)
    await passes(steps)
    run._task.cancel()
    end = await ended(run, record, agent)
    assert end.reason == "cancelled"
    assert end.result.receipt.cause.source == "caller"
    assert run._task.cancelled()
    assert end.result.receipt.still_running == ()


async def test_our_own_stop_does_not_leak_as_a_cancellation():
    agent, model = stalled()
    run = agent.start("go")
    await until(lambda: model.open_streams)
    run.cancel()
    await run.stopped()
    assert not run._task.cancelled()
    assert run._task.cancelling() == 0


async def test_both_at_once():
    agent = Agent(scripted([Call("forever")]), tools=[forever])
    run = agent.start("go")

    def both() -> None:
        run.cancel("ours")
        run._task.cancel()

    end = await ended(run, Record(run, is_a(ToolStarted), both), agent)
    assert end.reason == "cancelled"
    assert end.result.receipt.cause.reason == "ours"
    assert run._task.cancelled(), "the outside cancellation is passed on"
    assert outcomes(end.result) == {"forever": "cancelled"}


async def test_cancelling_again_and_again_while_it_settles():
    @tool(on_stop="finish", grace=20)
    async def commit() -> str:
        for _ in range(30):
            await asyncio.sleep(0)
        return "committed"

    agent = Agent(scripted([Call("commit")]), tools=[commit])
    run = agent.start("go")
    record = Record(run, is_a(ToolStarted), run._task.cancel)
    await until(lambda: record.stops)
    while not run.done:
        run._task.cancel()
        await asyncio.sleep(0)
    end = await ended(run, record, agent)
    assert outcomes(end.result) == {"commit": "completed"}
    assert run._task.cancelled()


@pytest.mark.leaves("tasks")
@pytest.mark.parametrize("steps", [0, 1, 2, 8])
def test_a_loop_that_shuts_down_settles_its_runs(steps):
    model = scripted([Say("Well"), Call("forever")])
    agent = Agent(model, tools=[forever])
    runs = []

    async def main() -> None:
        runs.append(agent.start("go"))
        runs.append(Record(runs[0]))
        await passes(steps)

    asyncio.run(main())
    run, record = runs
    assert run.done
    assert [type(event) for event in record.events].count(RunEnded) == 1
    assert faults(agent.messages) == ()
    assert run.inspect().result.stop_reason == "cancelled"
    if model.requests:  # or else the answer with the tool is still to come
        assert agent("and now?").stop_reason == "end_turn"
