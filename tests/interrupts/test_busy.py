"""A second prompt while a run is busy."""

from __future__ import annotations

import asyncio
import threading

import pytest

from quiesce import Agent, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ConfigurationError, ConversationBusy
from quiesce.events import TextDelta
from quiesce.messages import UserMessage
from quiesce.testing import Call, Pause, Say, ScriptedModel, Stall

from .kit import virtual

pytestmark = pytest.mark.promise("P2", "P8")


def prompts(agent: Agent) -> list[str]:
    return [message.text for message in agent.messages if isinstance(message, UserMessage)]


@virtual
async def test_refuse_is_the_default_and_changes_nothing() -> None:
    agent = Agent(ScriptedModel([Pause(1), Say("One.")], then="Yes."))
    run = agent.start("One")
    with pytest.raises(ConversationBusy):
        agent.start("Two")
    assert (await run).text == "One."
    assert prompts(agent) == ["One"]
    with pytest.raises(ConfigurationError):
        Agent(ScriptedModel(), on_busy="shout")  # pyright: ignore[reportArgumentType]


@virtual
async def test_queue_says_each_prompt_once_and_in_order() -> None:
    agent = Agent(ScriptedModel(then=[Pause(1), Say("Yes.")]), on_busy="queue")
    runs = [agent.start(word) for word in ("One", "Two", "Three")]
    assert [run.phase.value for run in runs] == ["created", "waiting", "waiting"]
    assert prompts(agent) == ["One"]
    for run in runs:
        assert (await run).stop_reason == "end_turn"
    assert prompts(agent) == ["One", "Two", "Three"]
    assert agent.conversation.holder is None


@pytest.mark.case("claude-code#93659")
@virtual
async def test_a_stop_of_the_running_run_swallows_no_queued_prompt() -> None:
    agent = Agent(ScriptedModel([Say("Hm"), Stall()], then="Yes."), on_busy="queue")
    first, second, third = (agent.start(word) for word in ("One", "Two", "Three"))
    await asyncio.sleep(1)
    first.cancel("stop")
    assert (await first).stop_reason == "cancelled"
    assert [(await run).stop_reason for run in (second, third)] == ["end_turn", "end_turn"]
    assert prompts(agent) == ["One", "Two", "Three"]
    assert not faults(agent.messages)


@pytest.mark.case("claude-code#20860")
@virtual
async def test_one_stop_of_the_agent_stops_the_queue_too_and_hands_the_prompts_back() -> None:
    model = ScriptedModel([Say("Hm"), Stall()], then="Yes.")
    agent = Agent(model, on_busy="queue")
    first, second, third = (agent.start(word) for word in ("One", "Two", "Three"))
    await asyncio.sleep(1)
    assert set(agent.cancel()) == {first, second, third}
    handed_back = [(await run).unsent for run in (first, second, third)]
    assert [[each.text for each in unsent] for unsent in handed_back] == [[], ["Two"], ["Three"]]
    assert prompts(agent) == ["One"]
    assert len(model.requests) == 1
    assert (await agent.invoke_async("Four")).stop_reason == "end_turn"
    assert prompts(agent) == ["One", "Four"]


@virtual
async def test_a_queued_run_can_be_stopped_alone() -> None:
    agent = Agent(ScriptedModel(then=[Pause(1), Say("Yes.")]), on_busy="queue")
    first, second, third = (agent.start(word) for word in ("One", "Two", "Three"))
    await asyncio.sleep(0.5)
    second.cancel()
    stopped = await second
    assert asyncio.get_running_loop().time() == pytest.approx(0.5)
    assert (stopped.stop_reason, stopped.new_messages, stopped.unsent[0].text) == ("cancelled", (), "Two")
    assert not faults(stopped.messages)
    await first
    await third
    assert prompts(agent) == ["One", "Three"]


@virtual
async def test_steer_says_it_in_the_running_run() -> None:
    agent = Agent(ScriptedModel([Say("The train"), Stall()], then="The bus."), on_busy="steer")
    run = agent.start("How?")
    await asyncio.sleep(1)
    assert agent.start("By bus") == run
    assert (await run).text == "The bus."
    assert prompts(agent) == ["How?", "By bus"]


@virtual
async def test_whoever_steered_and_leaves_does_not_stop_the_run() -> None:
    agent = Agent(ScriptedModel([Say("The train"), Stall()], then=[Pause(5), Say("The bus.")]), on_busy="steer")
    run = agent.start("How?")
    await asyncio.sleep(1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.invoke_async("By bus"), 1)
    assert (await run).stop_reason == "end_turn"


