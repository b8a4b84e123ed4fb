"""What an undo is given: the arguments that the tool had, its defaults too, and what it returned."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable
from threading import Lock

import pytest
from pydantic import BaseModel, Field, PrivateAttr

from quiesce import Agent, RunResult, ToolContext, tool
from quiesce.errors import InvalidTool
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.receipt import Undone
from quiesce.run.handle import wait_for
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.promise("P4")


class Order(BaseModel):
    """An argument that has something else each time it is made."""

    id: str = Field(default_factory=lambda: uuid.uuid4().hex)


async def called_with(each: Tool, arguments: dict[str, object]) -> RunResult:
    return await Agent(ScriptedModel([Call(each.name, arguments)], "done"), tools=[each]).invoke_async("go")


async def test_an_argument_that_the_model_left_out_is_the_tools_default():
    taken_back: list[tuple[str, int, str]] = []

    @tool
    async def book(room: str, nights: int = 1) -> str:
        return "booked"

    @book.undo
    async def unbook(room: str, nights: int, result: str) -> None:
        taken_back.append((room, nights, result))

    result = await called_with(book, {"room": "blue"})
    assert [line.outcome for line in await result.undo()] == [Undone.UNDONE]
    assert taken_back == [("blue", 1, "booked")]


async def test_the_tools_default_counts_and_not_that_of_the_undo():
    taken_back: list[int] = []

    @tool
    def book(nights: int = 1) -> str:
        return "booked"

    @book.undo
    def unbook(nights: int = 7) -> None:
        taken_back.append(nights)

    await (await called_with(book, {})).undo()
    assert taken_back == [1]


async def test_the_very_arguments_that_the_tool_had():
    seen: list[str] = []

    @tool
    async def send(order: Order) -> str:
        seen.append(order.id)
        order.id = "something else"
        return "sent"

    @send.undo
    async def recall(order: Order) -> None:
        seen.append(order.id)

    await (await called_with(send, {"order": {}})).undo()
    assert seen[0] == seen[1]


class Guarded(BaseModel, arbitrary_types_allowed=True):
    """An argument that cannot be copied."""

    id: str
    _lock: Lock = PrivateAttr(default_factory=Lock)


async def test_an_argument_that_cannot_be_copied_is_given_as_it_is():
    seen: list[str] = []

    @tool
    async def send(order: Guarded) -> str:
        return "sent"

    @send.undo
    async def recall(order: Guarded) -> None:
        seen.append(order.id)

    result = await called_with(send, {"order": {"id": "one"}})
    await result.undo()
    assert seen == ["one"]


@pytest.mark.feature
def test_an_undo_that_wants_the_context_is_refused_when_it_is_registered():
    @tool
    async def book(room: str, ctx: ToolContext) -> str:
        return "booked"

    with pytest.raises(InvalidTool, match="wants 'ctx', which is none of the tool's arguments"):

        @book.undo
        async def unbook(room: str, ctx: ToolContext) -> None: ...


@pytest.mark.feature
def test_what_cannot_be_called_is_refused():
    @tool
    async def book(room: str) -> str:
        return "booked"

    with pytest.raises(InvalidTool, match="3 cannot undo tool 'book'"):
        book.undo(3)
    with pytest.raises(InvalidTool, match="3 is no tool"):
        Agent(ScriptedModel("hi"), tools=[book, 3])


async def test_a_plain_function_may_give_back_what_is_to_be_awaited():
    taken_back: list[str] = []

    async def unbook(room: str) -> None:
        await asyncio.sleep(0)
        taken_back.append(room)

    @tool
    async def book(room: str) -> str:
        return "booked"

    def later(room: str) -> Awaitable[None]:
        return unbook(room)

    book.undo(later)
    result = await called_with(book, {"room": "blue"})
    assert [line.outcome for line in await result.undo()] == [Undone.UNDONE]
    assert taken_back == ["blue"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError("own")])
@pytest.mark.parametrize("in_a_thread", [False, True])
async def test_what_ends_programs_is_only_the_failure_of_the_undo(error: BaseException, in_a_thread: bool):
    @tool
    async def book(room: str) -> str:
        return "booked"

    if in_a_thread:

        @book.undo
        def unbook(room: str) -> None:
            raise error

    else:

        @book.undo
        async def unbook_async(room: str) -> None:
            raise error

    (line,) = await (await called_with(book, {"room": "blue"})).undo()
    assert line.outcome is Undone.FAILED
    assert type(error).__name__ in line.detail


async def test_a_run_that_undoes_as_it_stops_fills_in_defaults_too():
    @tool
    async def book(room: str, nights: int = 1) -> str:
        return "booked"

    @book.undo
    async def unbook(room: str, nights: int) -> None: ...

    agent = Agent(ScriptedModel([Call("book", {"room": "blue"})], [Say("and "), Stall()], "Fresh."), tools=[book])
    run = agent.start("go")
    async for event in run:
        if type(event).__name__ == "TextDelta":
            run.cancel(undo=True)
    result = await wait_for(run)
    assert (result.stop_reason, result.error) == ("cancelled", None)
    assert [line.outcome for line in result.receipt.undo] == [Undone.UNDONE]
    assert (await agent.invoke_async("again")).text == "Fresh."
