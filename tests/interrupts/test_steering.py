"""Speaking to a run that is busy, pausing it, and going on with what was cut."""

from __future__ import annotations

import asyncio
import threading

import pytest

from quiesce import Agent, ToolContext, tool
from quiesce.conversation.continuation import GO_ON
from quiesce.conversation.validity import faults
from quiesce.errors import InvalidPrompt, NothingToContinue, UnknownMode
from quiesce.events import MessageAdded, ModelCallStarted, RunPaused, RunResumed, Steered, TextDelta, ToolStarted
from quiesce.messages import AssistantMessage, CutNote, Outcome, Text, ToolMessage, UserMessage
from quiesce.testing import Call, Pause, Say, ScriptedModel, Stall

from .kit import main, virtual

pytestmark = pytest.mark.promise("P2", "P3")


@tool
async def slow(seconds: float = 5) -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return f"slept {seconds:g}"


@tool(on_stop="finish", grace=10)
async def must_finish() -> str:
    """Has a point of no return."""
    await asyncio.sleep(3)
    return "finished"


def roles(messages: tuple[object, ...]) -> str:
    return " ".join(type(message).__name__.removesuffix("Message").lower() for message in messages)


# --- Steering ---------------------------------------------------------------------------------------------------------


@virtual
async def test_words_already_spoken_stay_and_the_run_goes_on() -> None:
    model = ScriptedModel([Say("I will take the train"), Stall()], "The bus, then.")
    agent = Agent(model)
    run = agent.start("How?")
    events = []
    async for event in run:
        events.append(event)
        if isinstance(event, TextDelta) and event.text.endswith("train"):
            assert run.steer("No, the bus")
    result = await run
    assert (result.stop_reason, result.text, run.id) == ("end_turn", "The bus, then.", result.run_id)
    assert roles(result.messages) == "user assistant user assistant"
    cut = result.messages[1]
    assert isinstance(cut, AssistantMessage)
    assert (cut.text, cut.cut) == ("I will take the train", True)
    assert [event.message.text for event in events if isinstance(event, Steered)] == ["No, the bus"]
    assert [event.message for event in events if isinstance(event, MessageAdded)] == list(result.messages)
    assert model.requests[1].messages == result.messages[:3]
    assert result.receipt.cause is None
    assert len(result.usage.entries) == 2


@pytest.mark.promise("P4")
@virtual
async def test_running_tools_follow_their_policy() -> None:
    calls = [Call("slow"), Call("must_finish"), Call("slow", {"seconds": 0.1})]
    agent = Agent(ScriptedModel(calls, "All right."), tools=[slow, must_finish])
    run = agent.start("Go")
    asyncio.get_running_loop().call_later(1, run.steer, "Stop that")
    result = await run
    assert result.text == "All right."
    (outcomes,) = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert [(each.outcome, each.text) for each in outcomes.results][1:] == [
        (Outcome.COMPLETED, "finished"),
        (Outcome.COMPLETED, "slept 0.1"),
    ]
    assert outcomes.results[0].outcome is Outcome.CANCELLED
    assert not faults(result.messages)


@main
async def test_a_sync_tool_hears_of_it_through_its_token() -> None:
    begun = threading.Event()

    @tool(grace=30)
    def wait(ctx: ToolContext) -> str:
        begun.set()
        ctx.token.wait_sync(60)
        return f"heard: {ctx.token.cause.reason if ctx.token.cause else None}"

    agent = Agent(ScriptedModel([Call("wait")], "All right."), tools=[wait])
    run = agent.start("Go")
    await asyncio.to_thread(begun.wait)
    await asyncio.to_thread(run.steer, "Enough")  # from another thread
    result = await run
    assert result.stop_reason == "end_turn"
    assert "heard: steered" in str(result.messages)


