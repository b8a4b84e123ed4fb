"""The contract of the request that started it all, word for word, and what its users found missing."""

import asyncio
import threading

import pytest

from quiesce import Agent, CancellationToken, Conversation, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ConversationBusy, UnknownMode
from quiesce.events import AnswerEnd, MessageAdded, RunEnded, StopRequested, TextDelta, ToolStarted
from quiesce.hooks import BeforeToolCall
from quiesce.messages import AssistantMessage, ToolMessage, UserMessage
from quiesce.models.scripted import Call, Pause, Say, ScriptedModel, Stall, TornCall, Used
from tests.core.kit import (
    HandModel,
    Record,
    answers,
    ended,
    is_a,
    notes,
    outcomes,
    results,
    scripted,
    stopped_at,
    until,
)

pytestmark = pytest.mark.promise("P7", "P8")


@tool
async def forever() -> str:
    await asyncio.get_running_loop().create_future()


@tool
async def quick() -> str:
    return "quick"


def from_a_thread(agent: Agent) -> None:
    thread = threading.Thread(target=agent.cancel, args=("from a thread",))
    thread.start()
    thread.join()


def from_a_task(agent: Agent) -> None:
    async def cancel() -> None:
        agent.cancel("from a task")

    agent.task = asyncio.create_task(cancel())


@pytest.mark.parametrize("stop", [from_a_thread, from_a_task])
async def test_agent_cancel_from_a_thread_and_a_task(stop):
    agent = Agent(scripted([Call("forever", id="a"), Call("forever", id="b")]), tools=[forever])
    run = agent.start("go")
    record = Record(run, is_a(ToolStarted), lambda: stop(agent))
    end = await ended(run, record, agent)
    assert end.result.stop_reason == "cancelled"
    assert [result.call_id for result in results(end.result.messages)] == ["a", "b"]
    assert (await answers(agent)).text == "Fine."


async def test_agent_cancel_from_a_hook():
    def stop(event: BeforeToolCall) -> None:
        agent.cancel("from a hook")

    agent = Agent(scripted([Call("forever", id="a"), Call("forever", id="b")]), tools=[forever], hooks=[stop])
    end = await stopped_at(agent, None)
    assert end.reason == "cancelled"
    assert [result.call_id for result in results(end.result.messages)] == ["a", "b"]
    assert set(outcomes(end.result).values()) == {"never_started"}
    assert (await answers(agent)).text == "Fine."


async def test_twice_is_once():
    agent = Agent(scripted([Say("Well"), Stall()]))
    run = agent.start("go")

    def twice() -> None:
        assert agent.cancel("first") == (run,)
        assert agent.cancel("second") == (run,)

    end = await ended(run, Record(run, is_a(TextDelta), twice), agent)
    assert end.reason == "cancelled"
    assert end.result.receipt.cause.reason == "first"
    assert len(end.of(StopRequested)) == 1
    assert (await answers(agent)).stop_reason == "end_turn", "the second cancel armed nothing"


@pytest.mark.case("langgraph#lost-abort", "openai-agents-python#1512")
def test_a_stop_from_a_thread_of_a_run_in_the_background():
    agent = Agent(ScriptedModel(then=[Say("Well"), Stall()]))
    for _ in range(20):
        run = agent.start("go")
        run.cancel("stop")
        assert run.wait(20).stop_reason == "cancelled"


@pytest.mark.promise("P2", "P3")
@pytest.mark.case("agent-chat-ui#80", "aegra#191", "agno#5816", "vercel/ai#7900")
async def test_the_next_request_holds_what_the_stopped_run_left():
    model = scripted([Say("I found "), Call("quick", id="q"), TornCall("quick", id="t"), Stall()])
    agent = Agent(model, tools=[quick])
    await stopped_at(agent, lambda event: getattr(event, "id", "") == "t" and hasattr(event, "fragment"))
    await answers(agent, "go on")
    sent = model.requests[1].messages
    assert faults(sent[:-1]) == ()
    assert sent[1].text == "I found "
    assert [call.id for call in sent[1].tool_calls] == ["q"]
    assert [result.outcome.value for result in sent[2].results] == ["never_started"]
    assert notes(sent) == ["(This answer was stopped here.)"]
    assert sent[-1].text == "go on"


@pytest.mark.promise("P2", "P3")
@pytest.mark.case("strands#two-user-messages", "agno#prompt-gone", "claude-code#20648")
async def test_the_prompt_stays_and_two_user_messages_never_meet():
    model = HandModel()
    agent = Agent(model)
    run = agent.start("first")
    record = Record(run)
    await until(lambda: model.open_streams)
    run.cancel()
    end = await ended(run, record, agent)
    kinds = [type(message) for message in end.result.messages]
    assert kinds == [UserMessage, AssistantMessage]
    assert end.result.messages[0].text == "first"
    model.give(TextDelta("Yes."), AnswerEnd(), None)
    await answers(agent, "second")
    assert [message.text for message in model.requests[1].messages] == ["first", "", "second"]


