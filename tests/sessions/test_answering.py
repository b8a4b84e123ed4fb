"""Answers of a person, with every store: those that come too late, and those whose run cannot begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from quiesce import Agent, Approve, Session, tool
from quiesce.errors import InvalidAnswer, StoreError, UnknownInterrupt
from quiesce.events import Event
from quiesce.hooks import AfterRun
from quiesce.run.agent_runs import FollowedRun
from quiesce.sessions.records import Lease, WriteBatch
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.telemetry import Telemetry
from quiesce.testing import Call, ScriptedModel, run_virtual

from .conftest import StoreMaker
from .faulty_store import Fate, FaultyStore

pytestmark = pytest.mark.promise("P9", "P4")


class Shop:
    """Two payments that wait for a person."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(requires_approval=True)
        async def pay(amount: int) -> str:
            self.paid.append(amount)
            return f"paid {amount}"

        self.pay = pay

    def agent(self, store: Any, *, asks: bool = False) -> Agent:
        calls = [Call("pay", {"amount": 1}), Call("pay", {"amount": 2})]
        model = ScriptedModel(calls, then="Done.") if asks else ScriptedModel(then="Done.")
        return Agent(model, tools=[self.pay], session=Session("s", store))


def test_wrong_edited_arguments_are_refused_and_stay_asked(new_store: StoreMaker) -> None:
    shop = Shop()
    assert len(shop.agent(new_store(), asks=True)("Go").interrupts) == 2
    later = shop.agent(new_store())
    with pytest.raises(InvalidAnswer, match="amount"):
        later.answer({"call_1:approval": Approve(arguments={"amount": "much"})})
    assert [each.id for each in later.interrupts] == ["call_1:approval", "call_2:approval"]
    assert [each.id for each in shop.agent(new_store()).interrupts] == ["call_1:approval", "call_2:approval"]
    assert later.answer({"call_1:approval": True, "call_2:approval": False}).stop_reason == "end_turn"
    assert shop.paid == [1]


def test_a_stale_answer_is_an_error_and_changes_nothing(new_store: StoreMaker) -> None:
    shop = Shop()
    agent, other = shop.agent(new_store(), asks=True), shop.agent(new_store())
    agent("Go")
    assert len(other.interrupts) == 2
    agent.answer({"call_1:approval": True})
    with pytest.raises(UnknownInterrupt):
        other.answer({"call_1:approval": True})  # answered in the meantime, elsewhere
    assert [each.id for each in other.interrupts] == ["call_2:approval"]
    agent.cancel()
    agent("Something else")
    with pytest.raises(UnknownInterrupt):
        other.answer({"call_2:approval": True})  # withdrawn by a stop
    assert other.interrupts == ()
    assert shop.paid == [1]


@pytest.mark.parametrize("fate", ["fails", "hangs"])
def test_an_answer_that_cannot_be_saved_is_not_used_up(fate: Fate) -> None:
    shop = Shop()

    async def main() -> None:
        store = FaultyStore(MemoryStore())
        agent = shop.agent(store, asks=True)
        await agent.invoke_async("Go")
        store.usual = fate
        with pytest.raises(StoreError):
            await agent.answer_async({"call_1:approval": True, "call_2:approval": False})
        assert shop.paid == []
        assert [each.id for each in agent.conversation.interrupts] == ["call_1:approval", "call_2:approval"]
        store.usual = "lands"
        result = await agent.answer_async({"call_1:approval": True, "call_2:approval": False})
        assert (result.stop_reason, shop.paid) == ("end_turn", [1])

    run_virtual(main())


@pytest.mark.promise("P4")
def test_an_answer_whose_run_cannot_be_started_is_not_used_up() -> None:
    shop = Shop()

    class Broken(Telemetry):
        """Telemetry that fails when the second run begins."""

        runs = 0

        def follow(self, run: FollowedRun) -> Callable[[Event], None]:
            self.runs += 1
            if self.runs == 2:
                raise RuntimeError("no exporter")
            return lambda _: None

    model = ScriptedModel([Call("pay", {"amount": 1})], then="Done.")
    agent = Agent(model, tools=[shop.pay], telemetry=Broken())
    (asked,) = agent("Go").interrupts
    with pytest.raises(RuntimeError, match="no exporter"):
        agent.answer({asked.id: True})
    assert agent.interrupts == (asked,)
    assert agent.answer({asked.id: True}).stop_reason == "end_turn"
    assert shop.paid == [1]


@pytest.mark.promise("P3", "P4")
def test_a_stop_before_the_session_is_open_says_that_nothing_is_saved() -> None:
    async def main() -> None:
        seen: set[tuple[bool | None, bool]] = set()
        for steps in range(12):
            agent = Agent(ScriptedModel(then="Yes."), session=Session("s", MemoryStore()))
            run = agent.start("Hello")
            for _ in range(steps):
                await asyncio.sleep(0)
            run.cancel()
            result = await run
            is_sent = bool(result.messages)
            assert [each.text for each in result.unsent] == ([] if is_sent else ["Hello"])
            assert result.receipt.saved is not None, "the conversation has a store"
            assert result.receipt.saved or "The prompt is in result.unsent" in result.receipt.unsaved
            seen.add((result.receipt.saved, is_sent))
        # Never a prompt that was sent and is not saved.
        assert seen == {(False, False), (True, False), (True, True)}

    asyncio.run(main())


async def test_the_last_hooks_find_the_answer_in_the_store(new_store: StoreMaker) -> None:
    """What comes before them is saved by then; only the end of the run is not."""
    found: list[str] = []
    store = new_store()

    async def look(event: AfterRun) -> None:
        session = Session("s", store)
        await session.load()
        found.append(session.messages[-1].text)

    agent = Agent(ScriptedModel("Yes."), session=Session("s", store), hooks=[look])
    assert (await agent.invoke_async("Go")).error is None
    assert found == ["Yes."]


class HangsAtTheEnd(FaultyStore):
    """A store that does not answer the write with which a run ends."""

    at_end = False

    def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
        if batch.end is not None:
            self.at_end, self.usual = True, "hangs"
        return super().write(lease, batch)


async def test_a_cancellation_of_the_runs_own_task_while_its_end_is_saved_is_passed_on() -> None:
    store = HangsAtTheEnd(MemoryStore())
    run = Agent(ScriptedModel("Yes."), session=Session("s", store)).start("Go")
    while not store.at_end:
        await asyncio.sleep(0)
    run._task.cancel()
    await asyncio.wait((run._task,))
    assert run._task.cancelled()
    assert run.done
