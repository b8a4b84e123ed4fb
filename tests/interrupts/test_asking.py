"""Asking a person: what is run, what is not, and what is left."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from quiesce import Agent, Approve, Conversation, ConversationState, Deny, ToolContext, tool
from quiesce.errors import (
    ConfigurationError,
    InterruptExpired,
    InterruptPending,
    InvalidAnswer,
    UnknownInterrupt,
)
from quiesce.events import InterruptRaised, ToolEnded
from quiesce.hooks import BeforeToolCall
from quiesce.messages import AssistantMessage, Outcome, ToolMessage, ToolResult
from quiesce.result import RunResult
from quiesce.testing import Call, Pause, Say, ScriptedModel
from quiesce.transcript import faults

from .kit import main

pytestmark = pytest.mark.promise("P2", "P3", "P4")


class Till:
    """Tools with effects, and a record of the effects."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.looked = 0

    def tools(self) -> list[Any]:
        @tool(requires_approval=True)
        async def pay(amount: int) -> str:
            await asyncio.sleep(0.01)
            self.paid.append(amount)
            return f"paid {amount}"

        @tool
        async def look() -> str:
            self.looked += 1
            return "seen"

        return [pay, look]


def shop(*amounts: int, till: Till | None = None, **options: Any) -> tuple[Agent, Till]:
    till = till or Till()
    calls = [Call("look"), *(Call("pay", {"amount": amount}) for amount in amounts)]
    model = ScriptedModel([Say("Let me pay. "), *calls], "Done.", then="Yes.")
    return Agent(model, tools=till.tools(), **options), till


def results(result: RunResult) -> dict[str, ToolResult]:
    return {each.call_id: each for m in result.messages if isinstance(m, ToolMessage) for each in m.results}


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
    result = await agent.resume_async({"call_2:approval": True})
    assert (result.stop_reason, result.text) == ("end_turn", "Done.")
    assert (till.paid, till.looked) == ([5], 1)
    assert results(result)["call_2"].text == "paid 5"
    assert not faults(result.messages)


@main
async def test_answers_in_any_order_and_some_of_them() -> None:
    agent, till = shop(1, 2, 3)
    await agent.invoke_async("Go")
    result = await agent.resume_async({"call_4:approval": True})
    assert result.stop_reason == "interrupt"
    assert [each.id for each in result.interrupts] == ["call_2:approval", "call_3:approval"]
    assert till.paid == [3]
    result = await agent.resume_async({"call_2:approval": True, "call_3:approval": True})
    assert result.stop_reason == "end_turn"
    assert sorted(till.paid) == [1, 2, 3]
    assert till.looked == 1


@pytest.mark.case("claude-agent-acp#402")
@main
async def test_one_no_leaves_the_other_tools_alone() -> None:
    agent, till = shop(1, 2)
    await agent.invoke_async("Go")
    result = await agent.resume_async({"call_2:approval": Deny("not today"), "call_3:approval": True})
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
    result = await agent.resume_async({"call_2:approval": Approve(arguments={"amount": 5})})
    assert till.paid == [5]
    assert "A person changed the arguments to" in results(result)["call_2"].text
    asked = next(m for m in result.messages if isinstance(m, AssistantMessage))
    assert asked.tool_calls[1].arguments == {"amount": 500}, "what the model wrote stays what it wrote"


@main
async def test_changed_arguments_are_checked_like_any_others() -> None:
    agent, till = shop(500)
    await agent.invoke_async("Go")
    result = await agent.resume_async({"call_2:approval": Approve(arguments={"sum": 5})})
    assert till.paid == []
    assert "not valid" in results(result)["call_2"].text


def test_without_an_event_loop() -> None:
    agent, till = shop(5)
    assert agent("Go").stop_reason == "interrupt"
    assert agent.resume({"call_2:approval": True}).text == "Done."
    assert till.paid == [5]
    assert agent("More?").stop_reason == "end_turn"


