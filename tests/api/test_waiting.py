"""The three ways to wait for a run: `await run`, `await run.stopped()` and `run.wait()`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from quiesce import Agent, Run, RunError, tool
from quiesce.errors import ConfigurationError
from quiesce.models.scripted import Call, Pause, Say, ScriptedModel, Stall
from quiesce.testing import run_virtual

pytestmark = pytest.mark.promise("P1")


def stalled() -> Agent:
    return Agent(ScriptedModel([Say("The train"), Stall()], then=[Pause(5), Say("The bus.")]), on_busy="steer")


def test_cancelling_the_task_that_awaits_a_run_stops_the_run_and_waits_for_its_rest() -> None:
    cleaned_up: list[float] = []

    @tool(grace=10)
    async def slow() -> str:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(3)
            cleaned_up.append(asyncio.get_running_loop().time())
        return ""

    async def main() -> None:
        run = Agent(ScriptedModel([Call("slow")]), tools=[slow]).start("go")
        waiting = asyncio.ensure_future(run)
        await asyncio.sleep(1)
        waiting.cancel("the client left")
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert run.done
        assert cleaned_up == [4.0]
        assert (await run).receipt.cause.source == "caller"

    run_virtual(main())


def test_a_timeout_around_a_run_stops_it() -> None:
    async def main() -> None:
        run = stalled().start("go")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run, 2)
        assert run.done
        result = await run
        assert (result.stop_reason, result.receipt.cause.source, result.text) == ("cancelled", "caller", "The train")

    run_virtual(main())


def test_a_cancelled_wait_for_the_receipt_leaves_the_run_running() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Pause(5), Say("Done.")]))
        run = agent.start("go")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.stopped(), 2)
        assert (await run.stopped()).cause is None
        assert (await run).text == "Done."

    run_virtual(main())


async def _await(run: Run) -> None:
    await run


async def _block(run: Run) -> None:
    async with run:
        await asyncio.sleep(1000)


@pytest.mark.parametrize("wait", [_await, _block])
def test_the_handle_of_a_steered_run_does_not_own_it(wait: Callable[[Run], Awaitable[None]]) -> None:
    async def main() -> None:
        agent = stalled()
        run = agent.start("How?")
        await asyncio.sleep(1)
        joined = agent.start("By bus")
        assert joined == run
        assert joined.id == run.id
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(joined), 1)
        assert not run.done
        assert (await joined).text == "The bus."
        assert (await run).receipt.cause is None

    run_virtual(main())


def test_several_may_wait_and_the_first_that_is_cancelled_stops_the_run_for_all() -> None:
    async def main() -> None:
        run = stalled().start("go")
        first, second = asyncio.ensure_future(run), asyncio.ensure_future(run)
        await asyncio.sleep(1)
        first.cancel()
        assert (await second).stop_reason == "cancelled"
        with pytest.raises(asyncio.CancelledError):
            await first

    run_virtual(main())


def test_a_failure_is_raised_by_await_and_by_wait_but_not_by_stopped() -> None:
    async def main() -> None:
        run = Agent(ScriptedModel([ValueError("broken")])).start("go")
        assert (await run.stopped()).stop_reason == "error"
        with pytest.raises(RunError) as caught:
            await run
        assert caught.value.result is run.inspect().result

    run_virtual(main())
    run = Agent(ScriptedModel([ValueError("broken")])).start("go")
    with pytest.raises(RunError):
        run.wait(10)


def test_a_wait_in_a_thread_that_times_out_leaves_the_run_running() -> None:
    gate = threading.Event()

    @tool
    def hold() -> str:
        gate.wait()
        return "held"

    run = Agent(ScriptedModel([Call("hold")], then="Done."), tools=[hold]).start("go")
    with pytest.raises(TimeoutError):
        run.wait(0)
    gate.set()
    assert run.wait(30).text == "Done."


@pytest.mark.parametrize(
    "name", ["result", "outcome", "owned", "at_rest", "wait_for_rest", "wait_joined", "end_with_caller", "joined"]
)
def test_there_are_no_other_ways_to_wait(name: str) -> None:
    assert not hasattr(Run, name)


@pytest.mark.promise("P7")
def test_a_cancellation_while_a_block_that_was_left_waits_for_its_run_is_not_swallowed() -> None:
    @tool(grace=10)
    async def slow() -> str:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(5)
        return ""

    async def main() -> None:
        run = Agent(ScriptedModel([Call("slow")]), tools=[slow]).start("go")

        async def leave() -> None:
            async with run:
                await asyncio.sleep(1)

        leaving = asyncio.create_task(leave())
        await asyncio.sleep(2)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert run.done
        assert (await run).receipt.cause.source == "disconnect"

    run_virtual(main())


@pytest.mark.parametrize("timeout", ["5", object()])
def test_a_wait_for_what_is_no_time_leaves_the_run_running(timeout) -> None:
    run = stalled().start("go")
    with pytest.raises(ConfigurationError, match="makes no sense"):
        run.wait(timeout)
    assert run.cause is None
    run.cancel()
    assert run.wait(float("inf")).receipt.cause.source == "user"
