"""Children that a tool started and did not wait for: they end with their parent, and none comes after it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from quiesce import Agent, Conversation, ToolContext, tool
from quiesce.events import ChildEvent, RunEnded, TextDelta
from quiesce.hooks import OnLateOutcome
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.testing import run_virtual
from quiesce.tools.tool import Tool


def sends(child: Agent) -> Tool:
    @tool
    async def send(context: ToolContext) -> str:
        """Start a child and do not wait for it."""
        child.start("go", within=context, conversation=Conversation())
        return "sent"

    return send


@tool(on_stop="finish", grace=20)
async def careful() -> str:
    """Put things away."""
    await asyncio.sleep(15)
    return "put away"


@pytest.mark.promise("P5", "P8")
async def test_a_child_that_nobody_waited_for_ends_with_a_parent_that_finished():
    model = ScriptedModel([Say("On my own. "), Stall()])
    child = Agent(model, name="scout")
    parent = Agent(ScriptedModel([Call("send")], "Done."), tools=[sends(child)])
    run = parent.start("go")
    ends = [event async for event in run if isinstance(getattr(event, "event", event), RunEnded)]
    result = await run
    assert result.stop_reason == "end_turn"
    assert (child.active_runs, model.open_streams) == ((), 0)
    assert [child.receipt.cause.reason for child in result.children] == ["The run above has ended"]
    assert isinstance(ends[0], ChildEvent)
    assert len(ends) == 2


@pytest.mark.promise("P5", "P8")
@pytest.mark.parametrize("mode", ["now", "kill"])
async def test_a_stop_waits_for_it_too(mode: str):
    model = ScriptedModel([Stall()])
    child = Agent(model, name="scout")
    parent = Agent(ScriptedModel([Call("send")], [Say("Well, "), Stall()]), tools=[sends(child)])
    run = parent.start("go")
    async for event in run:
        if isinstance(event, TextDelta):
            run.cancel("Esc", mode=mode)
    result = await run
    assert (child.active_runs, model.open_streams) == ((), 0)
    (below,) = result.children
    assert below.receipt.cause.origin.reason == "Esc"
    assert result.receipt.still_running == ()


@pytest.mark.promise("P3", "P4")
def test_it_gets_the_grace_of_its_tools():
    async def main():
        child = Agent(ScriptedModel([Call("careful")]), name="scout", tools=[careful])
        parent = Agent(ScriptedModel([Call("send")], then=[Say("Done.")]), tools=[sends(child)])
        result = await parent.invoke_async("go")
        assert result.children[0].receipt.calls[0].outcome is Outcome.COMPLETED
        assert result.receipt.still_running == ()

    run_virtual(main())


@pytest.mark.promise("P4", "P5")
@pytest.mark.leaves("tasks")
def test_one_whose_call_was_given_up_is_named():
    async def main():
        child = Agent(ScriptedModel([Call("careful")]), name="scout", tools=[careful])

        @tool(grace=1)
        async def ask(context: ToolContext) -> str:
            return (await child.invoke_async("go", within=context, conversation=Conversation())).text

        parent = Agent(ScriptedModel([Call("ask")]), tools=[ask])
        run = parent.start("go")
        await asyncio.sleep(1)
        run.cancel()
        receipt = await run.stopped()
        (below,) = child.active_runs
        assert receipt.latency < 5
        assert receipt.still_running == ("tool ask (call_1)", f"run {below.id} (scout)")
        assert (await below.stopped()).calls[0].outcome is Outcome.COMPLETED

    run_virtual(main())


@pytest.mark.promise("P6", "P8")
async def test_a_run_that_has_ended_gets_no_more_children():
    child = Agent(ScriptedModel(then="Late."), name="scout")
    over = asyncio.Event()
    tasks: list[asyncio.Task[str]] = []

    @tool
    async def send(context: ToolContext) -> str:
        async def later() -> str:
            await over.wait()
            return (await child.invoke_async("go", within=context, conversation=Conversation())).text

        tasks.append(asyncio.create_task(later()))
        return "sent"

    parent = Agent(ScriptedModel([Call("send")], "Done."), tools=[send])
    result = await parent.invoke_async("go")
    over.set()
    (outcome,) = await asyncio.gather(*tasks, return_exceptions=True)
    assert "has ended: it can have no more children" in str(outcome)
    assert result.usage.calls == 2


@pytest.mark.promise("P1", "P8")
@pytest.mark.parametrize("on_busy", ["refuse", "queue", "steer", "cancel_previous"])
async def test_a_child_does_not_wait_for_the_run_that_waits_for_it(on_busy: str):
    @tool
    async def again(context: ToolContext) -> str:
        """Prompt the same agent, in the conversation that this very run holds."""
        return (await agents[0].invoke_async("again", within=context)).text

    agents = [Agent(ScriptedModel([Call("again")], then="Done."), tools=[again], on_busy=on_busy)]
    result = await asyncio.wait_for(agents[0].invoke_async("go"), 10)
    assert result.text == "Done."
    assert "is using this conversation" in result.receipt.calls[0].detail


@pytest.mark.promise("P4", "P8")
async def test_a_late_outcome_below_is_on_every_receipt_that_named_it():
    gate, started = threading.Event(), threading.Event()
    told: list[tuple[str, str]] = []

    @tool(on_stop="abandon", grace=0)
    def slow() -> str:
        started.set()
        gate.wait()
        return "at last"

    def listens(name: str):
        def on_late(event: OnLateOutcome) -> None:
            told.append((name, event.outcome.detail))

        return on_late

    child = Agent(ScriptedModel([Call("slow")]), name="child", tools=[slow], hooks=[listens("child")])
    parent = Agent(ScriptedModel([Call("child", {"prompt": "x"})]), tools=[child], hooks=[listens("parent")])
    run = parent.start("go")
    await asyncio.to_thread(started.wait)
    run.cancel()
    result = await run
    assert result.receipt.still_running == ("tool slow (call_1)",)
    gate.set()
    while len(told) < 2:
        await asyncio.sleep(0.001)
    assert [late.detail for late in result.receipt.late] == ["at last"]
    assert result.children[0].receipt.late == result.receipt.late
    assert told == [("child", "at last"), ("parent", "at last")]


@pytest.mark.promise("P4", "P8")
async def test_a_late_outcome_of_a_child_that_was_stopped_alone_is_told_by_the_parent_that_goes_on():
    gate, started = threading.Event(), threading.Event()

    @tool(on_stop="abandon", grace=0)
    def slow() -> str:
        started.set()
        gate.wait()
        return "at last"

    child = Agent(ScriptedModel([Call("slow")]), name="child", tools=[slow])
    parent = Agent(ScriptedModel([Call("child", {"prompt": "x"})], [Say("Then "), Stall()]), tools=[child])
    run = parent.start("go")
    kinds: list[str] = []
    run.tap(lambda event: kinds.append(type(event).__name__))
    await asyncio.to_thread(started.wait)
    run.children[0].cancel()
    async for event in run:
        if isinstance(event, TextDelta):
            gate.set()
        if type(event).__name__ == "LateOutcomeRecorded":
            run.cancel()
    receipt = await run.stopped()
    assert kinds.count("LateOutcomeRecorded") == 1
    assert [late.detail for late in receipt.late] == ["at last"]
