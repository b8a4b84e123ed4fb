"""The record of who has answered what, and approvals that a hook gives in advance."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quiesce import Agent, Approve, BeforeApproval, Deny, InterruptAnswered, InterruptRaised, tool
from quiesce.errors import InvalidAnswer
from quiesce.sessions import Session, resolve_store
from quiesce.testing import Call, ScriptedModel

from .kit import main
from .shop import shop

pytestmark = pytest.mark.promise("P4")


def decided(events: list[object]) -> list[tuple[str, str, str]]:
    records = [event.record for event in events if isinstance(event, InterruptAnswered)]
    return [(each.interrupt_id, each.decision, each.by) for each in records]


@main
async def test_an_answer_is_recorded_with_its_owner_and_the_model_never_gets_it() -> None:
    agent, _ = shop(1, 2)
    await agent.invoke_async("Go")
    run = agent.start_answer({"call_2:approval": Approve({"amount": 7}), "call_3:approval": Deny("no")}, owner="ci")
    events = [event async for event in run]
    assert decided(events) == [("call_2:approval", "approved", "ci"), ("call_3:approval", "denied", "ci")]
    first, second = [event.record for event in events if isinstance(event, InterruptAnswered)]
    assert (first.tool_name, first.arguments, second.reason) == ("pay", {"amount": 7}, "no")
    assert first.at > 1.7e9
    assert "ci" not in " ".join(str(message) for message in agent.messages)


@main
async def test_a_refused_answer_leaves_no_record() -> None:
    agent, _ = shop(1)
    await agent.invoke_async("Go")
    with pytest.raises(InvalidAnswer):
        await agent.answer_async({"call_2:approval": "perhaps"})
    run = agent.start_answer({"call_2:approval": False})
    assert decided([event async for event in run]) == [("call_2:approval", "denied", "")]


@main
async def test_a_hook_approves_in_advance_exactly_what_would_have_been_shown() -> None:
    asked: list[dict[str, object]] = []
    called: list[tuple[int, str]] = []

    @tool(requires_approval=True)
    def pay(amount: int, currency: str = "EUR") -> str:
        called.append((amount, currency))
        return "paid"

    model = ScriptedModel([Call("pay", {"amount": "5"}), Call("pay", {"amount": 900})], then="Done.")
    agent = Agent(model, tools=[pay])

    @agent.hook()
    def small(event: BeforeApproval) -> None:
        asked.append(event.interrupt.arguments)
        event.interrupt.arguments["currency"] = "USD"  # what a hook does to what it was shown changes nothing
        if event.interrupt.arguments["amount"] < 100:
            event.approve("ada", standing="rule 1")

    events = [event async for event in agent.start("Go")]
    (answered,) = [event.record for event in events if isinstance(event, InterruptAnswered)]
    assert (answered.by, answered.standing, answered.decision) == ("ada", "rule 1", "approved")
    assert called == [(5, "EUR")]
    assert [event.interrupt.arguments["amount"] for event in events if isinstance(event, InterruptRaised)] == [900]
    assert [each.arguments["amount"] for each in agent.interrupts] == [900]


@main
async def test_a_hook_that_fails_approves_nothing() -> None:
    agent, till = shop(5)

    @agent.hook()
    def broken(event: BeforeApproval) -> None:
        event.approve()
        raise RuntimeError("out of order")

    result = await agent.invoke_async("Go")
    assert (result.stop_reason, till.paid) == ("interrupt", [])


def test_the_record_is_in_the_store(tmp_path: Path) -> None:
    async def main() -> None:
        store = resolve_store(tmp_path / "s.db")
        agent, _ = shop(1)
        session = Session("s", store)
        await agent.invoke_async("Go", conversation=session)
        run = agent.start_answer({"call_2:approval": True}, conversation=session, owner="ci")
        await run
        events = [event for _, event in await Session("s", store).events(run.id)]
        assert decided(events) == [("call_2:approval", "approved", "ci")]
        await asyncio.wrap_future(store.close())

    asyncio.run(main())
