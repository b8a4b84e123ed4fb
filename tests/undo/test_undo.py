"""Undo: what completed is taken back, last one first, each at most once, and every outcome is told."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from quiesce import Agent, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ConfigurationError, InvalidTool
from quiesce.events import ToolEnded
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.receipt import Undone
from quiesce.run.handle import state_of, wait_for
from quiesce.tools.tool_return import ToolReturn

from .world import World, done, undone

pytestmark = pytest.mark.promise("P4")


def test_a_finished_run_can_be_undone_once():
    async def main():
        world = World()
        result = await world.agent("all made").invoke_async("make them")
        receipts = await result.undo()
        assert [receipt.outcome for receipt in receipts] == [Undone.UNDONE] * 5
        assert undone(world.log) == done(world.log)[::-1]
        assert await result.undo() == ()
        assert len(undone(world.log)) == 5
        assert result.receipt.undo == list(receipts)
        assert "undone" in str(result.receipt)

    asyncio.run(main())


def test_undo_without_an_event_loop():
    world = World()
    result = world.agent("all made")("make them")
    assert [receipt.outcome for receipt in result.undo_sync()] == [Undone.UNDONE] * 5
    assert result.undo_sync() == ()


def test_a_stop_with_undo_takes_back_what_was_done_and_tells_the_model():
    async def main():
        world = World()
        agent = world.agent([Say("and "), Stall()], "Fresh.")
        run = agent.start("make them")
        async for event in run:
            if type(event).__name__ == "TextDelta":
                run.cancel("changed my mind", undo=True)
        result = await run
        assert undone(world.log) == done(world.log)[::-1] == ["4:4", "3:3", "2:2", "1:1", "0:0"]
        note = agent.messages[-1].content[-1].text
        assert "Undone since: make4" in note
        assert not faults(agent.messages)
        assert await result.undo() == ()
        assert (await agent.invoke_async("again")).text == "Fresh."

    asyncio.run(main())


def test_a_stop_without_undo_takes_nothing_back():
    async def main():
        world = World()
        run = world.agent([Say("and "), Stall()]).start("go")
        async for event in run:
            if type(event).__name__ == "TextDelta":
                run.cancel()
        result = await run
        assert undone(world.log) == []
        assert not result.receipt.undo
        assert len(await result.undo()) == 5

    asyncio.run(main())


def test_a_stop_that_comes_too_late_undoes_nothing():
    async def main():
        world = World()
        run = world.agent("all made").start("make them")
        await run
        assert run.cancel(undo=True) is False
        assert undone(world.log) == []

    asyncio.run(main())


def test_undo_reaches_down_the_tree():
    async def main():
        world = World()
        child = world.agent("child made", name="maker")
        ask = Call("maker", {"prompt": "make"})
        parent = Agent(ScriptedModel([ask], [Say("and "), Stall()]), tools=[child.as_tool()])
        run = parent.start("go")
        async for event in run:
            if type(event).__name__ == "TextDelta":
                run.cancel(undo=True)
        result = await run
        assert undone(world.log) == done(world.log)[::-1]
        assert len(undone(world.log)) == 5
        assert await result.children[0].undo() == ()

    asyncio.run(main())


def test_a_failing_undo_is_told_and_the_others_go_on():
    async def main():
        world = World()

        @world.tools[2].undo
        async def broken(x: int) -> None:
            raise OSError("the disk is gone")

        result = await world.agent("made").invoke_async("go")
        outcomes = {receipt.name: receipt for receipt in await result.undo()}
        assert outcomes["make2"].outcome is Undone.FAILED
        assert "the disk is gone" in outcomes["make2"].detail
        assert undone(world.log) == ["4:4", "3:3", "1:1", "0:0"]
        assert await result.undo() == (), "a failed undo is not tried again: it may have done half"

    asyncio.run(main())


def test_a_call_that_was_cut_is_not_undone_and_that_is_told():
    async def main():
        log: list[str] = []

        @tool
        async def make() -> None:
            await asyncio.Event().wait()

        @make.undo
        def unmake() -> None:
            log.append("undone")

        run = Agent(ScriptedModel([Call("make")]), tools=[make]).start("go")
        async for event in run:
            if type(event).__name__ == "ToolStarted":
                run.cancel(undo=True)
        receipt = await run.stopped()
        assert receipt.calls[0].outcome is Outcome.CANCELLED
        (line,) = receipt.undo
        assert line.outcome is Undone.NOT_UNDONE
        assert log == []

    asyncio.run(main())


def test_an_abandoned_call_that_completes_later_can_be_undone_then():
    async def main():
        log: list[str] = []
        gate, started = threading.Event(), threading.Event()

        @tool(on_stop="abandon", grace=0)
        def make() -> str:
            started.set()
            gate.wait()
            log.append("+")
            return "made"

        @make.undo
        def unmake(result: str) -> None:
            log.append("-")

        run = Agent(ScriptedModel([Call("make")]), tools=[make]).start("go")
        await asyncio.to_thread(started.wait)
        run.cancel(undo=True)
        result = await run
        assert [line.outcome for line in result.receipt.undo] == [Undone.NOT_UNDONE]
        gate.set()
        while not result.receipt.late:
            await asyncio.sleep(0.001)
        assert [line.outcome for line in await result.undo()] == [Undone.UNDONE]
        assert log == ["+", "-"]

    asyncio.run(main())


def test_a_thread_that_ends_as_it_is_given_up_has_one_effect():
    """The thread has ended, the loop has not heard of it, and the call is given up in that instant."""

    async def main():
        world = World()
        run = Agent(ScriptedModel([Call("make1", {"x": 1})], "made"), tools=world.tools).start("go")
        while not (state_of(run).turn.view.batch and state_of(run).turn.view.batch.calls[0].stage.value == "running"):
            await asyncio.sleep(0)
        record = state_of(run).turn.view.batch.calls[0]
        while not done(world.log) or any(thread.name.startswith("quiesce-make1") for thread in threading.enumerate()):
            time.sleep(0.001)  # the loop stands still meanwhile
        record.abandon()
        result = await run
        assert result.receipt.calls[0].outcome is Outcome.COMPLETED
        assert len(await result.undo()) == 1
        assert undone(world.log) == ["1:1"]

    asyncio.run(main())


def test_many_who_ask_at_once_undo_each_call_once():
    async def main():
        world = World()
        result = await world.agent("made").invoke_async("go")
        passes = await asyncio.gather(*(result.undo() for _ in range(8)))
        assert sorted(undone(world.log)) == sorted(done(world.log))
        assert sum(len(each) for each in passes) == 5
        assert len([line for line in result.receipt.undo if line.outcome is Undone.UNDONE]) == 5

    asyncio.run(main())


@pytest.mark.feature
def test_an_undo_may_only_take_what_there_is():
    @tool
    def make(x: int) -> str:
        return str(x)

    with pytest.raises(InvalidTool, match="none of the tool's arguments"):

        @make.undo
        def unmake(y: int) -> None: ...


def test_no_undo_after_a_failure_unless_asked_for():
    async def main():
        world = World()
        agent = world.agent()  # the script ends: the run fails
        run = agent.start("go")
        ended = 0
        async for event in run:
            ended += isinstance(event, ToolEnded)
        result = await wait_for(run)
        assert result.error is not None
        assert undone(world.log) == []
        assert len(await result.undo()) == 5

    asyncio.run(main())


@pytest.mark.parametrize("annotation", ["time.Missing", "not a type"])
@pytest.mark.promise("P3")
def test_an_annotation_that_cannot_be_read_does_not_cost_the_result(annotation: str) -> None:
    def forget(result: object) -> None: ...

    forget.__annotations__["result"] = annotation
    made = tool(name="make")(lambda: "made")
    made.undo(forget)
    result = Agent(ScriptedModel([Call("make")], "Done."), tools=[made])("Go")
    assert result.messages[2].results[0].text == "made"


@pytest.mark.promise("P3")
def test_data_of_an_odd_type_does_not_cost_the_result() -> None:
    class Odd:
        def __getattr__(self, name: str) -> object:
            raise KeyError(name)

    made = tool(name="make")(lambda: ToolReturn("made", data=Odd()))
    made.undo(lambda result: None)
    result = Agent(ScriptedModel([Call("make")], "Done."), tools=[made])("Go")
    assert result.messages[2].results[0].text == "made"
    assert [each.outcome for each in result.undo_sync()] == [Undone.UNDONE]


@pytest.mark.parametrize("timeout", ["5", None, True, 0, float("nan")])
def test_an_undo_timeout_that_is_no_time_is_refused(timeout: object) -> None:
    with pytest.raises(ConfigurationError, match="undo timeout"):
        tool(name="make")(lambda: "made").undo(timeout=timeout)(lambda: None)
