"""Undo of a turn that waited for a person: what was done before the question is taken back with the rest."""

from __future__ import annotations

import msgspec
import pytest

from quiesce import Agent, Conversation, RunResult, Session, tool
from quiesce.events import ChildEvent, TextDelta
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.sessions import ConversationState
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.promise("P4")


class Hotel:
    """A room is booked, and then a person is asked about the price."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def tools(self) -> list[Tool]:
        @tool
        async def book(room: str) -> str:
            self.log.append(f"+{room}")
            return "booked"

        @book.undo
        async def unbook(room: str) -> None:
            self.log.append(f"-{room}")

        @tool(requires_approval=True)
        async def pay() -> str:
            return "paid"

        return [book, pay]

    def agent(self, *answers, **options) -> Agent:
        return Agent(ScriptedModel(*answers, then=[Say("Well, "), Stall()]), tools=self.tools(), **options)


TURN = [Call("book", {"room": "blue"}, id="b"), Call("pay", id="p")]


async def stop_when_it_speaks(agent: Agent, answers: dict[str, bool]) -> RunResult:
    run = agent.start_answer(answers)
    async for event in run:
        if isinstance(event.event if isinstance(event, ChildEvent) else event, TextDelta):
            run.cancel("no", undo=True)
    return await run


def told(result: RunResult) -> list[tuple[str, str]]:
    return [(line.call_id, str(line.outcome)) for line in result.receipt.undo]


async def test_a_stop_after_the_answer_undoes_what_was_done_before_the_question():
    hotel = Hotel()
    agent = hotel.agent(TURN)
    first = await agent.invoke_async("go")
    result = await stop_when_it_speaks(agent, {"p:approval": True})
    assert hotel.log == ["+blue", "-blue"]
    assert told(result) == [("b", "undone")]
    assert await first.undo() == ()


async def test_either_run_may_undo_it_and_only_one_does():
    hotel = Hotel()
    agent = hotel.agent(TURN)
    first = await agent.invoke_async("go")
    assert [line.call_id for line in await first.undo()] == ["b"]
    assert told(await stop_when_it_speaks(agent, {"p:approval": True})) == [("b", "undone")]  # one receipt for the task
    assert hotel.log == ["+blue", "-blue"]


async def test_through_two_questions():
    hotel = Hotel()
    agent = hotel.agent([*TURN, Call("pay", id="q")])
    await agent.invoke_async("go")
    assert (await agent.answer_async({"p:approval": True})).stop_reason == "interrupt"
    await stop_when_it_speaks(agent, {"q:approval": True})
    assert hotel.log == ["+blue", "-blue"]


async def test_of_a_child_that_asked():
    hotel = Hotel()
    clerk = hotel.agent(TURN, name="clerk")
    agent = Agent(ScriptedModel([Call("clerk", {"prompt": "Book."}, id="c")]), tools=[clerk])
    await agent.invoke_async("go")
    result = await stop_when_it_speaks(agent, {"c:p:approval": True})
    assert hotel.log == ["+blue", "-blue"]
    assert told(result) == [("b", "undone")]


def restored(asking: Agent, **changes) -> Conversation:
    """The conversation as another process reads it."""
    state = msgspec.structs.replace(asking.conversation.snapshot(), **changes)
    return Conversation.restore(msgspec.json.decode(msgspec.json.encode(state), type=ConversationState))


async def test_what_another_process_did_is_undone():
    hotel = Hotel()
    asking = hotel.agent(TURN)
    await asking.invoke_async("go")
    result = await stop_when_it_speaks(hotel.agent(conversation=restored(asking)), {"p:approval": True})
    assert hotel.log == ["+blue", "-blue"]
    assert told(result) == [("b", "undone")]


async def test_what_is_not_stored_is_not_undone_and_that_is_told():
    hotel = Hotel()
    asking = hotel.agent(TURN)
    await asking.invoke_async("go")
    conversation = restored(asking, values={})
    result = await stop_when_it_speaks(hotel.agent(conversation=conversation), {"p:approval": True})
    assert hotel.log == ["+blue"]
    assert told(result) == [("b", "not_undone")]
    assert "another process" in result.receipt.undo[0].detail


async def test_an_undo_of_a_run_that_waits_for_the_conversation_leaves_the_run_that_has_it_alone():
    """It opened the session a second time, under the run that had it: what that run did then was saved nowhere."""
    hotel = Hotel()
    turn = [*TURN, Call("pay", id="q")]
    agent = Agent(ScriptedModel(turn, "Paid."), tools=hotel.tools(), session="s", store=MemoryStore())
    await agent.invoke_async("Book.")
    first = agent.start_answer({"p:approval": True})
    second = agent.start_answer({"q:approval": True})  # the session is not open yet: it waits for the first
    second.cancel("no", undo=True)
    assert (await second.stopped()).undo == []
    result = await first
    assert result.receipt.saved
    assert hotel.log == ["+blue"]
    assert agent.session is not None
    stored = Session("s", agent.session.store)
    assert await stored.load() == agent.session.messages
    assert [each.id for each in stored.interrupts] == ["q:approval"]
    assert (await agent.answer_async({"q:approval": True})).text == "Paid."