def test_in_another_process_as_far_as_anybody_can_tell() -> None:
    first, till = shop(5, 6)
    first("Go")
    stored = msgspec.json.encode(first.conversation.snapshot())
    conversation = Conversation.restore(msgspec.json.decode(stored, type=ConversationState))
    second = Agent(ScriptedModel("Back.", then="Yes."), tools=till.tools(), conversation=conversation)
    assert [each.id for each in second.interrupts] == ["call_2:approval", "call_3:approval"]
    assert second.resume({"call_2:approval": True}).stop_reason == "interrupt"
    stored = msgspec.json.encode(second.conversation.snapshot())
    third = Agent(
        ScriptedModel("Back.", then="Yes."),
        tools=till.tools(),
        conversation=Conversation.restore(msgspec.json.decode(stored, type=ConversationState)),
    )
    result = third.resume({"call_3:approval": True})
    assert result.text == "Back."
    assert (till.paid, till.looked) == ([5, 6], 1)
    assert not faults(result.messages)


@pytest.mark.promise("P9")
@main
async def test_a_process_that_died_while_an_approved_tool_ran_does_not_run_it_again() -> None:
    agent, till = shop(5)
    await agent.invoke_async("Go")
    run = agent.start({"call_2:approval": True})
    stored = msgspec.json.encode(agent.conversation.snapshot())  # what a store would hold when the lights go out
    await run.result()
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


# --- Questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync", "generator"])
def test_a_tool_asks_and_is_called_again_with_the_answer(kind: str) -> None:
    begun: list[str] = []

    async def ask_async(ctx: ToolContext) -> str:
        begun.append("begun")
        return f"{ctx.interrupt('who', reason={'why': 'to greet'})} and {ctx.interrupt('whom')}"

    def ask_sync(ctx: ToolContext) -> str:
        begun.append("begun")
        try:
            return f"{ctx.interrupt('who')} and {ctx.interrupt('whom')}"
        except Exception:  # a tool that catches everything does not catch the question
            return "caught"

    async def ask_generator(ctx: ToolContext) -> Any:
        begun.append("begun")
        yield "asking"
        yield f"{ctx.interrupt('who')} and {ctx.interrupt('whom')}"

    function = {"async": ask_async, "sync": ask_sync, "generator": ask_generator}[kind]
    agent = Agent(ScriptedModel([Call("ask")], "Done.", then="Yes."), tools=[tool(name="ask")(function)])
    first = agent("Go")
    assert [each.name for each in first.interrupts] == ["who"]
    assert first.receipt.calls[0].waits
    assert "waits for a person" in str(first.receipt)
    assert agent.resume({"call_1:who": "Ada"}).interrupts[0].name == "whom"
    result = agent.resume({"call_1:whom": ["Bob", 2]})
    assert results(result)["call_1"].text == "Ada and ['Bob', 2]"
    assert len(begun) == 3


@main
async def test_a_question_that_is_refused_says_that_the_tool_had_begun() -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        return ctx.interrupt("who")

    agent = Agent(ScriptedModel([Call("ask")], "Done.", then="Yes."), tools=[ask])
    await agent.invoke_async("Go")
    result = await agent.resume_async({"call_1:who": Deny()})
    assert results(result)["call_1"].outcome is Outcome.CANCELLED


@main
async def test_a_hook_asks_about_a_call() -> None:
    till = Till()
    answers: list[Any] = []

    async def check(event: BeforeToolCall) -> None:
        if event.call.name == "look":
            answers.append(event.interrupt("may it look?", reason="privacy"))
            if answers[-1] != "yes":
                event.replace("it may not")

    model = ScriptedModel([Call("look"), Call("look")], "Done.", then="Yes.")
    agent = Agent(model, tools=till.tools(), hooks=[check])
    await agent.invoke_async("Go")
    assert till.looked == 0
    result = await agent.resume_async({"call_1:may it look?": "yes", "call_2:may it look?": "no"})
    assert till.looked == 1
    assert results(result)["call_1"].text == "seen"
    assert results(result)["call_2"].text == "it may not"


