"""Stopping an undo: it says how far it came, and what it had not begun can be undone later."""

from __future__ import annotations

import asyncio

import pytest

from quiesce import Agent, CancellationToken, ToolContext, tool
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.receipt import Undone

from .world import World, undone

pytestmark = pytest.mark.promise("P4")


def test_stopping_the_undo_says_how_far_it_came():
    async def main():
        world = World()
        token, entered = CancellationToken(), asyncio.Event()

        @world.tools[3].undo
        async def slow(x: int) -> None:
            entered.set()
            await asyncio.Event().wait()

        result = await world.agent("made").invoke_async("go")
        undoing = asyncio.create_task(result.undo(token))
        await entered.wait()
        token.cancel("enough")
        outcomes = {receipt.name: receipt.outcome for receipt in await undoing}
        assert outcomes == {
            "make4": Undone.UNDONE, "make3": Undone.UNKNOWN, "make2": Undone.NOT_UNDONE,
            "make1": Undone.NOT_UNDONE, "make0": Undone.NOT_UNDONE}  # fmt: skip
        rest = await result.undo()
        assert [receipt.name for receipt in rest] == ["make2", "make1", "make0"]
        assert undone(world.log) == ["4:4", "2:2", "1:1", "0:0"]

    asyncio.run(main())


@pytest.mark.promise("P7")
def test_cancelling_the_task_that_waits_stops_the_undo_and_goes_on():
    async def main():
        world = World()
        entered = asyncio.Event()

        @world.tools[3].undo
        async def slow(x: int) -> None:
            entered.set()
            await asyncio.Event().wait()

        result = await world.agent("made").invoke_async("go")
        undoing = asyncio.create_task(result.undo())
        await entered.wait()
        undoing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await undoing
        assert [receipt.outcome for receipt in result.receipt.undo[:2]] == [Undone.UNDONE, Undone.UNKNOWN]
        assert len(await result.undo()) == 3

    asyncio.run(main())


@pytest.mark.parametrize("how", ["kill", "undo=False"])
def test_a_run_stops_undoing_when_told_to(how: str):
    async def main():
        world = World()
        entered = asyncio.Event()

        @world.tools[4].undo
        async def slow(x: int) -> None:
            entered.set()
            await asyncio.Event().wait()

        run = world.agent([Say("and "), Stall()]).start("go")
        async for event in run:
            if type(event).__name__ == "TextDelta":
                run.cancel(undo=True)
                await entered.wait()
                run.cancel(mode="kill") if how == "kill" else run.cancel(undo=False)
        receipt = await run.stopped()
        assert [line.outcome for line in receipt.undo] == [Undone.UNKNOWN, *[Undone.NOT_UNDONE] * 4]
        assert undone(world.log) == []

    asyncio.run(main())


@pytest.mark.promise("P7")
def test_a_cancellation_from_outside_while_a_run_undoes_is_passed_on():
    async def main():
        world = World()
        entered = asyncio.Event()

        @world.tools[4].undo
        async def slow(x: int) -> None:
            entered.set()
            await asyncio.Event().wait()

        run = world.agent([Say("and "), Stall()]).start("go")
        (task,) = (task for task in asyncio.all_tasks() if run.id in task.get_name())
        async for event in run:
            if type(event).__name__ == "TextDelta":
                run.cancel(undo=True)
                await entered.wait()
                task.cancel()
        receipt = await run.stopped()
        await asyncio.wait((task,))
        assert task.cancelled()
        assert receipt.undo[0].outcome is Undone.UNKNOWN

    asyncio.run(main())


@pytest.mark.promise("P5")
def test_background_processes_have_ended_before_anything_is_undone():
    async def main():
        processes, seen = [], []

        @tool
        async def serve(ctx: ToolContext) -> str:
            processes.append(await ctx.processes.start(["cat"]))
            return "serving"

        @serve.undo
        async def withdraw() -> None:
            seen.extend(process.status for process in processes)

        run = Agent(ScriptedModel([Call("serve")], [Say("and "), Stall()]), tools=[serve]).start("go")
        async for event in run:
            if type(event).__name__ == "TextDelta":
                run.cancel(undo=True)
        await run
        assert len(seen) == 1
        assert seen != ["running"]

    asyncio.run(main())


def test_an_undo_that_does_not_end_is_given_up():
    async def main():
        world = World()

        @world.tools[4].undo(timeout=0.02)
        async def endless(x: int) -> None:
            await asyncio.Event().wait()

        result = await world.agent("made").invoke_async("go")
        first, *others = await result.undo()
        assert first.outcome is Undone.UNKNOWN
        assert "within 0.02 s" in first.detail
        assert {other.outcome for other in others} == {Undone.UNDONE}

    asyncio.run(main())