@pytest.mark.promise("P4")
async def test_what_the_model_is_told_about_the_cut_can_be_chosen():
    agent = Agent(scripted([Say("Well"), Stall()]), cut_note="[cut]")
    end = await stopped_at(agent, is_a(TextDelta))
    assert notes(end.result.messages) == ["[cut]"]


@pytest.mark.case("agno#7929")
async def test_a_stop_works_in_a_continued_conversation():
    agent = Agent(scripted("Hello.", [Say("Well"), Stall()], [Say("Again"), Stall()]))
    await answers(agent)
    for words in ("Well", "Again"):
        end = await stopped_at(agent, is_a(TextDelta))
        assert end.result.text == words
    assert (await answers(agent)).text == "Fine."


@pytest.mark.promise("P6")
@pytest.mark.case("openai-agents-python#1895", "openai-agents-js#995")
async def test_a_stopped_turn_keeps_its_usage_and_stopping_often_leaves_no_stream_open():
    model = scripted(*[[Say("Some words"), Used(input=1000, final=False), Stall()]] * 20)
    agent = Agent(model)
    for _ in range(20):
        end = await stopped_at(agent, lambda event: type(event).__name__ == "UsageDelta")
        entry = end.result.usage.entries[0]
        assert (entry.usage.input.value, entry.ended) == (1000, "hung_up")
        assert entry.usage.output.value > 0
        assert entry.usage.output.source != "reported"
    assert model.open_streams == 0
    assert agent.usage.calls == 20


@pytest.mark.promise("P6")
@pytest.mark.case("pydantic-ai#cumulative-usage")
async def test_cumulative_usage_is_not_summed():
    reports = [step for number in range(1, 11) for step in (Say("word "), Used(input=7, output=number, final=False))]
    agent = Agent(scripted([*reports, Used(input=7, output=10)]))
    result = await agent.invoke_async("go")
    assert (result.usage.input.value, result.usage.output.value) == (7, 10)
    assert result.usage.is_final


@pytest.mark.case("agno#chunks-after-stop")
async def test_no_chunk_after_the_stop():
    agent = Agent(scripted([Say("x" * 2000, chunk=1)]))
    end = await stopped_at(agent, is_a(TextDelta, 10))
    assert len(end.of(TextDelta)) == 10


@pytest.mark.promise("P4")
@pytest.mark.case("claude-code#41461", "claude-agent-sdk-typescript#425")
async def test_the_end_is_not_said_before_it_is_true():
    alive = []

    @tool(grace=20)
    async def unwinding() -> str:
        alive.append(1)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            alive.clear()

    agent = Agent(scripted([Call("unwinding")]), tools=[unwinding])
    run = agent.start("go")
    at_the_end = []
    run.tap(lambda event: at_the_end.append(list(alive)) if isinstance(event, RunEnded) else None)
    run.tap(lambda event: at_the_end.append(run.done) if isinstance(event, StopRequested) else None)
    await ended(run, Record(run, is_a(ToolStarted), run.cancel), agent)
    assert at_the_end == [False, []]


@pytest.mark.promise("P1", "P5")
@pytest.mark.case("strands#3992")
@pytest.mark.parametrize("waiting", [[Stall()], [Pause(1000)], [Say("a"), Stall()], [Say("ab", chunk=1, pause=1000)]])
async def test_the_stop_reaches_the_model_whatever_it_waits_for(waiting):
    model = scripted(waiting)
    agent = Agent(model)
    run = agent.start("go")
    record = Record(run)
    await until(lambda: model.open_streams)
    run.cancel()
    end = await ended(run, record, agent)
    assert end.reason == "cancelled"
    assert model.open_streams == 0
    assert end.result.receipt.latency < 50


@pytest.mark.promise("P1", "P7")
@pytest.mark.case("openai-agents-python#1425")
async def test_one_timeout_covers_turns_tools_and_waits():
    agent = Agent(scripted([Call("forever")]), tools=[forever])
    result = await agent.invoke_async("go", timeout=0.02)
    assert result.stop_reason == "cancelled"
    assert str(result.receipt.cause) == "deadline: 0.02 s have passed"
    assert set(outcomes(result).values()) <= {"cancelled", "never_started"}


@pytest.mark.promise("P5")
@pytest.mark.one_loop  # uvloop does not show its timers
async def test_a_run_that_ends_in_time_leaves_no_timer():
    agent = Agent(scripted(), timeout=1000)
    await answers(agent)
    loop = asyncio.get_running_loop()
    handles = [handle for handle in loop._scheduled if not handle.cancelled()]
    # One timer of the loop, which never fires, tells of its end.
    assert [handle for handle in handles if handle.when() < loop.time() + 1e6] == []
    assert len(handles) <= 1


# --- Arming ---------------------------------------------------------------------------------------------------------


async def test_arming_works_once():
    agent = Agent(scripted())
    agent.cancel("early")
    agent.cancel("and again")
    first = await agent.invoke_async("go")
    assert first.stop_reason == "cancelled"
    assert first.receipt.cause.reason == "early"
    assert (await answers(agent)).text == "Fine."


async def test_arming_can_be_left_out():
    agent = Agent(scripted())
    assert agent.cancel(arm=False) == ()
    await answers(agent)


