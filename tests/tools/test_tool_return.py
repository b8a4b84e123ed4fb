"""`ToolReturn`: the model sees the content, the undo gets the data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tool_runs import stray_processes

from quiesce import Agent, Text, ToolReturn, tool
from quiesce.events import ToolProgress
from quiesce.messages import ToolMessage
from quiesce.testing import Call, ScriptedModel
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.promise("P3", "P4")


@dataclass(frozen=True)
class Booking:
    number: int


def book(seats: int) -> ToolReturn:
    return ToolReturn(f"Booked {seats}.", data=Booking(seats))


async def book_later(seats: int) -> ToolReturn:
    await asyncio.sleep(0)
    return ToolReturn([Text("Booked"), Text(str(seats))], data=Booking(seats))


async def book_in_steps(seats: int) -> AsyncIterator[object]:
    yield "looking"
    yield ToolReturn(f"Booked {seats}.", data=Booking(seats))


def _texts(agent: Agent) -> list[str]:
    return [part.text for message in agent.messages if isinstance(message, ToolMessage) for part in message.results]


@pytest.mark.parametrize(
    "made",
    [Tool(book), Tool(book, on_stop="kill", grace=1), Tool(book_later), Tool(book_in_steps)],
    ids=["thread", "process", "task", "generator"],
)
def test_the_undo_gets_the_data(made: Tool) -> None:
    cancelled: list[Booking] = []
    bookable = made.with_(name="reserve")

    @bookable.undo
    def cancel(result: Booking) -> None:
        cancelled.append(result)

    async def main() -> None:
        agent = Agent(ScriptedModel([Call("reserve", {"seats": 2})], "Done."), tools=[bookable])
        progress: list[object] = []
        run = agent.start("Book")
        async for event in run.events():
            if isinstance(event, ToolProgress):
                progress.append(event.progress)
        result = await run
        assert [text.replace("\n", " ").rstrip(".") for text in _texts(agent)] in (["Booked 2"], ["Booked2"])
        assert not any(isinstance(each, ToolReturn) for each in progress)
        await result.undo()
        assert cancelled == [Booking(2)]

    asyncio.run(main())
    assert stray_processes() == []


def test_without_an_undo_the_data_is_dropped() -> None:
    agent = Agent(ScriptedModel([Call("book", {"seats": 3})], "Done."), tools=[tool(book)])
    agent("Book")
    assert _texts(agent) == ["Booked 3."]
