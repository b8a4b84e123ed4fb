"""Undo in a tree of runs: asked of a parent or of a child, done once, and told to both."""

from __future__ import annotations

import asyncio

import pytest

from quiesce import Agent, Run, RunResult, tool
from quiesce.events import ChildEvent, Event, TextDelta, ToolStarted
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.receipt import Undone

pytestmark = pytest.mark.promise("P4", "P8")


class Hotel:
    """Rooms that are booked by a child, and the parent that asks it to."""

    def __init__(self, *then, endless: bool = False) -> None:
        self.booked: list[str] = []

        @tool
        async def book(room: str) -> str:
            self.booked.append(room)
            if endless:
                await asyncio.Event().wait()
            return "booked"

        @book.undo
        async def unbook(room: str) -> None:
            self.booked.remove(room)

        calls = [Call("book", {"room": "blue"}, id="b1"), Call("book", {"room": "red"}, id="b2")]
        clerk = Agent(ScriptedModel(calls, *then), name="clerk", tools=[book])
        self.agent = Agent(ScriptedModel([Call("clerk", {"prompt": "Book."})], then="Well."), tools=[clerk])

    async def stop_child(self, kind: type[Event], **options) -> RunResult:
        run = self.agent.start("go")
        async for event in run:
            if isinstance(event, ChildEvent) and isinstance(event.event, kind):
                stop(run, **options)
        return await run


def stop(run: Run, **options) -> None:
    for child in run.children:
        child.cancel("no", **options)


def outcomes(result: RunResult) -> list[tuple[str, str]]:
    return [(line.call_id, str(line.outcome)) for line in result.receipt.undo]


async def test_a_child_that_is_stopped_with_undo_tells_its_parent():
    hotel = Hotel([Say("Booked. "), Stall()])
    result = await hotel.stop_child(TextDelta, undo=True)
    assert hotel.booked == []
    assert result.text == "Well."
    assert "(Undone since: book (b2), book (b1).)" in result.messages[2].results[0].text
    assert outcomes(result) == outcomes(result.children[0]) == [("b2", "undone"), ("b1", "undone")]
    assert await result.undo() == ()


async def test_what_the_parent_undoes_is_on_the_childs_receipt_too():
    hotel = Hotel("Booked.")
    result = await hotel.agent.invoke_async("go")
    receipts = await result.undo()
    assert result.receipt.undo == result.children[0].receipt.undo == list(receipts)


async def test_a_call_that_was_cut_is_told_once():
    hotel = Hotel(endless=True)
    result = await hotel.stop_child(ToolStarted, undo=True)
    assert outcomes(result) == outcomes(result.children[0])
    assert sorted(outcomes(result)) == [("b1", "not_undone"), ("b2", "not_undone")]
    assert await result.undo() == ()
    assert await result.children[0].undo() == ()
    assert sorted(hotel.booked) == ["blue", "red"]


async def test_each_who_asks_at_once_is_told_of_what_it_undid():
    hotel = Hotel("Booked.")
    result = await hotel.agent.invoke_async("go")
    passes = await asyncio.gather(result.undo(), result.children[0].undo(), result.undo())
    told = [line for each in passes for line in each]
    assert sorted(line.call_id for line in told) == ["b1", "b2"]
    assert {line.outcome for line in told} == {Undone.UNDONE}
    assert hotel.booked == []
