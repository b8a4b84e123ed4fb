"""Agents as tools: a call that is a run of its own, answered, billed and read with its parent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quiesce import Agent, ToolContext, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ModelProtocolError
from quiesce.events import ChildEvent, Event, RunEnded, TextDelta
from quiesce.models.scripted import Call, End, Fail, Say, ScriptedModel, Think, Used

from .kit import asks


@pytest.mark.promise("P6", "P8")
def test_a_child_answers_its_parent_and_is_on_the_bill():
    async def main():
        child = Agent(ScriptedModel([Say("It is 42."), Used(input=10, output=5)]), name="sage")
        parent = Agent(ScriptedModel([*asks("sage"), Used(input=20, output=7)], [Say("42!"), Used(input=30, output=2)]),
                       tools=[child.as_tool()])  # fmt: skip
        seen: list[Event] = []
        run = parent.start("What is it?")
        run.tap(seen.append)
        result = await run
        assert result.text == "42!"
        (tool_message,) = [m for m in result.messages if hasattr(m, "results")]
        assert tool_message.results[0].text == "It is 42."
        assert (result.usage.input.value, result.usage.output.value, result.usage.calls) == (60, 14, 3)
        (below,) = result.children
        assert below.text == "It is 42."
        assert below.call_id == tool_message.results[0].call_id
        assert not faults(below.messages)
        nested = [event for event in seen if isinstance(event, ChildEvent)]
        assert {event.run_id for event in nested} == {below.run_id}
        assert "".join(e.event.text for e in nested if isinstance(e.event, TextDelta)) == "It is 42."
        assert sum(isinstance(event, RunEnded) for event in seen) == 1
        assert sum(isinstance(event.event, RunEnded) for event in nested) == 1

    asyncio.run(main())


@pytest.mark.promise("P4", "P7")
def test_a_child_that_fails_is_a_tool_error():
    async def main():
        child = Agent(ScriptedModel([Fail(ModelProtocolError("the model broke"))]), name="sage")
        parent = Agent(ScriptedModel(asks("sage"), "Pity."), tools=[child.as_tool()])
        result = await parent.invoke_async("go")
        assert result.text == "Pity."
        (line,) = result.receipt.calls
        assert not line.ok
        assert "the model broke" in line.detail
        assert result.children[0].stop_reason == "error"

    asyncio.run(main())


@pytest.mark.promise("P4")
@pytest.mark.parametrize(
    ("said", "told"), [([Say("Half of")], "Half of\n(The answer ends"), ([Think("hm")], "(The answer ends")]
)
def test_an_answer_that_was_too_long_is_not_passed_off_as_whole(said: list[Any], told: str):
    async def main():
        child = Agent(ScriptedModel([*said, End("max_tokens")]), name="sage")
        result = await Agent(ScriptedModel(asks("sage"), "done"), tools=[child]).invoke_async("go")
        assert result.messages[2].results[0].text.startswith(told)
        assert not faults(result.messages)

    asyncio.run(main())


@pytest.mark.promise("P3")
def test_memory_keeps_one_conversation_for_all_calls():
    async def main():
        model = ScriptedModel("one", "two")
        parent = Agent(
            ScriptedModel(asks("sage", "sage"), "done"), tools=[Agent(model, name="sage").as_tool(memory=True)]
        )
        result = await parent.invoke_async("go")
        assert [line.ok for line in result.receipt.calls] == [True, True]
        assert "one" in str(model.requests[1].messages)

    asyncio.run(main())


@pytest.mark.promise("P8")
def test_a_tool_may_start_a_child_itself():
    async def main():
        helper = Agent(ScriptedModel("helped"), name="helper")

        @tool
        async def delegate(context: ToolContext) -> str:
            return (await helper.invoke_async("help", within=context, conversation=helper.conversation.branch())).text

        parent = Agent(ScriptedModel([Call("delegate")], "done"), tools=[delegate])
        result = await parent.invoke_async("go")
        assert [child.text for child in result.children] == ["helped"]

    asyncio.run(main())


@pytest.mark.promise("P2")
def test_events_of_a_child_make_room_for_slow_readers_of_the_parent():
    async def main():
        child = Agent(ScriptedModel([Say("x" * 5000, chunk=1)]), name="sage")
        parent = Agent(ScriptedModel(asks("sage"), "done"), tools=[child.as_tool()])
        run = parent.start("go")
        reader = run.events()
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(reader._buffer.events) < 2000
        async for _ in reader:
            pass
        assert (await run).text == "done"

    asyncio.run(main())