@virtual
async def test_patient_steering_lets_tools_finish_and_starts_no_more() -> None:
    calls = [Call("slow", {"seconds": 2}), Call("slow", {"seconds": 3})]
    agent = Agent(ScriptedModel(calls, "All right."), tools=[slow], tool_execution="sequential")
    run = agent.start("Go")
    asyncio.get_running_loop().call_later(1, lambda: run.steer("Only that", mode="after_tools"))
    result = await run
    (outcomes,) = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert [each.outcome for each in outcomes.results] == [Outcome.COMPLETED, Outcome.NEVER_STARTED]
    assert asyncio.get_running_loop().time() == pytest.approx(2)
    assert result.text == "All right."
    assert not faults(result.messages)


@pytest.mark.promise("P7", "P8")
@virtual
async def test_too_late_is_said_so_and_says_nothing() -> None:
    agent = Agent(ScriptedModel("One.", then="Two."))
    run = agent.start("Go")
    await run
    assert not run.steer("Hello?")
    assert not run.enqueue("Hello?")
    assert not run.pause()
    result = await agent.invoke_async("Next")
    assert "Hello?" not in str(result.messages)


@virtual
async def test_what_cannot_be_said_is_refused_at_once() -> None:
    run = Agent(ScriptedModel(then=[Pause(1), Say("Yes.")])).start("Go")
    for bad in ("", "  ", []):
        with pytest.raises(InvalidPrompt):
            run.steer(bad)
    with pytest.raises(UnknownMode):
        run.steer("Go", mode="gently")
    assert (await run).stop_reason == "end_turn"


@pytest.mark.case("claude-code#20648")
@pytest.mark.promise("P8")
@virtual
async def test_what_a_stopped_run_did_not_say_is_handed_back_and_left_nowhere() -> None:
    agent = Agent(ScriptedModel([Say("Working"), Stall()], then="Yes."))
    run = agent.start("Go")
    await asyncio.sleep(1)
    run.enqueue("And this")
    run.enqueue("And that")
    run.cancel()
    result = await run
    assert [each.text for each in result.unsent] == ["And this", "And that"]
    after = await agent.invoke_async("Next")
    assert "And th" not in str(after.messages)
    assert after.unsent == ()