@main
async def test_a_predicate_decides_and_one_that_fails_means_ask() -> None:
    ran: list[int] = []

    async def is_much(arguments: dict[str, Any]) -> bool:
        if arguments["amount"] < 0:
            raise ValueError("what is that")
        return arguments["amount"] > 10

    @tool(requires_approval=is_much)
    def spend(amount: int) -> str:
        ran.append(amount)
        return "spent"

    calls = [Call("spend", {"amount": amount}) for amount in (5, 50, -1)]
    agent = Agent(ScriptedModel(calls, "Done.", then="Yes."), tools=[spend])
    result = await agent.invoke_async("Go")
    assert ran == [5]
    assert [each.call_id for each in result.interrupts] == ["call_2", "call_3"]
    assert "ValueError: what is that" in result.interrupts[1].reason


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_an_agent_inside_an_agent_asks_through_it(memory: bool, restart: bool) -> None:
    till = Till()
    inner_model = ScriptedModel(
        [Say("I pay."), Call("pay", {"amount": 7}), Call("look"), Call("pay", {"amount": 8})],
        then="The inner one is done.",
    )
    outer_model = ScriptedModel([Call("payer", {"prompt": "Pay 7 and 8"}), Call("look")], "Done.", then="Yes.")

    def outer(conversation: Conversation | None = None) -> Agent:
        inner = Agent(inner_model, tools=till.tools(), name="payer")
        tools = [inner.as_tool(memory=memory), till.tools()[1]]
        return Agent(outer_model, tools=tools, conversation=conversation)

    def again(agent: Agent) -> Agent:
        stored = msgspec.json.encode(agent.conversation.snapshot())
        restored = Conversation.restore(msgspec.json.decode(stored, type=ConversationState))
        return outer(restored) if restart else agent

    agent = outer()
    result = agent("Go")
    assert result.stop_reason == "interrupt"
    assert [each.id for each in result.interrupts] == ["call_1:call_1:approval", "call_1:call_3:approval"]
    assert [each.arguments for each in result.interrupts] == [{"amount": 7}, {"amount": 8}]
    assert not faults(result.messages)
    agent = again(agent)
    result = agent.resume({"call_1:call_3:approval": Deny("no more")})
    assert [each.id for each in result.interrupts] == ["call_1:call_1:approval"]
    agent = again(agent)
    result = agent.resume({"call_1:call_1:approval": True})
    assert result.stop_reason == "end_turn"
    assert (till.paid, till.looked) == ([7], 2), "each look once, inside and outside"
    assert results(result)["call_1"].text == "The inner one is done."


# --- Not answered -----------------------------------------------------------------------------------------------------


@pytest.mark.case("strands#approval-bricks")
@pytest.mark.promise("P8")
@main
async def test_a_stop_while_an_approval_is_pending_leaves_an_agent_that_simply_works() -> None:
    agent, till = shop(5)
    await agent.invoke_async("Go")
    assert agent.cancel() == ()
    assert agent.interrupts == ()
    assert not faults(agent.messages)
    result = await agent.invoke_async("Something else")  # neither armed nor refused
    assert result.stop_reason == "end_turn"
    assert results(result)["call_2"].outcome is Outcome.NEVER_STARTED
    assert till.paid == []
    with pytest.raises(UnknownInterrupt):
        await agent.resume_async({"call_2:approval": True})
    assert till.paid == []


@main
async def test_cancel_pending_from_the_conversation() -> None:
    agent, _ = shop(5)
    await agent.invoke_async("Go")
    assert [each.id for each in agent.conversation.cancel_pending()] == ["call_2:approval"]
    assert agent.conversation.cancel_pending() == ()
    assert (await agent.invoke_async("Next")).stop_reason == "end_turn"


@main
async def test_a_plain_prompt_drops_what_was_asked() -> None:
    agent, till = shop(5)
    await agent.invoke_async("Go")
    result = await agent.invoke_async("Never mind")
    assert result.stop_reason == "end_turn"
    assert not faults(result.messages)
    assert agent.interrupts == ()
    assert till.paid == []


@main
async def test_a_plain_prompt_can_be_refused() -> None:
    agent, till = shop(5, on_prompt="refuse")
    await agent.invoke_async("Go")
    before = agent.conversation.snapshot()
    with pytest.raises(InterruptPending, match="call_2:approval"):
        agent.start("Never mind")
    assert agent.conversation.snapshot() is before
    assert (await agent.invoke_async("Never mind", on_prompt="cancel_pending")).stop_reason == "end_turn"
    assert till.paid == []


