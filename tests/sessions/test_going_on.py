"""Interrupts, continued answers and steering, in sessions and across processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quiesce import Agent, Session, ToolContext, tool
from quiesce.conversation.validity import faults
from quiesce.events import ModelCallStarted, TextDelta
from quiesce.interrupts import Interrupt, PendingCall, PendingTurn
from quiesce.messages import AssistantMessage, CutNote, Outcome, Text, ToolCall, ToolMessage, UserMessage
from quiesce.sessions.journal.recovery import CrashedRun
from quiesce.sessions.journal.rows import Commit, ToolIntended, decode_messages
from quiesce.sessions.store import SessionStore
from quiesce.testing import Call, Say, ScriptedModel, Stall

from .conftest import StoreMaker

pytestmark = pytest.mark.promise("P9", "P2")


class Prefilled(ScriptedModel):
    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers, supports_prefill=True)


def stored(store: SessionStore) -> tuple[Any, ...]:
    return decode_messages(store.load("s").result().messages)


def test_an_approval_is_given_in_another_process(new_store: StoreMaker) -> None:
    paid: list[tuple[int, str]] = []

    @tool(requires_approval=True)
    async def pay(amount: int, ctx: ToolContext) -> str:
        """Pay."""
        paid.append((amount, ctx.idempotency_key))
        return f"paid {amount}"

    async def main() -> None:
        model = ScriptedModel([Say("I pay. "), Call("pay", {"amount": 7})])
        asked = await Agent(model, tools=[pay], session=Session("s", new_store())).invoke_async("Pay")
        assert asked.stop_reason == "interrupt"
        assert asked.receipt.saved
        later = Agent(ScriptedModel("Done."), tools=[pay], session=Session("s", new_store()))
        assert later.session is not None
        await later.session.load()
        (interrupt,) = later.conversation.interrupts
        result = await later.answer_async({interrupt.id: True})
        assert result.text == "Done."
        assert [amount for amount, _ in paid] == [7]
        assert faults(result.messages) == ()
        assert stored(new_store()) == result.messages
        again = await Agent(ScriptedModel("Yes."), session=Session("s", new_store())).invoke_async("And now?")
        assert len(again.messages) == len(result.messages) + 2

    asyncio.run(main())


def test_a_question_that_is_dropped_is_dropped_everywhere(new_store: StoreMaker) -> None:
    @tool(requires_approval=True)
    async def pay() -> str:
        """Pay."""
        raise AssertionError

    async def main() -> None:
        agent = Agent(ScriptedModel([Call("pay")], then="Fine."), tools=[pay], session=Session("s", new_store()))
        await agent.invoke_async("Pay")
        assert agent.conversation.cancel_pending()
        result = await agent.invoke_async("Never mind")
        assert result.text == "Fine."
        assert faults(result.messages) == ()
        assert stored(new_store()) == result.messages
        other = Agent(ScriptedModel("Yes."), session=Session("s", new_store()))
        await other.invoke_async("And?")
        assert other.conversation.interrupts == ()

    asyncio.run(main())


def test_a_cut_answer_goes_on_in_another_process(new_store: StoreMaker) -> None:
    async def main() -> None:
        run = Agent(Prefilled([Say("One two "), Stall()]), session=Session("s", new_store())).start("Count")
        async for event in run:
            if isinstance(event, TextDelta):
                break
        run.cancel("enough")
        await run.stopped()
        later = Agent(Prefilled("three four."), session=Session("s", new_store()))
        result = await later.continue_async()
        assert [type(each) for each in result.messages] == [UserMessage, AssistantMessage]
        assert "".join(result.messages[-1].text.split()) == "Onetwothreefour."
        assert stored(new_store()) == result.messages

    asyncio.run(main())


def test_what_is_said_meanwhile_is_saved(new_store: StoreMaker) -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Say("Well, "), Stall()], then="Short."), session=Session("s", new_store()))
        run = agent.start("Tell me")
        async for event in run:
            if isinstance(event, TextDelta):
                run.steer("Be short")
                break
        result = await run
        assert result.text == "Short."
        assert faults(result.messages) == ()
        assert stored(new_store()) == result.messages

    asyncio.run(main())


# --- Crashes in between ----------------------------------------------------------------------------------------------

CALLS = (ToolCall("a", "pay", {}), ToolCall("b", "pay", {}), ToolCall("c", "pay", {}))
ANSWER = AssistantMessage((Text("I pay."), *CALLS))
PROMPT = UserMessage((Text("Pay"),))


def test_a_crash_after_a_question_leaves_the_question() -> None:
    pending = PendingTurn("r", ANSWER, tuple(PendingCall(call) for call in CALLS))
    crashed = CrashedRun("r", (PROMPT,), pending, [ModelCallStarted(1, 1, "m"), TextDelta("I pay."), Commit(0)])
    assert crashed.conversation() == ((PROMPT,), pending)


def test_a_crash_while_a_pending_turn_goes_on_keeps_what_is_known() -> None:
    from quiesce.events import ToolEnded
    from quiesce.tools.output import completed_result as completed

    pending = PendingTurn("r1", ANSWER, tuple(PendingCall(call) for call in CALLS), taken_by="r2")
    done = completed(CALLS[0], "paid")
    rows = [Commit(0), ToolIntended("a"), ToolEnded(done), ToolIntended("b")]
    crashed = CrashedRun("r2", (PROMPT,), pending, rows)
    messages, left = crashed.conversation()
    assert left is None
    assert faults(messages) == ()
    answered = next(message for message in messages if isinstance(message, ToolMessage))
    assert [each.outcome for each in answered.results] == [Outcome.COMPLETED, Outcome.UNKNOWN, Outcome.NEVER_STARTED]
    assert crashed.unknown == (CALLS[1],)


def test_a_crash_while_one_of_three_approved_calls_runs_keeps_the_question_that_is_open() -> None:
    asked = Interrupt("c:approval", "approval", "approval", "c", "pay", {})
    free = [PendingCall(call, approved=True) for call in CALLS[:2]]
    pending = PendingTurn("r1", ANSWER, (*free, PendingCall(CALLS[2], interrupts=(asked,))), taken_by="r2")
    crashed = CrashedRun("r2", (PROMPT,), pending, [Commit(0), ToolIntended("a")])
    messages, left = crashed.conversation()
    assert messages == (PROMPT,)
    assert left is not None
    assert (left.taken_by, left.interrupts) == (None, (asked,))
    (first, second, _) = left.calls
    assert first.result is not None
    assert first.result.outcome is Outcome.UNKNOWN, "it may have run, and is not run again"
    assert (second.result, second.approved) == (None, True), "it has not begun, and its approval is kept"


def test_a_crash_while_an_answer_goes_on_keeps_both_halves() -> None:
    cut = AssistantMessage((Text("One two ", cut=True), CutNote("(stopped)")), cut=True)
    crashed = CrashedRun("r2", (PROMPT, cut), None, [ModelCallStarted(1, 1, "m"), TextDelta("three")])
    messages, _ = crashed.conversation()
    assert faults(messages) == ()
    assert len(messages) == 2
    assert "".join(messages[-1].text.split()) == "Onetwothree"
    untouched = CrashedRun("r2", (PROMPT, cut), None, [])
    assert untouched.conversation() == ((PROMPT, cut), None)
