"""Answers that are given one by one, while calls that were answered before are running."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from quiesce import Agent, Approve, Conversation, ConversationState, Deny, Session, tool
from quiesce.conversation.validity import faults
from quiesce.errors import InvalidAnswer, UnknownInterrupt
from quiesce.messages import Outcome, ToolMessage
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.testing import Call, ScriptedModel

from .kit import main
from .shop import results

pytestmark = pytest.mark.promise("P4", "P3")


class Yard:
    """A tool that needs a yes and waits for a gate, which each call has one of; and a log."""

    def __init__(self) -> None:
        self.gates: dict[int, asyncio.Event] = {}
        self.began: list[int] = []
        self.ended: list[int] = []
        self.has_begun: dict[int, asyncio.Event] = {}

    def tools(self) -> list[Any]:
        @tool(requires_approval=True)
        async def build(number: int) -> str:
            self.began.append(number)
            self.event(self.has_begun, number).set()
            await self.event(self.gates, number).wait()
            self.ended.append(number)
            return f"built {number}"

        @tool
        async def look() -> str:
            self.event(self.has_begun, 0).set()
            await self.event(self.gates, 0).wait()
            return "seen"

        return [build, look]

    def event(self, events: dict[int, asyncio.Event], number: int) -> asyncio.Event:
        return events.setdefault(number, asyncio.Event())

    async def until_begun(self, number: int) -> None:
        await self.event(self.has_begun, number).wait()

    def open(self, *numbers: int) -> None:
        for each in numbers:
            self.event(self.gates, each).set()


def yard(*numbers: int, look: bool = False, **options: Any) -> tuple[Agent, Yard]:
    made = Yard()
    calls = [Call("build", {"number": each}) for each in numbers] + [Call("look")] * look
    return Agent(ScriptedModel(calls, then="Done."), tools=made.tools(), **options), made


@pytest.mark.parametrize("stored", [False, True])
def test_a_second_answer_goes_to_the_turn_that_runs(stored: bool) -> None:
    async def check() -> None:
        options = {"session": Session("s", MemoryStore())} if stored else {}
        agent, made = yard(1, 2, 3, **options)
        await agent.invoke_async("Go")
        first = agent.start_answer({"call_1:approval": True})
        await made.until_begun(1)
        assert [each.id for each in agent.conversation.interrupts] == ["call_2:approval", "call_3:approval"]
        second = agent.start_answer({"call_2:approval": True})
        assert second == first, "the answer is taken by the run that executes the turn"
        await made.until_begun(2)
        assert (made.began, made.ended) == ([1, 2], [])
        agent.start_answer({"call_3:approval": Deny("no more")})
        assert agent.conversation.interrupts == ()
        made.open(1, 2)
        result = await first
        assert (result.stop_reason, result.text) == ("end_turn", "Done.")
        assert [results(result)[f"call_{n}"].text for n in (1, 2)] == ["built 1", "built 2"]
        assert "no more" in results(result)["call_3"].text
        assert faults(result.messages) == ()

    asyncio.run(check())


@main
async def test_one_answer_says_what_is_still_asked() -> None:
    agent, made = yard(1, 2)
    made.open(1, 2)
    await agent.invoke_async("Go")
    result = await agent.answer_async({"call_1:approval": True})
    assert result.stop_reason == "interrupt"
    assert [each.id for each in result.interrupts] == ["call_2:approval"]
    assert made.ended == [1]
    assert (await agent.answer_async({"call_2:approval": True})).stop_reason == "end_turn"


@main
async def test_an_approval_is_given_while_other_tools_of_the_first_run_go_on() -> None:
    agent, made = yard(1, look=True)
    run = agent.start("Go")
    await made.until_begun(0)
    assert [each.id for each in run.interrupts] == ["call_1:approval"]
    agent.start_answer({"call_1:approval": True})
    await made.until_begun(1)
    made.open(0, 1)
    assert (await run).stop_reason == "end_turn"
    assert made.ended == [1]


@main
async def test_wrong_and_stale_answers_meanwhile_change_nothing() -> None:
    agent, made = yard(1, 2)
    await agent.invoke_async("Go")
    run = agent.start_answer({"call_1:approval": True})
    await made.until_begun(1)
    with pytest.raises(UnknownInterrupt):
        agent.start_answer({"call_1:approval": True})
    with pytest.raises(InvalidAnswer):
        agent.start_answer({"call_2:approval": Approve(arguments={"number": "many"})})
    with pytest.raises(InvalidAnswer):
        agent.start_answer({"call_2:approval": "perhaps"})
    assert [each.id for each in run.interrupts] == ["call_2:approval"]
    agent.start_answer({"call_2:approval": Approve(arguments={"number": 7})})
    await made.until_begun(7)
    with pytest.raises(UnknownInterrupt):
        agent.start_answer({"call_2:approval": True})  # nothing is asked any more, and the run goes on
    made.open(1, 7)
    assert (await run).stop_reason == "end_turn"
    assert made.ended == [1, 7]


@main
async def test_sequential_tools_wait_for_their_turn() -> None:
    agent, made = yard(1, 2, 3, tool_execution="sequential")
    await agent.invoke_async("Go")
    assert [each.id for each in agent.interrupts] == ["call_1:approval"]
    run = agent.start_answer({"call_1:approval": True})
    await made.until_begun(1)
    made.open(1, 2, 3)
    result = await run
    assert [each.id for each in result.interrupts] == ["call_2:approval"]
    assert (await agent.answer_async({"call_2:approval": True})).interrupts[0].id == "call_3:approval"


def test_from_another_event_loop_the_answer_waits_for_the_run() -> None:
    """The run is in the loop of the test, the second answer comes from a thread: no 409, and nothing is lost."""

    async def check() -> None:
        agent, made = yard(1, 2)
        await agent.invoke_async("Go")
        run = agent.start_answer({"call_1:approval": True})
        await made.until_begun(1)
        queued = asyncio.Event()
        loop, lock = asyncio.get_running_loop(), agent.conversation

        def answer() -> Any:
            other = agent.start_answer({"call_2:approval": Deny()})
            loop.call_soon_threadsafe(queued.set)
            return other.wait()

        answering = asyncio.create_task(asyncio.to_thread(answer))
        await queued.wait()
        assert len(lock.queued) == 1
        made.open(1)
        assert (await run).stop_reason == "interrupt"
        assert (await answering).stop_reason == "end_turn"
        assert made.ended == [1]

    asyncio.run(check())


@main
async def test_a_stop_withdraws_what_is_still_asked() -> None:
    agent, made = yard(1, 2)
    await agent.invoke_async("Go")
    run = agent.start_answer({"call_1:approval": True})
    await made.until_begun(1)
    run.cancel()
    assert run.interrupts == ()
    receipt = await run.stopped()
    assert [each.outcome for each in receipt.calls] == [Outcome.CANCELLED, Outcome.NEVER_STARTED]
    with pytest.raises(UnknownInterrupt):
        await agent.answer_async({"call_2:approval": True})
    assert made.began == [1]


# --- After a restart --------------------------------------------------------------------------------------------------


@pytest.mark.promise("P9")
def test_what_was_not_answered_is_still_asked_after_a_crash() -> None:
    async def check() -> None:
        store = MemoryStore()
        agent, made = yard(1, 2, session=Session("s", store))
        await agent.invoke_async("Go")
        run = agent.start_answer({"call_1:approval": True})
        await made.until_begun(1)
        snapshot = msgspec.json.encode(agent.conversation.snapshot())
        restored = Conversation.restore(msgspec.json.decode(snapshot, type=ConversationState))
        assert [each.id for each in restored.interrupts] == ["call_2:approval"]
        later = Agent(ScriptedModel(then="Back."), tools=Yard().tools(), conversation=restored)
        result = await later.answer_async({"call_2:approval": False})
        (answered,) = (each for each in result.messages if isinstance(each, ToolMessage))
        assert [each.outcome for each in answered.results] == [Outcome.UNKNOWN, Outcome.NEVER_STARTED]
        assert faults(result.messages) == ()
        run.cancel()
        await run.stopped()

    asyncio.run(check())
