"""What a person does not answer, or not in time; and stops while somebody is asked, or has just answered."""

from __future__ import annotations

import threading
import time

import pytest

from quiesce import Agent, Approve, Conversation, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ConfigurationError, InterruptExpired, InterruptPending, InvalidAnswer, UnknownInterrupt
from quiesce.events import ToolEnded
from quiesce.messages import Outcome
from quiesce.testing import Call, Pause, Say, ScriptedModel

from .kit import main
from .shop import Till, results, shop

pytestmark = pytest.mark.promise("P2", "P4")


# --- Not answered ----------------------------------------------------------------------------------------------------


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
        await agent.answer_async({"call_2:approval": True})
    assert till.paid == []


def test_threads_that_stop_an_agent_at_once_withdraw_its_question_once() -> None:
    class Interleaved(Conversation):
        others: tuple[threading.Thread, ...] = ()

        def append(self, *messages, replacing: int = 0) -> None:
            if self.pending is not None and not self.others:
                self.others = (threading.Thread(target=lambda: agent.cancel(arm=False)),)
                for each in self.others:
                    each.start()
                    each.join()
            super().append(*messages, replacing=replacing)

    @tool(requires_approval=True)
    def pay() -> str:
        return "paid"

    conversation = Interleaved()
    agent = Agent(ScriptedModel([Call("pay")], then="Fine."), tools=[pay], conversation=conversation)
    assert agent("go").stop_reason == "interrupt"
    agent.cancel()
    assert conversation.others
    assert not faults(agent.messages)
    assert agent("again").text == "Fine."


def test_forgetting_a_conversation_releases_it_although_it_is_interrupted() -> None:
    class Interrupted(Conversation):
        def drop_pending(self, note: str = "") -> None:
            raise KeyboardInterrupt

    conversation = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        Agent(ScriptedModel(then="Fine."), conversation=conversation).clear()
    assert conversation.holder is None


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
    dropped = results(result)["call_2"]
    assert dropped.outcome is Outcome.NEVER_STARTED
    assert dropped.text == "Not run: a person was asked first, and did not answer."  # nobody has stopped a run
    assert agent.interrupts == ()
    assert till.paid == []


@main
async def test_a_plain_prompt_can_be_refused() -> None:
    agent, till = shop(5, on_prompt="refuse")
    await agent.invoke_async("Go")
    before = agent.conversation.snapshot()
    with pytest.raises(InterruptPending, match="call_2:approval"):
        agent.start("Never mind")
    assert agent.conversation.snapshot() == before
    assert (await agent.invoke_async("Never mind", on_prompt="cancel_pending")).stop_reason == "end_turn"
    assert till.paid == []


@main
async def test_answers_that_do_not_fit_change_nothing() -> None:
    agent, till = shop(5)
    with pytest.raises(UnknownInterrupt):
        agent.start_answer({"call_2:approval": True})
    await agent.invoke_async("Go")
    before = agent.conversation.snapshot()
    for answers, error in (
        ({"call_9:approval": True}, UnknownInterrupt),
        ({"call_2:approval": "maybe"}, InvalidAnswer),
        ({"call_2:approval": Approve(arguments={"amount": object()})}, InvalidAnswer),
        ({}, InvalidAnswer),
    ):
        with pytest.raises(error):
            agent.start_answer(answers)
    with pytest.raises(ConfigurationError):
        agent.start("x", on_prompt="perhaps")  # pyright: ignore[reportArgumentType]
    assert agent.conversation.snapshot() == before
    assert agent.conversation.holder is None
    assert (await agent.answer_async({"call_2:approval": True})).stop_reason == "end_turn"
    assert till.paid == [5]


@main
async def test_what_is_not_answered_in_time_is_not_run() -> None:
    ran: list[str] = []

    @tool(requires_approval=True, approval_expires_in=0.001)
    async def too_late() -> str:
        ran.append("too late")
        return "ran"

    @tool(requires_approval=True, approval_expires_in=1000)
    async def in_time() -> str:
        ran.append("in time")
        return "ran"

    agent = Agent(ScriptedModel([Call("too_late"), Call("in_time")], "Done.", then="Yes."), tools=[too_late, in_time])
    await agent.invoke_async("Go")
    while time.time() < agent.interrupts[0].expires_at:  # the clock of the world, which virtual time does not move
        pass
    with pytest.raises(InterruptExpired):
        await agent.answer_async({"call_1:approval": True, "call_2:approval": True})
    assert ran == []
    result = await agent.answer_async({"call_2:approval": True})
    assert ran == ["in time"]
    assert "there was no answer in time" in results(result)["call_1"].text


# --- Stopped ---------------------------------------------------------------------------------------------------------


@pytest.mark.case("strands#3615")
@pytest.mark.promise("P8")
@main
async def test_an_approved_tool_does_not_run_twice_after_a_stop() -> None:
    agent, till = shop(5, 6)
    await agent.invoke_async("Go")
    run = agent.start_answer({"call_2:approval": True})
    async for event in run:
        if isinstance(event, ToolEnded) and event.result.call_id == "call_2":
            run.cancel()  # it is paid; the other one waits for its answer
    agent.cancel(arm=False)
    for again in ({"call_2:approval": True}, {"call_3:approval": True}):
        with pytest.raises(UnknownInterrupt):
            await agent.answer_async(again)
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
    run = agent.start_answer({"call_1:approval": True})
    async for event in run:
        if getattr(event, "text", None) == "Thinking":
            run.cancel("enough")
    result = await run
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
                ended.append(agent.answer({"call_2:approval": True}).stop_reason)
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