@virtual
async def test_whoever_reads_a_run_that_they_steered_and_leaves_does_not_stop_it_either() -> None:
    agent = Agent(ScriptedModel(then=[Say("The train"), Stall()]), on_busy="steer")
    run = agent.start("How?")
    await asyncio.sleep(1)
    async with agent.stream_async("By bus") as events:
        assert events.run == run
        async for event in events:
            if isinstance(event, TextDelta):
                break
    async for _ in agent.stream_async("On foot"):
        break  # and drops it
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            async for _ in agent.stream_async("Really?"):
                pass
    assert not run.done
    run.cancel()
    assert (await run.stopped()).cause.source == "user"
    assert [word for prompt in prompts(agent) for word in prompt.split("\n\n")] == [
        "How?",
        "By bus",
        "On foot",
        "Really?",
    ]


def test_whoever_reads_it_in_a_thread_and_leaves_does_not_stop_it_either() -> None:
    agent = Agent(ScriptedModel([Say("The train"), Stall()], [Say("The bus"), Stall()]), on_busy="steer")
    run = agent.start("How?")
    events = agent.stream("By bus")
    while not isinstance(next(events), TextDelta):
        pass
    events.close()  # type: ignore[attr-defined]
    assert not run.done
    run.cancel()
    assert run.wait().receipt.cause.source == "user"


@virtual
async def test_cancel_previous_stops_what_came_before_queued_ones_too() -> None:
    agent = Agent(ScriptedModel([Say("Hm"), Stall()], then="Yes."))
    first = agent.start("One")
    second = agent.start("Two", on_busy="queue")
    await asyncio.sleep(1)
    last = agent.start("Three", on_busy="cancel_previous")
    assert [(await run).stop_reason for run in (first, second, last)] == ["cancelled", "cancelled", "end_turn"]
    assert prompts(agent) == ["One", "Three"]
    assert not faults(agent.messages)


@virtual
async def test_the_queue_waits_for_the_person_who_is_asked() -> None:
    @tool(requires_approval=True)
    async def pay() -> str:
        return "paid"

    agent = Agent(ScriptedModel([Pause(1), Call("pay")], "Paid.", then="Yes."), tools=[pay], on_busy="queue")
    first, second = agent.start("Pay"), agent.start("Thanks")
    assert (await first).stop_reason == "interrupt"
    await asyncio.sleep(100)
    assert second.phase.value == "waiting"
    assert (await agent.answer_async({"call_1:approval": True})).text == "Paid."
    assert (await second).text == "Yes."
    assert prompts(agent) == ["Pay", "Thanks"]


@virtual
async def test_dropping_what_is_asked_lets_the_queue_move_in_order() -> None:
    @tool(requires_approval=True)
    async def pay() -> str:
        return "paid"

    agent = Agent(ScriptedModel([Pause(1), Call("pay")], then="Yes."), tools=[pay], on_busy="queue")
    first, second = agent.start("Pay"), agent.start("Two")
    await first
    third = agent.start("Three")  # a plain prompt: it drops the question, and gets in line
    assert [(await run).stop_reason for run in (second, third)] == ["end_turn", "end_turn"]
    assert prompts(agent) == ["Pay", "Two", "Three"]


def test_threads_that_prompt_at_once_are_all_answered_once() -> None:
    agent = Agent(ScriptedModel(then="Yes."), on_busy="queue")
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda number=number: answers.append(agent(f"{number}").text)) for number in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["Yes."] * 20
    assert sorted(prompts(agent), key=int) == [str(number) for number in range(20)]
    assert not faults(agent.messages)


@virtual
async def test_a_holder_that_was_started_by_a_twin_of_the_agent_is_steered_and_stopped_too() -> None:
    """As a server does: each run is started by a fork, on one conversation."""
    answers = [[Say(words), Stall()] for words in ("The train", "The bus", "A walk")]
    agent = Agent(ScriptedModel(*answers, then="Yes."))
    run = agent.fork().start("How?", conversation=agent.conversation)
    await asyncio.sleep(1)
    assert agent.fork().start("By bus", conversation=agent.conversation, on_busy="steer") == run
    await asyncio.sleep(1)
    with pytest.raises(TimeoutError):  # whoever steered does not own the run
        await asyncio.wait_for(agent.invoke_async("Or on foot", on_busy="steer"), 1)
    assert not run.done
    waiting = agent.fork().start("Later", conversation=agent.conversation, on_busy="queue")
    last = agent.start("Stop", on_busy="cancel_previous")
    assert [(await each).stop_reason for each in (run, waiting, last)] == [
        "cancelled",
        "cancelled",
        "end_turn",
    ]
    assert prompts(agent) == ["How?", "By bus", "Or on foot", "Stop"]
    assert agent.conversation.runs == {}
