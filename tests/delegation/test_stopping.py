"""Stopping a tree, or one run of it: it comes to rest from the leaves up, and every run says what became of it."""

from __future__ import annotations

import asyncio

import pytest

from quiesce import Agent, Limits, tool
from quiesce.conversation.validity import faults
from quiesce.events import ChildEvent, Event, RunEnded, StopRequested, TextDelta, ToolEnded, ToolStarted
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

from .kit import asks, until


@pytest.mark.promise("P4", "P8")
@pytest.mark.case("langgraph#8302")
def test_stopping_the_parent_stops_the_child_and_keeps_what_it_said():
    async def main():
        model = ScriptedModel([Say("Half of "), Stall()])
        child = Agent(model, name="sage")
        parent = Agent(ScriptedModel(asks("sage")), tools=[child.as_tool()])
        run = parent.start("go")
        await until(run, TextDelta, depth=1)
        run.cancel("enough")
        receipt = await run.stopped()
        assert model.open_streams == 0
        assert receipt.calls[0].outcome is Outcome.CANCELLED
        assert "Half of" in receipt.calls[0].detail
        (below,) = (await run).children
        assert below.stop_reason == "cancelled"
        assert below.receipt.cause is not None
        assert below.receipt.cause.source == "parent"
        assert below.receipt.cause.origin is not None
        assert below.receipt.cause.origin.source == "user"
        assert not faults(below.messages)
        assert not faults(parent.messages)
        assert receipt.still_running == ()

    asyncio.run(main())


@pytest.mark.promise("P4", "P8")
@pytest.mark.case("strands#3798")
def test_stopping_the_child_alone_is_the_parents_tool_result():
    async def main():
        child = Agent(ScriptedModel([Say("Half of "), Stall()]), name="sage")
        parent = Agent(ScriptedModel(asks("sage"), "I went on."), tools=[child.as_tool()])
        run = parent.start("go")
        await until(run, TextDelta, depth=1)
        (below,) = run.children
        below.cancel("not this one")
        result = await run
        assert result.stop_reason == "end_turn"
        assert result.text == "I went on."
        (line,) = result.receipt.calls
        assert line.outcome is Outcome.CANCELLED
        assert "not this one" in line.detail
        assert run.children == ()

    asyncio.run(main())


@pytest.mark.promise("P4", "P8")
def test_stopping_only_the_call_stops_the_child():
    async def main():
        model = ScriptedModel([Say("Half of "), Stall()])
        child = Agent(model, name="sage")
        parent = Agent(ScriptedModel(asks("sage"), "I went on."), tools=[child.as_tool()])
        run = parent.start("go")
        await until(run, TextDelta, depth=1)
        run.cancel_tool("call_1", "not this one")
        result = await run
        assert model.open_streams == 0
        assert result.text == "I went on."
        assert result.receipt.calls[0].outcome is Outcome.CANCELLED
        assert result.children[0].receipt.cause.source == "parent"
        assert "not this one" in result.receipt.calls[0].detail

    asyncio.run(main())


@pytest.mark.promise("P4", "P8")
def test_a_stop_that_becomes_more_urgent_still_waits_for_the_child():
    async def main():
        @tool(on_stop="finish", grace=30)
        async def careful() -> str:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)  # it takes a moment to put things away
            return "never"

        child = Agent(ScriptedModel([Say("Half of "), Call("careful")]), name="sage", tools=[careful])
        parent = Agent(ScriptedModel(asks("sage")), tools=[child.as_tool()])
        run = parent.start("go")
        async for event in run.events():
            if isinstance(event, ChildEvent) and isinstance(event.event, ToolStarted):
                run.cancel("stop")
            if isinstance(event, ChildEvent) and isinstance(event.event, StopRequested):
                run.cancel("at once", mode="kill")
        result = await run
        assert result.receipt.still_running == ()
        assert "Half of" in result.receipt.calls[0].detail
        assert result.children[0].receipt.calls[0].outcome is Outcome.CANCELLED

    asyncio.run(main())