@pytest.mark.promise("P8")
@main
async def test_fifty_threads_speak_while_the_run_ends() -> None:
    """Each message is said, handed back or refused: exactly one of them, and once."""
    for stop in (False, True):
        agent = Agent(ScriptedModel(then=Say("word " * 20, chunk=2)))
        run = agent.start("Go")
        accepted: list[str] = []
        go = threading.Barrier(50)

        def speak(
            number: int,
            run: object = run,
            go: threading.Barrier = go,
            accepted: list[str] = accepted,
            stop: bool = stop,
        ) -> None:
            go.wait()
            say = run.steer if number % 2 else run.enqueue  # pyright: ignore[reportAttributeAccessIssue]
            if say(f"<{number}>"):
                accepted.append(f"<{number}>")
            if stop and number == 25:
                run.cancel()  # pyright: ignore[reportAttributeAccessIssue]

        threads = [threading.Thread(target=speak, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        result = await run
        await asyncio.to_thread(lambda threads=threads: [thread.join() for thread in threads])
        said = [part.text for m in result.messages if isinstance(m, UserMessage) for part in m.content]
        unsent = [message.text for message in result.unsent]
        assert sorted([*said[1:], *unsent]) == sorted(accepted)
        assert stop or not unsent
        assert not faults(result.messages)


# --- Queueing words ---------------------------------------------------------------------------------------------------


@virtual
async def test_queued_words_wait_for_the_end_of_the_turn_tools_included() -> None:
    model = ScriptedModel([Say("Looking."), Call("slow", {"seconds": 2})], "Both.", then="No.")
    agent = Agent(model, tools=[slow])
    run = agent.start("Look")
    await asyncio.sleep(1)
    assert run.enqueue("Look there")
    assert run.enqueue("And there")
    result = await run
    assert roles(result.messages) == "user assistant tool assistant user assistant"
    assert "slept 2" in str(result.messages[2])
    between, words = result.messages[3:5]
    assert isinstance(between, AssistantMessage)
    assert isinstance(words, UserMessage)
    assert not between.cut
    assert [part.text for part in words.content if isinstance(part, Text)] == ["Look there", "And there"]
    assert len(model.requests) == 2


@virtual
async def test_queued_words_are_said_after_a_final_answer_in_the_same_run() -> None:
    model = ScriptedModel([Pause(1), Say("First.")], "Second.")
    run = Agent(model).start("One")
    assert run.enqueue("Two")
    result = await run
    assert (result.text, roles(result.messages)) == ("Second.", "user assistant user assistant")


# --- Pausing ----------------------------------------------------------------------------------------------------------


@virtual
async def test_a_pause_cuts_nothing_and_holds_the_next_step() -> None:
    model = ScriptedModel([Say("Speaking on.", chunk=4, pause=1), Call("slow", {"seconds": 1})], "Done.")
    run = Agent(model, tools=[slow]).start("Go")
    seen = []
    run.tap(seen.append)
    await asyncio.sleep(0.5)
    assert run.pause()
    assert run.paused
    await asyncio.sleep(100)
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "Speaking on."
    assert not any(isinstance(event, ToolStarted) for event in seen)
    assert sum(isinstance(event, RunPaused) for event in seen) == 1
    run.resume()
    result = await run
    assert sum(isinstance(event, RunResumed) for event in seen) == 1
    assert result.text == "Done."
    assert not run.paused


@pytest.mark.promise("P1")
@pytest.mark.parametrize("mode", ["after_turn", "after_tools", "now", "kill"])
def test_a_stop_ends_a_pause_at_once(mode: str) -> None:
    from quiesce.testing import run_virtual

    async def body() -> None:
        run = Agent(ScriptedModel(then="Never.")).start("Go")
        run.pause()
        await asyncio.sleep(10)
        run.cancel(mode=mode)
        result = await run
        assert result.stop_reason == "cancelled"
        assert asyncio.get_running_loop().time() == pytest.approx(10)

    run_virtual(body())


@virtual
async def test_after_turn_in_a_pause_before_the_tools_still_runs_the_tools() -> None:
    run = Agent(ScriptedModel([Call("slow", {"seconds": 1})], then="Never."), tools=[slow]).start("Go")
    asyncio.get_running_loop().call_soon(run.pause)
    await asyncio.sleep(10)
    run.cancel(mode="after_turn")
    result = await run
    assert result.stop_reason == "cancelled"
    assert "slept 1" in str(result.messages)


# --- Going on ---------------------------------------------------------------------------------------------------------


async def cut_after(agent: Agent, text: str) -> None:
    run = agent.start("Count")
    said = ""
    async for event in run:
        if isinstance(event, TextDelta):
            said += event.text
            if said == text:
                run.cancel()
    assert (await run).text == text


@virtual
async def test_a_model_with_prefill_goes_on_in_the_same_message() -> None:
    model = ScriptedModel([Say("one two ", chunk=4), Stall()], "three four.", then="Yes.", supports_prefill=True)
    agent = Agent(model)
    await cut_after(agent, "one two ")
    result = await agent.continue_async()
    assert roles(result.messages) == "user assistant"
    (answer,) = result.new_messages
    assert answer == AssistantMessage((Text("one two three four."),))
    sent = model.requests[1].messages
    assert sent[-1] == AssistantMessage((Text("one two", cut=True),), cut=True)
    assert not any(isinstance(part, CutNote) for message in sent[1:] for part in message.content)  # pyright: ignore


@virtual
async def test_a_blank_that_both_parts_have_is_kept_once() -> None:
    model = ScriptedModel([Say("one ", chunk=4), Stall()], " two.", then="Yes.", supports_prefill=True)
    agent = Agent(model)
    await cut_after(agent, "one ")
    assert (await agent.continue_async()).text == "one two."


@virtual
async def test_another_model_is_asked_to_go_on() -> None:
    model = ScriptedModel([Say("one two", chunk=8), Stall()], "three four.", then="Yes.")
    agent = Agent(model)
    await cut_after(agent, "one two")
    result = await agent.continue_async()
    assert roles(result.messages) == "user assistant user assistant"
    assert result.messages[2] == UserMessage((Text(GO_ON),))


@pytest.mark.promise("P4")
@virtual
async def test_a_run_that_was_cut_in_its_tools_is_simply_asked_again() -> None:
    model = ScriptedModel([Call("slow")], "So be it.", then="Yes.")
    agent = Agent(model, tools=[slow])
    run = agent.start("Go")
    asyncio.get_running_loop().call_later(1, run.cancel)
    assert roles((await run).messages) == "user assistant tool assistant"
    result = await agent.continue_async()
    assert roles(result.messages) == "user assistant tool assistant"
    assert result.text == "So be it."
    assert roles(model.requests[1].messages) == "user assistant tool"


@virtual
async def test_a_continuation_that_is_stopped_again_keeps_both_parts() -> None:
    model = ScriptedModel([Say("one", chunk=8), Stall()], [Say(" two"), Stall()], " three.", supports_prefill=True)
    agent = Agent(model)
    await cut_after(agent, "one")
    run = agent.start_continue()
    async for event in run:
        if isinstance(event, TextDelta):
            assert not faults(run.messages)
            run.cancel()
    assert agent.messages[-1].content[0] == Text("one two", cut=True)
    result = await agent.continue_async()
    assert result.messages[-1] == AssistantMessage((Text("one two three."),))
    assert result.messages[-1].text == "one two three."


@virtual
async def test_there_must_be_something_to_continue() -> None:
    agent = Agent(ScriptedModel(then="Yes."))
    with pytest.raises(NothingToContinue):
        await agent.continue_async()
    assert agent.conversation.holder is None
    await agent.invoke_async("Hello")
    assert (await agent.continue_async()).stop_reason == "end_turn"  # as after max_tokens


def test_going_on_without_an_event_loop() -> None:
    agent = Agent(ScriptedModel("One.", "Two.", then="Yes."))
    agent("Go")
    assert agent.continue_().text == "Two."


# --- Trying again -----------------------------------------------------------------------------------------------------


@pytest.mark.feature
@virtual
async def test_rewind_and_fork_begin_at_an_earlier_point() -> None:
    model = ScriptedModel("A.", [Call("slow", {"seconds": 1})], "B.", then="C.")
    agent = Agent(model, tools=[slow])
    first = await agent.invoke_async("One")
    second = await agent.invoke_async("Two")
    assert second.rewind().messages == first.messages
    assert second.rewind(to=0).messages == ()
    for middle in (3, 4, 5):  # the prompt, the calls, the results: no place to rest
        assert second.rewind(to=middle).messages == first.messages
    again = await agent.invoke_async("Two, but better", conversation=second.rewind())
    assert roles(again.messages) == "user assistant user assistant"
    assert agent.messages == second.messages
    fork = agent.fork(at=2)
    assert fork.messages == first.messages
    assert (await fork.invoke_async("Three")).text == "C."
    assert agent.messages == second.messages


@pytest.mark.feature
@virtual
async def test_steering_shows_when_each_request_is_made() -> None:
    model = ScriptedModel([Say("A"), Stall()], "B.")
    run = Agent(model).start("Go")
    calls: list[int] = []
    run.tap(lambda event: calls.append(event.turn) if isinstance(event, ModelCallStarted) else None)
    await asyncio.sleep(1)
    run.steer("B!")
    await run
    assert calls == [1, 2]


@virtual
async def test_an_urgent_prompt_goes_before_those_that_wait_for_the_end() -> None:
    model = ScriptedModel([Say("Well"), Stall()], "First this.", then="Then that.")
    run = Agent(model).start("Go")
    async for event in run:
        if isinstance(event, TextDelta) and event.text == "Well":
            run.enqueue("later")
            run.steer("now")
    prompts = [message.text for message in (await run).messages if isinstance(message, UserMessage)]
    assert prompts == ["Go", "now", "later"]
