"""Cancellation from outside: settled, then passed on, never swallowed; our own never leaks."""

import asyncio

import anyio
import pytest

from quiesce import Agent, CancellationToken, Mode, tool
from quiesce.cancellation import BoundedShield, StopScope
from quiesce.events import RunEnded, TextDelta, ToolStarted
from quiesce.models.scripted import Call, Say, Stall
from quiesce.transcript import faults
from tests.core.kit import Record, answers, ended, is_a, outcomes, passes, scripted, until

pytestmark = pytest.mark.promise("P1", "P2", "P3", "P5", "P7")


@tool
async def forever() -> str:
    await asyncio.get_running_loop().create_future()


def stalled() -> tuple[Agent, object]:
    model = scripted([Say("Well"), Stall()])
    return Agent(model), model


async def at_the_word(agent: Agent, then) -> None:
    """Do something once the model has said its word."""
    await until(lambda: agent.active_runs and getattr(agent.active_runs[0].messages[-1], "text", "") == "Well")
    then()


# --- The one who waits is cancelled ---------------------------------------------------------------------------------


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


async def test_waiting_for_a_result_is_not_owning_the_run():
    agent, model = stalled()
    run = agent.start("go")
    await until(lambda: model.open_streams)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await run.result()
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
    assert run._ended.result().receipt.cause.source == "task"


# --- The run's own task is cancelled --------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(12))
async def test_cancelling_the_runs_own_task_at_each_pass(steps):
    agent = Agent(scripted([Say("Well"), Call("forever")]), tools=[forever])
    run = agent.start("go")
    record = Record(run)
    await passes(steps)
    run._task.cancel()
    end = await ended(run, record, agent)
    assert end.reason == "cancelled"
    assert end.result.receipt.cause.source == "task"
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
    assert run._ended.result().stop_reason == "cancelled"
    if model.requests:  # or else the answer with the tool is still to come
        assert agent("and now?").stop_reason == "end_turn"


# --- Scopes ---------------------------------------------------------------------------------------------------------


async def test_a_scope_is_closed_by_its_token_from_another_thread():
    token = CancellationToken()
    reached = []
    with StopScope(token):
        asyncio.get_running_loop().run_in_executor(None, token.cancel)
        await asyncio.get_running_loop().create_future()
        reached.append("never")
    assert reached == []
    assert token._watchers == {}
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_scope_that_is_entered_after_the_stop():
    token = CancellationToken()
    token.cancel()
    with StopScope(token):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise AssertionError
    assert asyncio.current_task().cancelling() == 0


async def test_a_scope_reacts_to_modes():
    token = CancellationToken()
    passed = []
    with StopScope(token, Mode.KILL) as scope:
        token.cancel(mode="after_tools")
        await passes()
        passed.append("after_tools")
        scope.react_at(Mode.NOW)
        await passes()
        passed.append("now")
        scope.react_at(Mode.AFTER_TURN)
        await passes()
        passed.append("never")
    assert passed == ["after_tools", "now"]


async def test_a_stop_after_the_scope_touches_nothing():
    token = CancellationToken()
    with StopScope(token) as scope:
        scope._on_request(Mode.NOW)
    await passes()
    token.cancel()
    scope._on_request(Mode.NOW)
    await passes()


async def test_an_outside_cancellation_passes_through_a_scope():
    async def inside(token: CancellationToken, *, also: bool) -> None:
        with StopScope(token):
            if also:
                token.cancel()
            await asyncio.get_running_loop().create_future()

    for also in (False, True):
        task = asyncio.create_task(inside(CancellationToken(), also=also))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()


async def test_a_timeout_around_a_scope_and_a_scope_around_a_timeout():
    token = CancellationToken()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            with StopScope(token):
                await asyncio.get_running_loop().create_future()
    with StopScope(token):
        asyncio.get_running_loop().call_soon(token.cancel)
        async with asyncio.timeout(1000):
            await asyncio.get_running_loop().create_future()
    assert asyncio.current_task().cancelling() == 0


def test_a_scope_whose_loop_has_closed():
    token = CancellationToken()
    loop = asyncio.new_event_loop()

    async def enter() -> StopScope:
        return StopScope(token).__enter__()

    scope = loop.run_until_complete(enter())
    loop.close()
    token.cancel()
    assert scope is not None


# --- Shields --------------------------------------------------------------------------------------------------------


async def test_a_shield_waits_on_although_it_is_cancelled():
    shield, future = BoundedShield("test"), asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await shield.wait((future,), seconds=1000)

    task = asyncio.create_task(wait())
    for _ in range(3):
        await passes()
        task.cancel()
    await passes()
    assert not task.done()
    future.set_result(None)
    await task
    assert shield.interrupted
    assert not future._callbacks if hasattr(future, "_callbacks") else True


async def test_a_shield_is_bounded():
    shield, loop = BoundedShield("test"), asyncio.get_running_loop()
    future, unless = loop.create_future(), loop.create_future()
    await shield.wait((future,), seconds=0)
    await shield.wait((), seconds=1000)
    loop.call_soon(unless.set_result, None)
    await shield.wait((future,), seconds=1000, unless=unless)
    await shield.wait((future,), seconds=1000, unless=unless)
    assert not shield.interrupted
    both = [loop.create_future(), loop.create_future()]
    loop.call_soon(both[0].set_result, None)
    loop.call_later(0.001, both[1].set_result, None)
    await shield.wait(both, seconds=1000)
    assert all(each.done() for each in both)
    future.cancel()


# --- Streams --------------------------------------------------------------------------------------------------------


@pytest.mark.case("openai-agents-python#2222", "openai-agents-python#574")
@pytest.mark.parametrize("how", ["break and close", "with", "del", "aclose"])
async def test_leaving_a_stream_early_is_a_stop(how):
    agent, model = stalled()
    stream = agent.stream_async("go")
    run = stream.run
    if how == "with":
        async with stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
    else:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
        if how != "del":
            await stream.aclose()
            await stream.aclose()
    del stream
    receipt = await run.stopped()
    assert (receipt.stop_reason, receipt.cause.source) == ("cancelled", "disconnect")
    assert model.open_streams == 0
    assert agent.messages[-1].text == "Well"
    await answers(agent)


async def test_a_stream_that_is_read_to_its_end():
    agent = Agent(scripted("Hello there."))
    async with agent.stream_async("go") as stream:
        events = [event async for event in stream]
    assert isinstance(events[-1], RunEnded)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello there."
    assert stream.run.done


async def test_a_stream_that_nobody_reads_does_not_start():
    model = scripted()
    stream = Agent(model).stream_async("go")
    await stream.aclose()
    del stream
    assert model.requests == []


async def test_cancelling_the_task_that_reads_stops_the_run():
    agent, _ = stalled()
    streams = []

    async def read() -> None:
        streams.append(agent.stream_async("go"))
        async for _ in streams[0]:
            pass

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await read()
    run = streams[0].run
    assert run.done
    assert run._ended.result().receipt.cause.source == "task"


async def test_a_failure_is_raised_after_the_last_event():
    from quiesce.errors import ModelProtocolError
    from quiesce.models.scripted import Raw

    agent = Agent(scripted([Raw("garbage")]))
    seen = []
    with pytest.raises(ModelProtocolError):
        async for event in agent.stream_async("go"):
            seen.append(event)
    assert isinstance(seen[-1], RunEnded)
    assert seen[-1].stop_reason == "error"
    assert "str, which is not a delta" in seen[-1].error