@main
async def test_answers_that_do_not_fit_change_nothing() -> None:
    agent, till = shop(5)
    with pytest.raises(UnknownInterrupt):
        agent.start({"call_2:approval": True})
    await agent.invoke_async("Go")
    before = agent.conversation.snapshot()
    for answers, error in (
        ({"call_9:approval": True}, UnknownInterrupt),
        ({"call_2:approval": "maybe"}, InvalidAnswer),
        ({"call_2:approval": Approve(arguments={"amount": object()})}, InvalidAnswer),
        ({}, InvalidAnswer),
    ):
        with pytest.raises(error):
            agent.start(answers)
    with pytest.raises(ConfigurationError):
        agent.start("x", on_prompt="perhaps")  # pyright: ignore[reportArgumentType]
    assert agent.conversation.snapshot() is before
    assert agent.conversation.holder is None
    assert (await agent.resume_async({"call_2:approval": True})).stop_reason == "end_turn"
    assert till.paid == [5]


@main
async def test_what_is_not_answered_in_time_is_not_run() -> None:
    ran: list[str] = []

    @tool(requires_approval=True, approval_expires_in=-1)
    async def too_late() -> str:
        ran.append("too late")
        return "ran"

    @tool(requires_approval=True, approval_expires_in=1000)
    async def in_time() -> str:
        ran.append("in time")
        return "ran"

    agent = Agent(ScriptedModel([Call("too_late"), Call("in_time")], "Done.", then="Yes."), tools=[too_late, in_time])
    await agent.invoke_async("Go")
    with pytest.raises(InterruptExpired):
        await agent.resume_async({"call_1:approval": True, "call_2:approval": True})
    assert ran == []
    result = await agent.resume_async({"call_2:approval": True})
    assert ran == ["in time"]
    assert "nobody answered in time" in results(result)["call_1"].text


# --- Stopped ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("strands#3615")
@pytest.mark.promise("P8")
@main
async def test_an_approved_tool_does_not_run_twice_after_a_stop() -> None:
    agent, till = shop(5, 6)
    await agent.invoke_async("Go")
    run = agent.start({"call_2:approval": True})
    async for event in run:
        if isinstance(event, ToolEnded) and event.result.call_id == "call_2":
            run.cancel()  # it is paid; the other one waits for its answer
    agent.cancel(arm=False)
    for again in ({"call_2:approval": True}, {"call_3:approval": True}):
        with pytest.raises(UnknownInterrupt):
            await agent.resume_async(again)
    assert (await agent.invoke_async("And?")).stop_reason == "end_turn"
    assert till.paid == [5]


@pytest.mark.case("agno#7929")
@pytest.mark.promise("P1")
@main
async def test_a_stop_works_in_a_resumed_run() -> None:
    till = Till()
    model = ScriptedModel([Call("pay", {"amount": 1})], [Say("Thinking"), Pause(60)], then="Yes.")
    agent = Agent(model, tools=till.tools())
    await agent.invoke_async("Go")
    run = agent.start({"call_1:approval": True})
    async for event in run:
        if getattr(event, "text", None) == "Thinking":
            run.cancel("enough")
    result = await run.result()
    assert (result.stop_reason, result.text) == ("cancelled", "Thinking")
    assert results(result)["call_1"].text == "paid 1"
    assert till.paid == [1]


@pytest.mark.promise("P8")
def test_many_threads_answer_and_stop_at_once() -> None:
    for _ in range(20):
        agent, till = shop(5)
        agent("Go")
        go = threading.Barrier(4)
        ended: list[str] = []

        def answer() -> None:
            go.wait()
            try:
                ended.append(agent.resume({"call_2:approval": True}).stop_reason)
            except Exception as error:
                ended.append(type(error).__name__)

        def stop() -> None:
            go.wait()
            agent.cancel(arm=False)

        threads = [threading.Thread(target=each) for each in (answer, answer, answer, stop)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(till.paid) <= 1
        assert set(ended) <= {"end_turn", "cancelled", "UnknownInterrupt", "ConversationBusy"}
        assert not faults(agent.messages)
        assert agent("Next").stop_reason == "end_turn"
