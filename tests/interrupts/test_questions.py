"""Questions: from a tool, from a hook, from a predicate, from an agent inside an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from quiesce import Agent, Conversation, ConversationState, Deny, ToolContext, tool
from quiesce.conversation.validity import faults
from quiesce.errors import InvalidAnswer
from quiesce.hooks import BeforeToolCall
from quiesce.interrupts import InterruptSignal
from quiesce.messages import Outcome
from quiesce.testing import Call, Say, ScriptedModel

from .kit import main
from .shop import Till, results

pytestmark = pytest.mark.promise("P2", "P4")


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
    assert agent.answer({"call_1:who": "Ada"}).interrupts[0].name == "whom"
    result = agent.answer({"call_1:whom": ["Bob", 2]})
    assert results(result)["call_1"].text == "Ada and ['Bob', 2]"
    assert len(begun) == 3


@main
async def test_a_question_that_is_refused_says_that_the_tool_had_begun() -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        return ctx.interrupt("who")

    agent = Agent(ScriptedModel([Call("ask")], "Done.", then="Yes."), tools=[ask])
    agent("Go")
    result = agent.answer({"call_1:who": Deny()})
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
    agent("Go")
    assert till.looked == 0
    result = agent.answer({"call_1:may it look?": "yes", "call_2:may it look?": "no"})
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
    result = agent("Go")
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
    result = agent.answer({"call_1:call_3:approval": Deny("no more")})
    assert [each.id for each in result.interrupts] == ["call_1:call_1:approval"]
    agent = again(agent)
    result = agent.answer({"call_1:call_1:approval": True})
    assert result.stop_reason == "end_turn"
    assert (till.paid, till.looked) == ([7], 2), "each look once, inside and outside"
    assert results(result)["call_1"].text == "The inner one is done."


def test_a_question_that_holds_half_a_character_is_stored_and_answered(tmp_path: Path) -> None:
    reasons: list[Any] = ["file \udcff", {"files": ["a", "\ud800"]}]

    @tool
    async def ask(ctx: ToolContext) -> str:
        return str([ctx.interrupt(f"q{number}", reason) for number, reason in enumerate(reasons)])

    model = ScriptedModel([Call("ask")], "Done.")
    agent = Agent(model, tools=[ask], store=f"sqlite:///{tmp_path}/s.db", session="s")
    first = agent("Go")
    assert [each.reason for each in first.interrupts] == ["file \ufffd"]
    second = agent.answer({"call_1:q0": 1})
    assert [each.reason for each in second.interrupts] == [{"files": ["a", "\ufffd"]}]
    assert results(agent.answer({"call_1:q1": 2}))["call_1"].text == "[1, 2]"


@pytest.mark.parametrize("answer", [Deny("\ud800"), Deny(5), "\ud800"])  # type: ignore[arg-type]
@pytest.mark.parametrize("kept", [None, {"so": "far"}])
def test_an_answer_that_cannot_be_stored_is_refused(tmp_path: Path, answer: Any, kept: Any) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        try:
            return str(ctx.kept or ctx.interrupt("q"))
        except InterruptSignal as signal:
            raise InterruptSignal(*signal.interrupts, kept=kept) from None

    agent = Agent(ScriptedModel([Call("ask")], "Done."), tools=[ask], store=f"sqlite:///{tmp_path}/s.db", session="s")
    assert agent("Go").interrupts
    with pytest.raises(InvalidAnswer, match="cannot be written as JSON"):
        agent.answer({"call_1:q": answer})
    assert results(agent.answer({"call_1:q": "yes"}))["call_1"].text == str(kept or "yes")


def test_what_a_question_keeps_may_hold_half_a_character(tmp_path: Path) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        try:
            return ctx.kept or ctx.interrupt("q")
        except InterruptSignal as signal:
            raise InterruptSignal(*signal.interrupts, kept="file \udcff") from None

    agent = Agent(ScriptedModel([Call("ask")], "Done."), tools=[ask], store=f"sqlite:///{tmp_path}/s.db", session="s")
    assert agent("Go").interrupts
    assert results(agent.answer({"call_1:q": "yes"}))["call_1"].text == "file \ufffd"


def test_an_approval_whose_reason_holds_half_a_character_is_stored(tmp_path: Path) -> None:
    def needs_approval(_: dict[str, Any]) -> bool:
        raise OSError("file \udcff")

    guarded = tool(name="guarded", requires_approval=needs_approval)(lambda: "ran")
    model = ScriptedModel([Call("guarded")], "Done.")
    agent = Agent(model, tools=[guarded], store=f"sqlite:///{tmp_path}/s.db", session="s")
    (asked,) = (agent("Go")).interrupts
    assert "OSError: file \ufffd" in asked.reason
    assert results(agent.answer({asked.id: True}))["call_1"].text == "ran"


def test_a_reason_without_a_json_form_is_an_error_in_words() -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        endless: list[Any] = []
        endless.append(endless)
        return ctx.interrupt("who", endless)

    result = Agent(ScriptedModel([Call("ask")], "Done."), tools=[ask])("Go")
    assert "must have a JSON form" in results(result)["call_1"].text