@pytest.mark.promise("P5", "P8")
@pytest.mark.parametrize("mode", ["now", "kill"])
def test_ten_levels_come_to_rest_from_the_leaves_up(mode: str):
    async def main():
        leaf_model = ScriptedModel([Say("deep "), Stall()])
        agent = Agent(leaf_model, name="level0")
        for level in range(1, 11):
            agent = Agent(ScriptedModel(asks(f"level{level - 1}")), name=f"level{level}", tools=[agent.as_tool()])
        run = agent.start("dig")
        ends: list[int] = []

        def note(event: Event) -> None:
            depth = 0
            while isinstance(event, ChildEvent):
                event, depth = event.event, depth + 1
            if isinstance(event, RunEnded):
                ends.append(depth)

        run.tap(note)
        await until(run, TextDelta, depth=10)
        run.cancel("stop the tree", mode=mode)
        receipt = await run.stopped()
        assert ends == list(range(10, -1, -1))
        assert leaf_model.open_streams == 0
        assert receipt.still_running == ()
        assert receipt.usage.calls == 11
        result = await run
        for _ in range(10):
            assert not faults(result.messages)
            (result,) = result.children
        assert result.text == "deep "

    asyncio.run(main())


@pytest.mark.promise("P5", "P6")
def test_a_hundred_children_stop_together():
    async def main():
        models = [ScriptedModel([Say("word "), Stall()], name=f"m{number}") for number in range(100)]
        children = [Agent(model, name=f"child{number}") for number, model in enumerate(models)]
        parent = Agent(
            ScriptedModel(asks(*(child.name for child in children))),
            tools=[child.as_tool() for child in children],
            limits=Limits(turns=101),  # the turns of the children count too
        )
        run = parent.start("all of you")
        speaking: set[str] = set()
        async for event in run.events():
            if isinstance(event, ChildEvent) and isinstance(event.event, TextDelta):
                speaking.add(event.run_id)
                if len(speaking) == 100:
                    run.cancel("enough")
        result = await run
        assert [line.outcome for line in result.receipt.calls] == [Outcome.CANCELLED] * 100
        assert sum(model.open_streams for model in models) == 0
        assert len(result.children) == 100
        assert result.usage.calls == 101
        assert all(child.text == "word " and not faults(child.messages) for child in result.children)

    asyncio.run(main())


@pytest.mark.promise("P4", "P8")
def test_what_a_child_leaves_running_is_on_the_parents_receipt():
    async def main():
        release = asyncio.Event()

        @tool(on_stop="cancel", grace=0.05)
        async def stubborn() -> str:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return "at last"

        child = Agent(ScriptedModel([Call("stubborn")]), name="sage", tools=[stubborn])
        parent = Agent(ScriptedModel(asks("sage")), tools=[child.as_tool()])
        run = parent.start("go")
        async for event in run.events():
            if isinstance(event, ChildEvent) and type(event.event).__name__ == "ToolStarted":
                run.cancel()
        receipt = await run.stopped()
        assert any("stubborn" in name for name in receipt.still_running)
        assert receipt.calls[0].outcome is Outcome.ABANDONED
        (below,) = (await run).children
        release.set()
        while not below.receipt.late:
            await asyncio.sleep(0)
        assert below.receipt.late[0].ok

    asyncio.run(main())


@pytest.mark.promise("P7")
def test_the_tool_ended_event_of_a_stopped_child_comes_before_the_end():
    async def main():
        child = Agent(ScriptedModel([Say("a"), Stall()]), name="sage")
        parent = Agent(ScriptedModel(asks("sage")), tools=[child.as_tool()])
        run = parent.start("go")
        kinds: list[str] = []
        run.tap(lambda event: kinds.append(type(event).__name__))
        await until(run, TextDelta, depth=1)
        run.cancel()
        await run.stopped()
        assert kinds[-1] == RunEnded.__name__
        assert kinds.count(ToolEnded.__name__) == 1

    asyncio.run(main())
