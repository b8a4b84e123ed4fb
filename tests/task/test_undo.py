"""The undo of a task: over all its runs, after a restart, and at most once whatever process asks."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quiesce import Agent, Session, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ConversationBusy, SessionBusy, StoreUnavailable
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.receipt import Undone

from .shop import Shop, approval

pytestmark = pytest.mark.promise("P4", "P9")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def order(agent: Agent, most: int) -> None:
    await agent.invoke_async("go")
    for number in range(most):
        await agent.answer_async(approval(number))


async def test_a_stop_takes_back_what_all_runs_of_the_task_did() -> None:
    shop = Shop()
    agent = shop.agent(9)
    await order(agent, 3)
    run = agent.start_answer(approval(3))
    async for event in run:
        if type(event).__name__ == "ToolEnded":
            run.cancel("no", undo=True)
    result = await run
    assert shop.log == ["+item0", "+item1", "+item2", "+item3", "-item3", "-item2", "-item1", "-item0"]
    assert [(each.call_id, each.outcome) for each in result.receipt.undo] == [
        (f"o{number}", Undone.UNDONE) for number in (3, 2, 1, 0)
    ]
    assert "Undone since: order (o3), order (o2), order (o1), order (o0)" in result.messages[-1].content[-1].text


async def test_a_result_takes_back_what_all_runs_of_the_task_did() -> None:
    shop = Shop()
    agent = shop.agent(2)
    await order(agent, 1)
    result = await agent.answer_async(approval(1))
    await result.undo()
    assert shop.log == ["+item0", "+item1", "-item1", "-item0"]
    assert "Undone since" in agent.messages[-1].content[-1].text
    assert not faults(agent.messages)


async def test_a_person_who_is_asked_may_take_everything_back(store: Path) -> None:
    shop = Shop()
    agent = shop.agent(9, session=Session("s", store))
    await order(agent, 2)
    receipts = await agent.undo_async()
    assert [each.call_id for each in receipts] == ["o1", "o0"]
    assert shop.log == ["+item0", "+item1", "-item1", "-item0"]
    assert agent.interrupts == ()
    assert (await agent.invoke_async("on")).stop_reason == "interrupt"


async def test_after_a_restart(store: Path) -> None:
    shop = Shop()
    await order(shop.agent(9, session=Session("s", store)), 2)
    later = shop.agent(0, session=Session("s", store))
    receipts = await later.undo_async()
    assert [(each.call_id, each.outcome) for each in receipts] == [("o1", Undone.UNDONE), ("o0", Undone.UNDONE)]
    assert shop.log == ["+item0", "+item1", "-item1", "-item0"]
    third = shop.agent(0, session=Session("s", store))
    assert await third.undo_async() == ()
    session = Session("s", store)
    await session.load()
    assert not session.interrupts
    assert "Undone since" in session.messages[-1].content[-1].text


async def test_a_run_after_a_restart_takes_back_what_was_done_before(store: Path) -> None:
    shop = Shop()
    await order(shop.agent(9, session=Session("s", store)), 2)
    first = shop.agent(9)
    model = ScriptedModel(then=[Say("Well, "), Stall()])
    run = Agent(model, tools=list(first.tools.values()), session=Session("s", store)).start_answer(approval(2))
    async for event in run:
        if type(event).__name__ == "TextDelta":
            run.cancel("no", undo=True)
    await run
    assert shop.log == ["+item0", "+item1", "+item2", "-item2", "-item1", "-item0"]


@pytest.mark.parametrize("steps", range(6))
async def test_a_stop_before_the_session_is_open_takes_back_what_was_done_before(store: Path, steps: int) -> None:
    shop = Shop()
    await order(shop.agent(9, session=Session("s", store)), 2)
    run = shop.agent(9, session=Session("s", store)).start_answer(approval(2))
    for _ in range(steps):
        await asyncio.sleep(0)
    run.cancel("no", undo=True)
    result = await run
    assert result.stop_reason == "cancelled"
    assert shop.log == ["+item0", "+item1", "-item1", "-item0"]
    assert [(each.call_id, each.outcome) for each in result.receipt.undo] == [
        ("o1", Undone.UNDONE),
        ("o0", Undone.UNDONE),
    ]
    after = Agent(ScriptedModel(then="Well."), session=Session("s", store))
    said = str((await after.invoke_async("and now?")).messages)
    assert said.count("Undone since: order (o1), order (o0)") == 1, "the model is told once"


async def test_a_new_prompt_that_is_stopped_before_the_session_is_open_takes_nothing_back(store: Path) -> None:
    shop = Shop()
    await order(shop.agent(9, session=Session("s", store)), 2)
    run = shop.agent(9, session=Session("s", store)).start("something else")
    run.cancel("no", undo=True)
    assert not (await run).receipt.undo
    assert shop.log == ["+item0", "+item1"]


async def test_what_the_tools_of_a_child_did_is_undone_after_a_restart(store: Path) -> None:
    shop = Shop()

    def team() -> Agent:
        clerk = shop.agent(1, name="clerk")
        calls = [Call("clerk", {"prompt": "Order."}, id="c")]
        return Agent(ScriptedModel(calls, "Done."), tools=[clerk], session=Session("s", store))

    agent = team()
    await agent.invoke_async("go")
    result = await agent.answer_async({"c:o0:approval": True})
    assert result.stop_reason == "end_turn"
    assert [each.outcome for each in await team().undo_async()] == [Undone.UNDONE]
    assert shop.log == ["+item0", "-item0"]


async def test_an_undo_that_was_cut_by_a_crash_is_not_made_again(store: Path) -> None:
    shop = Shop()
    agent = shop.agent(1, session=Session("s", store))
    await order(agent, 1)
    session = agent.session
    assert session is not None
    stored = msgspec.json.decode(session.values["undo.0"])
    lease = await session.open(asyncio.get_running_loop().create_future())
    await session.save(lease, {"undo.0": msgspec.json.encode({**stored, "claimed": True})})  # and then it died
    await asyncio.wrap_future(session.store.release(lease))
    later = shop.agent(0, session=Session("s", store))
    [told] = await later.undo_async()
    assert (told.call_id, told.outcome) == ("o0", Undone.UNKNOWN)
    assert "The process ended while it was being undone." in told.detail
    assert await shop.agent(0, session=Session("s", store)).undo_async() == ()
    assert shop.log == ["+item0"]
    result = await later.invoke_async("on")
    assert result.finished


async def test_the_model_is_told_of_an_undo_that_was_cut_by_a_crash(store: Path) -> None:
    shop = Shop()
    agent = shop.agent(2, session=Session("s", store))
    await order(agent, 2)
    session = agent.session
    assert session is not None
    lease = await session.open(asyncio.get_running_loop().create_future())
    for number in (0, 1):
        stored = msgspec.json.decode(session.values[f"undo.{number}"])
        receipt = {"call_id": "o1", "name": "order", "outcome": "undone"} if number else None
        claimed = msgspec.json.encode({**stored, "claimed": True, "receipt": receipt})
        await session.save(lease, {f"undo.{number}": claimed})
    await asyncio.wrap_future(session.store.release(lease))
    model = ScriptedModel(then="Yes.")
    await Agent(model, session=Session("s", store)).invoke_async("on")
    told = str(model.requests[0].messages)
    assert "Undone since: order (o1)" in told
    assert "Not known whether undone: order (o0)" in told


async def test_what_is_being_used_is_not_undone(store: Path) -> None:
    shop = Shop()
    await order(shop.agent(1, session=Session("s", store)), 1)
    run = Agent(ScriptedModel(then=[Stall()]), session=Session("s", store)).start("on")
    while run.phase.value != "calling":
        await asyncio.sleep(0)
    with pytest.raises((ConversationBusy, SessionBusy)):
        await shop.agent(0, session=Session("s", store)).undo_async()
    run.cancel()
    await run
    assert shop.log == ["+item0"]


async def test_a_new_prompt_forgets_the_effects_of_the_task_before(store: Path) -> None:
    shop = Shop()
    agent = shop.agent(1, session=Session("s", store))
    await order(agent, 1)
    await agent.invoke_async("something else")
    assert await shop.agent(0, session=Session("s", store)).undo_async() == ()
    assert shop.log == ["+item0"]


@dataclass
class Ticket:
    """What a tool returns, as the undo wants it."""

    number: int
    proof: bytes


@pytest.mark.parametrize("is_annotated", [True, False])
async def test_the_undo_gets_what_the_tool_returned_or_says_why_not(store: Path, is_annotated: bool) -> None:
    returned: list[Any] = []

    def agent() -> Agent:
        @tool
        async def buy() -> Ticket:
            return Ticket(7, b"\xff\x00")

        if is_annotated:

            @buy.undo
            async def give_back(result: Ticket) -> None:
                returned.append(result)

        else:

            @buy.undo
            async def give_back_anything(result) -> None:
                returned.append(result)

        return Agent(ScriptedModel([Call("buy", id="b")], "Bought."), tools=[buy], session=Session("s", store))

    await agent().invoke_async("go")
    [receipt] = await agent().undo_async()
    if is_annotated:
        assert (receipt.outcome, returned) == (Undone.UNDONE, [Ticket(7, b"\xff\x00")])
    else:
        assert (receipt.outcome, returned) == (Undone.FAILED, [])
        assert "no JSON form" in receipt.detail


async def test_an_agent_without_the_tool_says_so(store: Path) -> None:
    shop = Shop()
    await order(shop.agent(1, session=Session("s", store)), 1)
    [receipt] = await Agent(ScriptedModel(), session=Session("s", store)).undo_async()
    assert receipt.outcome is Undone.NOT_UNDONE
    assert [each.outcome for each in await shop.agent(0, session=Session("s", store)).undo_async()] == [Undone.UNDONE]
    assert shop.log == ["+item0", "-item0"]


async def test_an_undo_stands_although_the_store_fails_after_it(store: Path) -> None:
    class Failing(Session):
        async def save(self, lease: Any, values: Any) -> None:
            if any(b'"told":true' in value for value in values.values()):
                raise StoreUnavailable
            await super().save(lease, values)

    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    shop = Shop()
    await order(shop.agent(1, session=Session("s", store)), 1)
    [receipt] = await shop.agent(0, session=Failing("s", store)).undo_async()
    gc.collect()
    assert receipt.outcome is Undone.UNDONE
    assert shop.log == ["+item0", "-item0"]
    assert complaints == []


def test_undo_without_a_loop(store: Path) -> None:
    shop = Shop()
    agent = shop.agent(1, session=Session("s", store))
    agent("go")
    agent.answer(approval(0))
    assert [each.outcome for each in shop.agent(0).undo(session=Session("s", store))] == [Undone.UNDONE]
