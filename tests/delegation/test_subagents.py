"""Agents as tools: a child run lives and dies with its parent, and a tree comes to rest from the leaves up."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from quiesce import Agent, Limits, Price, ToolContext, handoff, tool
from quiesce.errors import ModelProtocolError
from quiesce.events import ChildEvent, Event, RunEnded, StopRequested, TextDelta, ToolEnded, ToolStarted
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, End, Fail, Say, ScriptedModel, Stall, Think, Used
from quiesce.transcript import faults

PRICE = Price(Decimal(1), Decimal(1))


def asks(*names: str) -> list[Call]:
    return [Call(name, {"prompt": f"do {number}"}) for number, name in enumerate(names)]


async def until(run, kind: type[Event], depth: int = 0) -> Event:
    """The first event of a kind, `depth` levels down."""
    async for outer in run.events():
        event, level = outer, 0
        while isinstance(event, ChildEvent):
            event, level = event.event, level + 1
        if level == depth and isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} at depth {depth}")


@pytest.mark.promise("P6", "P8")
def test_a_child_answers_its_parent_and_is_on_the_bill():
    async def main():
        child = Agent(ScriptedModel([Say("It is 42."), Used(input=10, output=5)]), name="sage")
        parent = Agent(ScriptedModel([*asks("sage"), Used(input=20, output=7)], [Say("42!"), Used(input=30, output=2)]),
                       tools=[child.as_tool()])  # fmt: skip
        seen: list[Event] = []
        run = parent.start("What is it?")
        run.tap(seen.append)
        result = await run.result()
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


@pytest.mark.promise("P1", "P4", "P8")
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
        (below,) = (await run.result()).children
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
        result = await run.result()
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
        result = await run.result()
        assert model.open_streams == 0
        assert result.text == "I went on."
        assert result.receipt.calls[0].outcome is Outcome.CANCELLED
        assert result.children[0].receipt.cause.source == "parent"
        assert "not this one" in result.receipt.calls[0].detail

    asyncio.run(main())


@pytest.mark.promise("P1", "P4", "P8")
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
        result = await run.result()
        assert result.receipt.still_running == ()
        assert "Half of" in result.receipt.calls[0].detail
        assert result.children[0].receipt.calls[0].outcome is Outcome.CANCELLED

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


@pytest.mark.promise("P1", "P5", "P8")
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
        result = await run.result()
        for _ in range(10):
            assert not faults(result.messages)
            (result,) = result.children
        assert result.text == "deep "

    asyncio.run(main())


@pytest.mark.promise("P1", "P5", "P6")
def test_a_hundred_children_stop_together():
    async def main():
        models = [ScriptedModel([Say("word "), Stall()], name=f"m{number}") for number in range(100)]
        children = [Agent(model, name=f"child{number}") for number, model in enumerate(models)]
        parent = Agent(
            ScriptedModel(asks(*(child.name for child in children))), tools=[child.as_tool() for child in children]
        )
        run = parent.start("all of you")
        speaking: set[str] = set()
        async for event in run.events():
            if isinstance(event, ChildEvent) and isinstance(event.event, TextDelta):
                speaking.add(event.run_id)
                if len(speaking) == 100:
                    run.cancel("enough")
        result = await run.result()
        assert [line.outcome for line in result.receipt.calls] == [Outcome.CANCELLED] * 100
        assert sum(model.open_streams for model in models) == 0
        assert len(result.children) == 100
        assert result.usage.calls == 101
        assert all(child.text == "word " and not faults(child.messages) for child in result.children)

    asyncio.run(main())


@pytest.mark.promise("P6", "P8")
def test_children_share_what_is_left_of_the_parents_budget():
    async def main():
        words = "word " * 400
        children = [Agent(ScriptedModel([Say(words, chunk=5)]), name=f"child{n}") for n in range(4)]
        parent = Agent(
            ScriptedModel(asks(*(child.name for child in children))),
            tools=[child.as_tool() for child in children],
            limits=Limits(output_tokens=500),
        )
        result = await parent.invoke_async("all of you")
        assert result.stop_reason == "limit"
        assert result.receipt.cause is not None
        assert result.receipt.cause.source == "budget"
        spent = sum(child.usage.output.value or 0 for child in result.children)
        assert spent < 600, "one child alone would have written about 500"
        assert {child.stop_reason for child in result.children} == {"cancelled"}

    asyncio.run(main())


def tired(name: str, turns: int, **options: Any) -> Agent:
    """An agent that calls a tool in each of so many turns, and then answers."""

    @tool
    async def step() -> str:
        """One step."""
        return "on"

    return Agent(ScriptedModel(*[[Call("step")]] * turns, then="done"), tools=[step], name=name, **options)


@pytest.mark.promise("P6", "P8")
@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(turns=6), "The limit of 6 turns is reached, with those of the runs below"),
        (Limits(tool_calls=5), "The limit of 5 tool calls is reached, with those of the runs below"),
    ],
)
def test_children_share_the_parents_turns_and_calls(limits: Limits, why: str):
    async def main():
        children = [tired("left", 3), tired("right", 3)]
        model = ScriptedModel(asks("left", "right"), then="Both.")
        parent = Agent(model, tools=children, limits=limits, name="parent")
        result = await parent.invoke_async("go")
        assert (result.stop_reason, result.receipt.cause.reason) == ("limit", why)
        assert sum(child.usage.calls for child in result.children) <= 5
        assert "limit" not in {child.stop_reason for child in result.children}
        assert not faults(result.messages)
        enough = Agent(ScriptedModel(asks("left", "right"), then="Both."), tools=[tired("left", 3), tired("right", 3)],
                       limits=Limits(turns=10, tool_calls=8))  # fmt: skip
        assert (await enough.invoke_async("go")).text == "Both."

    asyncio.run(main())


@pytest.mark.promise("P6", "P8")
def test_a_childs_own_turns_stop_only_the_child():
    async def main():
        tight = tired("short", 5, limits=Limits(turns=2))
        parent = Agent(ScriptedModel(asks("short"), "Well."), tools=[tight], limits=Limits(turns=9))
        result = await parent.invoke_async("go")
        assert result.text == "Well."
        assert result.children[0].stop_reason == "limit"
        assert result.children[0].receipt.cause.reason == "The limit of 2 turns is reached"

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_a_child_without_a_price_may_not_spend_a_parents_money():
    async def main():
        child = Agent(ScriptedModel("free?"), name="sage")
        parent = Agent(
            ScriptedModel(asks("sage"), "no.", price=PRICE), tools=[child.as_tool()], limits=Limits(cost="1")
        )
        result = await parent.invoke_async("go")
        assert "needs a price" in result.receipt.calls[0].detail

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_a_child_in_another_currency_may_not_spend_a_parents_money():
    async def main():
        euros = Price(Decimal(1), Decimal(1), currency="EUR")
        child = Agent(ScriptedModel(then="a lot", price=euros), name="sage")
        over = handoff(child, name="over")
        for name, said in (("sage", "is in USD, and scripted is paid in EUR"), ("over", "is in USD, and scripted")):
            model = ScriptedModel([Call(name, {"prompt": "x"} if name == "sage" else {})], "no.", price=PRICE)
            parent = Agent(model, tools=[child, over], limits=Limits(cost="1"))
            result = await parent.invoke_async("go")
            assert said in result.receipt.calls[0].detail
        unlimited = Agent(ScriptedModel(asks("sage"), "yes.", price=PRICE), tools=[child])
        assert (await unlimited.invoke_async("go")).cost is None, "there is no sum of two currencies"

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


@pytest.mark.promise("P1", "P8")
def test_a_parents_deadline_is_its_childrens():
    async def main():
        child = Agent(ScriptedModel([Stall()]), name="sage")
        parent = Agent(ScriptedModel(asks("sage")), tools=[child.as_tool()], timeout=0.05)
        result = await parent.invoke_async("go")
        (below,) = result.children
        assert below.receipt.cause is not None
        assert below.receipt.cause.origin is not None
        assert below.receipt.cause.origin.source == "deadline"

    asyncio.run(main())


@pytest.mark.promise("P3")
def test_memory_keeps_one_conversation_for_all_calls():
    async def main():
        child = Agent(ScriptedModel("one", "two"), name="sage")
        parent = Agent(ScriptedModel(asks("sage", "sage"), "done"), tools=[child.as_tool(memory=True)])
        result = await parent.invoke_async("go")
        assert [line.ok for line in result.receipt.calls] == [True, True]
        assert [m.text for m in child.messages if hasattr(m, "cut")] == ["one", "two"]
        assert child.conversation.holder is None

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
        (below,) = (await run.result()).children
        release.set()
        while not below.receipt.late:
            await asyncio.sleep(0)
        assert below.receipt.late[0].ok

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
        assert (await run.result()).text == "done"

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