async def test_a_prompt_that_is_refused_does_not_use_up_the_arming():
    agent = Agent(scripted())
    agent.cancel()
    with pytest.raises(TypeError):
        agent.start(3)
    assert (await agent.invoke_async("go")).stop_reason == "cancelled"


async def test_handles_and_tokens_never_arm():
    agent, token = Agent(scripted()), CancellationToken()
    run = agent.start("go", token=token)
    await run
    assert run.cancel() is False
    token.cancel()
    await answers(agent)


async def test_an_unknown_mode_is_an_error_and_still_a_stop():
    agent = Agent(scripted([Stall()]))
    run = agent.start("go")
    with pytest.raises(UnknownMode, match="There is no stop mode 'softly'"):
        agent.cancel("please", mode="softly")
    result = await run
    assert (result.stop_reason, result.receipt.mode, result.receipt.cause.reason) == ("cancelled", "now", "please")
    with pytest.raises(UnknownMode):
        agent.cancel("please", mode="softly")
    assert (await agent.invoke_async("go")).stop_reason == "cancelled", "an idle agent is armed all the same"


# --- Several runs ---------------------------------------------------------------------------------------------------


async def test_two_runs_of_one_agent_on_branches_are_stopped_apart():
    model = scripted([Say("one"), Stall()], [Say("two"), Stall()])
    agent = Agent(model)
    first, second = agent.start("a"), agent.start("b", conversation=Conversation())
    assert set(agent.active_runs) == {first, second}
    await until(lambda: model.open_streams == 2)
    first.cancel()
    await first.stopped()
    assert not second.done
    assert model.open_streams == 1
    assert agent.cancel() == (second,)
    assert (await second).stop_reason == "cancelled"
    assert [message.text for message in agent.messages if isinstance(message, UserMessage)] == ["a"]


async def test_a_busy_conversation_refuses_and_is_not_harmed():
    model = scripted([Say("one"), Stall()])
    agent = Agent(model)
    run = agent.start("a")
    await until(lambda: model.open_streams)
    with pytest.raises(ConversationBusy, match=f"Run {run.id} is using this conversation") as refused:
        agent.start("b")
    assert refused.value.holder == run.id
    with pytest.raises(ConversationBusy):
        agent.clear()
    run.cancel()
    result = await run
    assert [type(message) for message in result.messages] == [UserMessage, AssistantMessage]
    await answers(agent)
    agent.clear()
    assert agent.messages == ()
    await answers(agent)


async def test_a_fork_shares_nothing_that_a_stop_touches():
    model = scripted("Hello.", [Say("twin"), Stall()])
    agent = Agent(model)
    await answers(agent)
    twin = agent.fork()
    assert twin.messages == agent.messages
    run = twin.start("go")
    assert agent.active_runs == ()
    agent.cancel(arm=False)
    await until(lambda: model.open_streams)
    assert not run.done
    agent.cancel()
    twin.cancel()
    assert (await run).stop_reason == "cancelled"
    assert len(agent.messages) == 2
    assert (await agent.invoke_async("x")).stop_reason == "cancelled"
    await answers(twin)


@pytest.mark.promise("P2")
async def test_a_fork_in_the_middle_of_a_run_begins_with_what_is_settled():
    agent = Agent(scripted("Hello.", [Call("forever")]), tools=[forever])
    await answers(agent)
    run = agent.start("go")
    twins = []
    run.tap(lambda event: twins.append(agent.fork()) if isinstance(event, ToolStarted) else None)
    record = Record(run, is_a(ToolStarted), run.cancel)
    await ended(run, record, agent)
    assert twins[0].messages == agent.messages[:2]


async def test_a_parent_token_stops_all_its_runs_and_a_run_does_not_stop_its_parent():
    parent = CancellationToken()
    model = scripted([Stall()], [Stall()], [Stall()])
    agents = [Agent(model) for _ in range(3)]
    runs = [agent.start("go", token=parent) for agent in agents]
    runs[0].cancel("just me")
    await runs[0].stopped()
    assert not parent.cancelled
    parent.cancel("everybody")
    found = [await run for run in runs]
    assert [result.receipt.cause.source for result in found] == ["user", "parent", "parent"]
    assert found[1].receipt.cause.origin is parent.cause


async def test_the_agents_active_runs_are_those_that_have_not_ended():
    agent = Agent(scripted([Stall()]), name="worker")
    run = agent.start("go")
    assert agent.active_runs == (run,)
    assert repr(agent) == "<Agent worker scripted>"
    assert repr(run) == f"<Run {run.id} created>"
    run.cancel()
    await run.stopped()
    assert agent.active_runs == ()
    assert run.usage.entries == (), "it was stopped before its first request"


@pytest.mark.promise("P3")
async def test_messages_are_added_in_the_order_in_which_they_are_announced():
    agent = Agent(scripted([Call("quick")], "Done."), tools=[quick])
    end = await stopped_at(agent, None)
    assert tuple(event.message for event in end.of(MessageAdded)) == end.result.new_messages
    assert [type(message) for message in end.result.messages] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ]
