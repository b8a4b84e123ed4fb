"""Asking a person: what is run, what is not, and what is left."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from quiesce import Agent, Approve, Conversation, ConversationState, Deny
from quiesce.conversation.validity import faults
from quiesce.errors import InvalidAnswer
from quiesce.events import InterruptRaised
from quiesce.messages import AssistantMessage, Outcome, ToolMessage
from quiesce.testing import Call, ScriptedModel

from .kit import main
from .shop import results, shop

pytestmark = pytest.mark.promise("P2", "P4")


@main
async def test_a_run_that_asks_ends_with_an_interrupt() -> None:
    agent, till = shop(5)
    events = [event async for event in agent.stream_async("Go")]
    (interrupt,) = agent.interrupts
    assert InterruptRaised(interrupt) in events
    assert (interrupt.id, interrupt.kind, interrupt.arguments) == ("call_2:approval", "approval", {"amount": 5})
    assert (till.paid, till.looked) == ([], 1)
    assert not faults(agent.messages)
    assert isinstance(agent.messages[-1], AssistantMessage)


@main
async def test_a_yes_runs_the_tool_once_and_the_finished_ones_not_again() -> None:
    agent, till = shop(5)
    first = await agent.invoke_async("Go")
    assert first.stop_reason == "interrupt"
    assert first.interrupts == agent.interrupts
    result = await agent.answer_async({"call_2:approval": True})
    assert (result.stop_reason, result.text) == ("end_turn", "Done.")
    assert (till.paid, till.looked) == ([5], 1)
    assert results(result)["call_2"].text == "paid 5"
    assert not faults(result.messages)


@main
async def test_answers_in_any_order_and_some_of_them() -> None:
    agent, till = shop(1, 2, 3)
    await agent.invoke_async("Go")
    result = await agent.answer_async({"call_4:approval": True})
    assert result.stop_reason == "interrupt"
    assert [each.id for each in result.interrupts] == ["call_2:approval", "call_3:approval"]
    assert till.paid == [3]
    result = await agent.answer_async({"call_2:approval": True, "call_3:approval": True})
    assert result.stop_reason == "end_turn"
    assert sorted(till.paid) == [1, 2, 3]
    assert till.looked == 1


@pytest.mark.case("claude-agent-acp#402")
@main
async def test_one_no_leaves_the_other_tools_alone() -> None:
    agent, till = shop(1, 2)
    await agent.invoke_async("Go")
    result = await agent.answer_async({"call_2:approval": Deny("not today"), "call_3:approval": True})
    assert result.stop_reason == "end_turn"
    assert till.paid == [2]
    denied = results(result)["call_2"]
    assert denied.outcome is Outcome.NEVER_STARTED
    assert denied.is_error
    assert "a person said no. Reason: not today" in denied.text
    assert results(result)["call_3"].text == "paid 2"


@main
async def test_changed_arguments_are_used_and_the_model_is_told() -> None:
    agent, till = shop(500)
    await agent.invoke_async("Go")
    result = await agent.answer_async({"call_2:approval": Approve(arguments={"amount": 5})})
    assert till.paid == [5]
    assert "A person changed the arguments to" in results(result)["call_2"].text
    asked = next(m for m in result.messages if isinstance(m, AssistantMessage))
    assert asked.tool_calls[1].arguments == {"amount": 500}, "what the model wrote stays what it wrote"


@pytest.mark.parametrize("wrong", [{"sum": 5}, {"amount": "much"}, {}, {"amount": 5, "more": 1}, ["amount"]])
def test_wrong_changed_arguments_are_refused_and_the_call_stays_asked(wrong: Any) -> None:
    agent, till = shop(500, 600)
    agent("Go")
    with pytest.raises(InvalidAnswer, match=r"not valid|not a dict"):
        agent.answer({"call_3:approval": True, "call_2:approval": Approve(arguments=wrong)})
    assert till.paid == []
    assert [each.id for each in agent.interrupts] == ["call_2:approval", "call_3:approval"]
    result = agent.answer({"call_2:approval": Approve(arguments={"amount": "5"}), "call_3:approval": False})
    assert (result.stop_reason, till.paid) == ("end_turn", [5])


def test_wrong_arguments_for_the_tool_of_a_sub_agent_stay_asked() -> None:
    inner, till = shop(500, name="inner")
    agent = Agent(ScriptedModel([Call("inner", {"prompt": "pay"})], then="Done."), tools=[inner])
    (asked,) = agent("Go").interrupts
    result = agent.answer({asked.id: Approve(arguments={"amount": "much"})})
    assert result.stop_reason == "interrupt"
    (again,) = result.interrupts
    assert again.id == asked.id
    assert "The arguments of pay are not valid" in again.reason
    assert agent.answer({asked.id: Approve(arguments={"amount": 5})}).stop_reason == "end_turn"
    assert till.paid == [5]


def test_without_an_event_loop() -> None:
    agent, till = shop(5)
    assert agent("Go").stop_reason == "interrupt"
    assert agent.answer({"call_2:approval": True}).text == "Done."
    assert till.paid == [5]
    assert agent("More?").stop_reason == "end_turn"


def test_in_another_process_as_far_as_anybody_can_tell() -> None:
    first, till = shop(5, 6)
    first("Go")
    stored = msgspec.json.encode(first.conversation.snapshot())
    conversation = Conversation.restore(msgspec.json.decode(stored, type=ConversationState))
    second = Agent(ScriptedModel("Back.", then="Yes."), tools=till.tools(), conversation=conversation)
    assert [each.id for each in second.interrupts] == ["call_2:approval", "call_3:approval"]
    assert second.answer({"call_2:approval": True}).stop_reason == "interrupt"
    stored = msgspec.json.encode(second.conversation.snapshot())
    third = Agent(
        ScriptedModel("Back.", then="Yes."),
        tools=till.tools(),
        conversation=Conversation.restore(msgspec.json.decode(stored, type=ConversationState)),
    )
    result = third.answer({"call_3:approval": True})
    assert result.text == "Back."
    assert (till.paid, till.looked) == ([5, 6], 1)
    assert not faults(result.messages)


@pytest.mark.promise("P9")
@main
async def test_a_process_that_died_while_an_approved_tool_ran_does_not_run_it_again() -> None:
    agent, till = shop(5)
    await agent.invoke_async("Go")
    run = agent.start_answer({"call_2:approval": True})
    stored = msgspec.json.encode(agent.conversation.snapshot())  # what a store would hold when the lights go out
    await run
    again = Agent(
        ScriptedModel(then="Yes."),
        tools=till.tools(),
        conversation=Conversation.restore(msgspec.json.decode(stored, type=ConversationState)),
    )
    assert again.interrupts == ()
    last = [m for m in again.messages if isinstance(m, ToolMessage)][-1]
    assert [each.outcome for each in last.results] == [Outcome.COMPLETED, Outcome.UNKNOWN]
    assert (await again.invoke_async("And?")).stop_reason == "end_turn"
    assert till.paid == [5]
