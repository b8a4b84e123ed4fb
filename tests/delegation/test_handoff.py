"""Handing a conversation over: same run, same conversation, another agent."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from quiesce import Agent, Limits, handoff, tool
from quiesce.conversation.validity import faults
from quiesce.errors import DuplicateTool
from quiesce.events import HandedOff, RunStarted, TextDelta, ToolStarted
from quiesce.hooks import AfterRun, BeforeModelCall
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.sessions import Conversation, ConversationState
from quiesce.testing import run_virtual


def team(*answers, **options) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(*answers)
    french = Agent(model, name="french", instructions="Parle.", **options)
    return french, model


def hears(name: str, heard: list[str]):
    """A hook that writes down whose it is, each time a model is called."""

    def hook(event: BeforeModelCall) -> None:
        heard.append(name)

    return hook


@pytest.mark.promise("P2", "P7")
def test_the_other_agent_continues_the_conversation():
    async def main():
        french, french_model = team("Bonjour.")
        calls: list[str] = []

        def ended(event: AfterRun) -> None:
            calls.append(event.result.agent)

        triage = Agent(ScriptedModel([Say("One moment."), Call("hand_over_to_french")]), tools=[handoff(french)],
                       name="triage", instructions="Route.", hooks=[ended])  # fmt: skip
        events = [event async for event in triage.stream_async("Salut")]
        assert HandedOff("triage", "french") in events
        assert french_model.requests[0].instructions == "Parle."
        assert [type(m).__name__ for m in french_model.requests[0].messages] == [
            "UserMessage", "AssistantMessage", "ToolMessage"]  # fmt: skip
        assert triage.messages[-1].text == "Bonjour."
        assert not faults(triage.messages)
        assert french.messages == ()
        assert calls == ["french"]

    asyncio.run(main())


@pytest.mark.promise("P2")
def test_only_the_first_of_two_handoffs_counts():
    async def main():
        french, _ = team("Bonjour.")
        german = Agent(ScriptedModel("Tag."), name="german")
        triage = Agent(ScriptedModel([Call("hand_over_to_french"), Call("hand_over_to_german")]),
                       tools=[handoff(french), handoff(german)])  # fmt: skip
        result = await triage.invoke_async("Hi")
        assert result.text == "Bonjour."
        assert result.agent == "french"
        assert [line.ok for line in result.receipt.calls] == [True, False]
        assert "already handed over to french" in result.receipt.calls[1].detail

    asyncio.run(main())


@pytest.mark.promise("P2", "P3")
def test_a_stop_after_the_handoff_reaches_the_other_agent():
    async def main():
        french, model = team([Say("Bon"), Stall()])
        triage = Agent(ScriptedModel([Call("hand_over_to_french")], "English again."), tools=[handoff(french)])
        run = triage.start("Salut")
        async for event in run:
            if isinstance(event, TextDelta):
                run.cancel()
        result = await run
        assert model.open_streams == 0
        assert result.stop_reason == "cancelled"
        assert result.text == "Bon"
        assert not faults(triage.messages)
        assert (await triage.invoke_async("And now?")).text == "English again."

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_the_limits_of_the_run_stay():
    async def main():
        french, _ = team([Say("mot " * 500, chunk=4)], limits=Limits(output_tokens=5000))
        triage = Agent(ScriptedModel([Call("hand_over_to_french")]), tools=[handoff(french)],
                       limits=Limits(output_tokens=100))  # fmt: skip
        result = await triage.invoke_async("Salut")
        assert result.stop_reason == "limit"

    asyncio.run(main())


@pytest.mark.promise("P3", "P9")
@pytest.mark.parametrize("another_process", [False, True])
def test_a_handoff_beside_a_question_counts_when_the_turn_goes_on(another_process):
    """The handoff was made and its result told; then the run waits for a person, and goes on perhaps elsewhere."""

    @tool(requires_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    def triage(model, conversation=None):
        french, french_model = team("Bonjour.")
        agent = Agent(model, tools=[handoff(french), pay], name="triage", conversation=conversation)
        return agent, french_model

    async def main():
        asking = ScriptedModel([Call("hand_over_to_french", id="h"), Call("pay", id="p")])
        agent, french_model = triage(asking)
        assert (await agent.invoke_async("Salut")).stop_reason == "interrupt"
        if another_process:
            kept = msgspec.json.encode(agent.conversation.snapshot())
            restored = Conversation.restore(msgspec.json.decode(kept, type=ConversationState))
            agent, french_model = triage(ScriptedModel(), restored)
        result = await agent.answer_async({"p:approval": True})
        assert (result.text, result.agent) == ("Bonjour.", "french")
        assert len(french_model.requests) == 1
        assert not faults(agent.messages)

    asyncio.run(main())


@pytest.mark.promise("P3")
def test_a_handoff_that_was_refused_does_not_count_when_the_turn_goes_on():
    @tool(requires_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    async def main():
        french, _ = team("Bonjour.")
        german = Agent(ScriptedModel("Tag."), name="german")
        calls = [Call("hand_over_to_french", id="f"), Call("hand_over_to_german", id="g"), Call("pay", id="p")]
        triage = Agent(ScriptedModel(calls), tools=[handoff(french), handoff(german), pay], name="triage")
        assert (await triage.invoke_async("Hi")).stop_reason == "interrupt"
        assert (await triage.answer_async({"p:approval": True})).text == "Bonjour."

    asyncio.run(main())


@pytest.mark.promise("P3", "P9")
@pytest.mark.parametrize("another_process", [False, True])
def test_who_asked_a_person_goes_on_when_they_have_answered(another_process, tmp_path):
    """The conversation was handed over twice; the last agent asks. The answer is given to the agent that began."""

    @tool(requires_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    def desk() -> Agent:
        cashier = Agent(ScriptedModel([Call("pay", id="p")], "Paid."), name="agent", tools=[pay])
        french = Agent(ScriptedModel([Call("to_cashier")]), name="agent", tools=[handoff(cashier, name="to_cashier")])
        model = ScriptedModel([Call("to_french")], then="It is me again.")
        return Agent(model, name="agent", tools=[handoff(french, name="to_french")], session="s", store=tmp_path / "db")

    async def main():
        agent = desk()
        result = await agent.invoke_async("Salut")
        assert (result.stop_reason, [each.id for each in result.interrupts]) == ("interrupt", ["p:approval"])
        if another_process:
            agent = desk()
            cashier = agent.tools["to_french"].handoff_to.tools["to_cashier"].handoff_to
            await cashier.invoke_async("Begin where the other process ended.")
            await agent.session.load()
        run = agent.start_answer({"p:approval": True})
        seen = [type(event) async for event in run]
        result = await run
        assert result.text == "Paid."
        assert result.messages[6].results[0].text == "paid"
        assert seen[0] is RunStarted
        assert HandedOff not in seen
        assert not faults(agent.messages)

    asyncio.run(main())


@pytest.mark.promise("P3")
def test_a_handoff_counts_although_its_turn_was_steered_away_from():
    @tool
    async def slow() -> str:
        """Take for ever."""
        await asyncio.Event().wait()
        return "never"

    async def main():
        french, model = team("Bonjour.")
        triage = Agent(ScriptedModel([Call("hand_over_to_french"), Call("slow")], then="Still me."), name="triage",
                       tools=[handoff(french), slow])  # fmt: skip
        run = triage.start("Salut")
        async for event in run:
            if isinstance(event, ToolStarted) and event.call.name == "slow":
                run.steer("Quicker.")
        result = await run
        assert (result.text, result.agent) == ("Bonjour.", "french")
        assert model.requests[0].messages[-1].content[0].text == "Quicker."
        assert not faults(triage.messages)

    asyncio.run(main())


@pytest.mark.promise("P7")
def test_the_hooks_of_agents_with_the_same_name_are_all_called_once():
    async def main():
        heard: list[str] = []

        both = hears("both", heard)
        other = Agent(ScriptedModel("Bonjour."), hooks=[hears("second", heard), both])
        first = Agent(
            ScriptedModel([Call("over")]), tools=[handoff(other, name="over")], hooks=[hears("first", heard), both]
        )
        await first.invoke_async("Salut")
        assert heard == ["first", "both", "first", "both", "second"]

    asyncio.run(main())


@pytest.mark.promise("P3", "P5")
def test_a_parent_waits_for_the_tools_of_whom_its_child_has_handed_over_to():
    @tool(on_stop="finish", grace=20)
    async def careful() -> str:
        """Put things away."""
        await asyncio.sleep(15)
        return "put away"

    async def main():
        french = Agent(ScriptedModel([Call("careful")]), name="french", tools=[careful])
        triage = Agent(ScriptedModel([Call("hand_over_to_french")]), name="triage", tools=[handoff(french)])
        parent = Agent(ScriptedModel([Call("triage", {"prompt": "x"})]), tools=[triage])
        run = parent.start("go")
        await asyncio.sleep(1)
        run.cancel()
        result = await run
        assert result.receipt.still_running == ()
        assert result.children[0].receipt.calls[-1].outcome is Outcome.COMPLETED

    run_virtual(main())


@pytest.mark.promise("P2", "P7")
def test_there_and_back_again():
    async def main():
        heard: list[str] = []

        triage = Agent(ScriptedModel([Call("hand_over_to_french")], "It is me again."), name="triage",
                       hooks=[hears("triage", heard)])  # fmt: skip
        french, _ = team([Say("Un moment."), Call("hand_over_to_triage")], tools=[handoff(triage)],
                             hooks=[hears("french", heard)])  # fmt: skip
        triage.add_tools(handoff(french))
        run = triage.start("Salut")
        moves = [(event.previous, event.agent) async for event in run if isinstance(event, HandedOff)]
        result = await run
        assert (result.text, result.agent) == ("It is me again.", "triage")
        assert moves == [("triage", "french"), ("french", "triage")]
        assert heard == ["triage", "triage", "french", "triage", "french"], "each hook once for each call"
        assert not faults(result.messages)
        with pytest.raises(DuplicateTool):
            triage.add_tools(handoff(french))

    asyncio.run(main())


@pytest.mark.promise("P6", "P8")
def test_an_agent_may_be_its_own_tool_until_its_budget_is_used_up():
    async def main():
        agent = Agent(ScriptedModel(then=[Call("deeper", {"prompt": "Go on."})]), limits=Limits(turns=12))
        agent.add_tools(agent.as_tool("deeper"))
        result = await agent.invoke_async("Go on.")
        assert result.stop_reason == "limit"
        assert result.usage.calls == agent.usage.calls == 12
        depth = 0
        while result.children:
            (result,) = result.children
            depth += 1
            assert not faults(result.messages)
        assert depth == 12
        assert agent.active_runs == ()

    asyncio.run(main())
