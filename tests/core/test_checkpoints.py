"""One test per place where a stop can hit, each in isolation."""

import asyncio
import threading

import pytest
from pydantic import BaseModel

from quiesce import Agent, Limits, tool
from quiesce.errors import Overloaded
from quiesce.events import (
    AnswerEnd,
    AnswerStart,
    MessageAdded,
    ModelCallStarted,
    OutputRejected,
    ReasoningDelta,
    RetryScheduled,
    RunStarted,
    StopRequested,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnStarted,
    UsageDelta,
)
from quiesce.hooks import AfterModelCall, AfterRun, BeforeModelCall, BeforeRun, BeforeToolCall, OnMessage, OnStop
from quiesce.messages import AssistantMessage, Outcome, Text, ToolMessage, UserMessage
from quiesce.models.scripted import Call, Fail, Say, ScriptedModel, Stall, Think, Used
from quiesce.state import Phase
from tests.core.kit import Ended, HandModel, Record, answers, ended, is_a, notes, outcomes, scripted, stopped_at, until

pytestmark = pytest.mark.promise("P1", "P2", "P3", "P4", "P7")


@tool
async def quick(x: int = 0) -> str:
    """Answers at once."""
    return f"quick {x}"


@tool
async def forever() -> str:
    """Never answers."""
    await asyncio.get_running_loop().create_future()
    return "never"


def assert_cancelled(end: Ended, phase: Phase) -> None:
    assert end.reason == "cancelled"
    assert end.result.receipt.phase is phase
    assert end.result.receipt.cause.source == "user"
    assert end.result.receipt.still_running == ()


# --- Before anything is sent ----------------------------------------------------------------------------------------


@pytest.mark.case("claude-agent-sdk-typescript#429")
async def test_armed_before_the_run_no_model_call_is_made():
    model = ScriptedModel("hello")
    agent = Agent(model)
    agent.cancel("too early")
    end = await stopped_at(agent, None)
    assert_cancelled(end, Phase.CREATED)
    assert model.requests == []
    assert end.result.usage.calls == 0
    assert end.result.messages[0] == UserMessage((Text("go"),))
    assert (await answers(agent)).text == "hello"


@pytest.mark.parametrize("mode", ["after_turn", "after_tools", "now", "kill"])
async def test_a_stop_before_the_first_step_makes_no_model_call(mode):
    model = scripted()
    agent = Agent(model)
    run = agent.start("go")
    run.cancel(mode=mode)
    end = await ended(run, Record(run), agent)
    assert_cancelled(end, Phase.CREATED)
    assert model.requests == []
    await answers(agent)


@pytest.mark.parametrize("event", [RunStarted, MessageAdded])
async def test_at_the_very_beginning(event):
    model = scripted()
    agent = Agent(model)
    end = await stopped_at(agent, is_a(event))
    assert_cancelled(end, Phase.TURN_START)
    assert model.requests == []
    await answers(agent)


async def test_turn_start():
    model = scripted()
    agent = Agent(model)
    end = await stopped_at(agent, is_a(TurnStarted))
    assert_cancelled(end, Phase.CALLING)
    assert model.requests == []
    await answers(agent)


async def test_before_the_model_call_in_its_hook():
    def stop(event: BeforeModelCall) -> None:
        event.cancel("not this request")

    model = scripted()
    agent = Agent(model, hooks=[stop])
    end = await stopped_at(agent, None)
    assert end.reason == "cancelled"
    assert end.result.receipt.cause.source == "hook"
    assert end.result.receipt.phase is Phase.CALLING
    assert model.requests == []
    assert end.of(ModelCallStarted) == []
    assert end.result.usage.calls == 0


async def test_while_the_request_is_on_its_way():
    model = HandModel()
    agent = Agent(model)
    run = agent.start("go")
    record = Record(run)
    await until(lambda: model.open_streams)
    run.cancel()
    end = await ended(run, record, agent)
    assert_cancelled(end, Phase.CALLING)
    assert model.open_streams == 0
    assert end.result.usage.calls == 1
    assert end.result.usage.entries[0].ended == "hung_up"
    assert end.result.usage.input.value > 0, "what was sent is known well enough for an estimate"
    assert end.result.usage.output.value is None, "unknown is not zero"


# --- In each kind of delta ------------------------------------------------------------------------------------------

FULL_ANSWER = [
    Think("Let me think about it. ", signature="signed"),
    Say("I will look. "),
    Call("quick", {"x": 1}, id="one"),
    Used(input=10, output=5),
]


@pytest.mark.parametrize(
    "delta", [AnswerStart, ReasoningDelta, TextDelta, ToolCallStart, ToolCallArguments, ToolCallEnd, UsageDelta]
)
@pytest.mark.case("langgraph#5672", "vercel/ai#6699", "gemini-cli#11309")
async def test_in_each_kind_of_delta(delta):
    model = scripted(FULL_ANSWER)
    agent = Agent(model, tools=[quick])
    end = await stopped_at(agent, is_a(delta))
    assert_cancelled(end, Phase.STREAMING)
    assert model.open_streams == 0
    assert len(model.requests) == 1
    assert len(end.of(delta)) == 1
    assert end.of(ToolStarted) == []
    called = delta in (ToolCallEnd, UsageDelta)
    assert [each.outcome for each in end.of(ToolEnded) for each in [each.result]] == (
        [Outcome.NEVER_STARTED] if called else []
    )
    assert notes(end.result.messages) == ["(This answer was stopped here.)"]
    await answers(agent)


async def test_in_the_middle_of_text_the_words_stay_and_are_marked():
    agent = Agent(scripted([Say("one two three four", chunk=4)]))
    end = await stopped_at(agent, is_a(TextDelta, 2))
    (answer,) = [message for message in end.result.messages if isinstance(message, AssistantMessage)]
    assert answer.cut
    assert answer.content[0] == Text("one two ", cut=True)
    assert end.result.text == "one two "
    assert end.result.receipt.kept_text == len("one two ")


async def test_in_torn_arguments_the_call_is_cut_and_the_receipt_says_so():
    agent = Agent(scripted([Say("Now: "), Call("quick", {"x": 12345678}, chunk=4)]), tools=[quick])
    end = await stopped_at(agent, is_a(ToolCallArguments))
    assert end.result.messages[-1].tool_calls == ()
    (line,) = end.result.receipt.calls
    assert (line.name, line.outcome) == ("quick", Outcome.NEVER_STARTED)
    assert "wrote the arguments" in line.detail


async def test_of_two_interleaved_calls_the_finished_one_is_salvaged():
    def finished_first(event: object) -> bool:
        return isinstance(event, ToolCallArguments) and event.id == "second"

    agent = Agent(scripted([Call("quick", {"x": 1}, id="first"), Call("quick", {"x": 2}, id="second")]), tools=[quick])
    end = await stopped_at(agent, finished_first)
    answer = next(message for message in end.result.messages if isinstance(message, AssistantMessage))
    assert [call.id for call in answer.tool_calls] == ["first"]
    assert [call.call_id for call in end.result.receipt.calls] == ["first", "second"]


async def test_at_the_answers_end_with_nothing_more_to_do_the_run_has_finished():
    agent = Agent(scripted("All done."))
    end = await stopped_at(agent, is_a(AnswerEnd))
    assert end.reason == "end_turn"
    assert end.result.receipt.cause is None
    assert notes(end.result.messages) == []


async def test_after_turn_lets_the_answer_and_its_tools_finish():
    model = scripted([Say("Looking. "), Call("quick", {"x": 1})])
    agent = Agent(model, tools=[quick])
    end = await stopped_at(agent, is_a(TextDelta), mode="after_turn")
    assert_cancelled(end, Phase.TURN_START)
    assert outcomes(end.result) == {"quick": "completed"}
    assert len(model.requests) == 1


# --- Between the answer and its tools -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["after_tools", "now", "kill"])
@pytest.mark.case("PraisonAI#4300")
async def test_after_the_answer_and_before_its_tools(mode):
    agent = Agent(scripted([Call("quick"), Call("quick")]), tools=[quick])
    end = await stopped_at(agent, is_a(AnswerEnd), mode=mode)
    assert end.reason == "cancelled"
    assert end.of(ToolStarted) == []
    assert {each.outcome for each in end.result.receipt.calls} == {Outcome.NEVER_STARTED}
    assert len(end.of(ToolEnded)) == 2
    await answers(agent)


async def test_after_the_answer_in_its_hook():
    def stop(event: AfterModelCall) -> None:
        event.cancel("I do not like these tools")

    agent = Agent(scripted([Call("quick")]), tools=[quick], hooks=[stop])
    end = await stopped_at(agent, None)
    assert end.result.receipt.phase is Phase.ANSWERED
    assert outcomes(end.result) == {"quick": "never_started"}


# --- Tools ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("mode", ["after_tools", "now"])
@pytest.mark.case("cursor-forum#162261")
async def test_before_each_sequential_tool(before, mode):
    started: list[int] = []

    @tool(sequential=True)
    async def step(number: int) -> str:
        started.append(number)
        return f"did {number}"

    def stop(event: BeforeToolCall) -> None:
        if event.call.arguments["number"] == before:
            event.cancel("enough", mode=mode)

    calls = [Call("step", {"number": number}) for number in (1, 2, 3)]
    agent = Agent(scripted(calls), tools=[step], hooks=[stop])
    end = await stopped_at(agent, None)
    assert started == list(range(1, before))
    told = [
        result.outcome.value
        for message in end.result.messages
        if isinstance(message, ToolMessage)
        for result in message.results
    ]
    assert told == ["completed"] * (before - 1) + ["never_started"] * (4 - before)
    await answers(agent)


@pytest.mark.case("langgraph#6726", "pydantic-ai#7977", "claude-code#2039", "claude-code#12162", "crush#529")
async def test_inside_an_async_tool():
    cleaned = []

    @tool
    async def work() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append("up")

    agent = Agent(scripted([Say("Working. "), Call("work")]), tools=[work])
    end = await stopped_at(agent, is_a(ToolStarted))
    assert_cancelled(end, Phase.ACTING)
    assert outcomes(end.result) == {"work": "cancelled"}
    assert cleaned == ["up"]
    assert end.of(StopRequested)[0].waiting_for == ("work",)
    assert end.result.receipt.waited_for == ("work",)
    await answers(agent)


async def test_inside_a_sync_tool_that_watches_its_token():
    from quiesce import ToolContext

    @tool(on_stop="cancel", grace=20)
    def work(context: ToolContext) -> str:
        context.token.wait_sync(20)
        context.token.raise_if_cancelled()
        return "never"

    agent = Agent(scripted([Call("work")]), tools=[work])
    end = await stopped_at(agent, is_a(ToolStarted))
    assert_cancelled(end, Phase.ACTING)
    assert outcomes(end.result) == {"work": "cancelled"}
    await answers(agent)


@pytest.mark.case("pydantic-ai#3960", "pydantic-ai#7692")
async def test_inside_a_sync_tool_that_does_not_stop():
    release = threading.Event()

    @tool(grace=0.01)
    def stubborn() -> str:
        release.wait(20)
        return "done at last"

    agent = Agent(scripted([Call("stubborn", id="s")]), tools=[stubborn])
    run = agent.start("go")
    record = Record(run, is_a(ToolStarted), run.cancel)
    await run.stopped()
    result = await run.result()
    assert outcomes(result) == {"stubborn": "abandoned"}
    assert result.receipt.still_running == ("tool stubborn (s)",)
    release.set()
    await until(lambda: result.receipt.late)
    (late,) = result.receipt.late
    assert (late.name, late.ok, late.detail) == ("stubborn", True, "done at last")
    assert record.faults == []
    assert "later     stubborn finished" in str(result.receipt)


async def test_inside_a_generator_tool_after_its_progress():
    closed = []

    @tool
    async def count(to: int):
        try:
            for number in range(to):
                yield number
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append(True)

    agent = Agent(scripted([Call("count", {"to": 2})]), tools=[count])
    end = await stopped_at(agent, is_a(ToolProgress, 2))
    assert [event.progress for event in end.of(ToolProgress)] == [0, 1]
    assert outcomes(end.result) == {"count": "cancelled"}
    assert closed == [True]


@pytest.mark.case("openai-agents#lost-tool-results")
async def test_a_tool_that_finished_keeps_its_result_when_another_is_stopped():
    agent = Agent(scripted([Call("forever"), Call("quick", {"x": 7})]), tools=[quick, forever])
    end = await stopped_at(agent, is_a(ToolEnded))
    assert outcomes(end.result) == {"forever": "cancelled", "quick": "completed"}
    assert "quick 7" in str(end.result.messages)
    await answers(agent)


async def test_after_tools_waits_for_the_tools_that_run_and_starts_no_more():
    gate = asyncio.Event()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow result"

    agent = Agent(scripted([Call("slow"), Call("quick")]), tools=[slow, quick], tool_execution="sequential")
    run = agent.start("go")

    def stop() -> None:
        run.cancel(mode="after_tools")
        gate.set()

    end = await ended(run, Record(run, is_a(ToolStarted), stop), agent)
    assert end.reason == "cancelled"
    assert outcomes(end.result) == {"slow": "completed", "quick": "never_started"}


async def test_after_the_tools_and_before_the_next_call():
    model = scripted([Call("quick")])
    agent = Agent(model, tools=[quick])
    end = await stopped_at(
        agent, lambda event: isinstance(event, MessageAdded) and isinstance(event.message, ToolMessage)
    )
    assert_cancelled(end, Phase.TURN_START)
    assert outcomes(end.result) == {"quick": "completed"}
    assert len(model.requests) == 1
    await answers(agent)


async def test_at_the_last_tools_end():
    model = scripted([Call("quick")])
    agent = Agent(model, tools=[quick])
    end = await stopped_at(agent, is_a(ToolEnded))
    assert end.reason == "cancelled"
    assert outcomes(end.result) == {"quick": "completed"}
    assert len(model.requests) == 1


# --- Waiting, hooks, retries ----------------------------------------------------------------------------------------


@pytest.mark.case("strands#4250")
@pytest.mark.parametrize("mode", ["after_tools", "now", "kill"])
async def test_in_a_back_off(mode):
    agent = Agent(scripted([Fail(Overloaded("try later", retry_after=100))]))
    end = await stopped_at(agent, is_a(RetryScheduled), mode=mode)
    assert_cancelled(end, Phase.BACKING_OFF)
    assert end.result.receipt.latency < 50
    assert end.result.usage.entries[0].ended == "failed"
    await answers(agent)


@pytest.mark.parametrize("kind", [BeforeRun, BeforeModelCall, AfterModelCall, OnMessage])
async def test_in_a_hook_that_is_waiting(kind):
    entered, left = asyncio.Event(), []

    async def wait_for_ever(event) -> None:
        entered.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            left.append(type(event))

    agent = Agent(scripted([Call("quick")]), tools=[quick])
    agent.hook(kind)(wait_for_ever)
    run = agent.start("go")
    record = Record(run)
    await entered.wait()
    run.cancel(mode="kill")
    end = await ended(run, record, agent)
    assert end.reason == "cancelled"
    assert kind in left
    assert end.result.receipt.still_running == ()


async def test_in_a_tool_hook_that_is_waiting_the_tool_never_starts():
    entered = asyncio.Event()

    async def wait_for_ever(event: BeforeToolCall) -> None:
        entered.set()
        await asyncio.get_running_loop().create_future()

    agent = Agent(scripted([Call("quick")]), tools=[quick], hooks=[wait_for_ever])
    run = agent.start("go")
    record = Record(run)
    await entered.wait()
    run.cancel()
    end = await ended(run, record, agent)
    assert outcomes(end.result) == {"quick": "never_started"}


class City(BaseModel):
    name: str
    people: int


async def test_during_a_structured_output_retry():
    model = scripted("not json", '{"name": "Bern", "people": 1}')
    agent = Agent(model, output_type=City)
    end = await stopped_at(agent, is_a(OutputRejected))
    assert end.reason == "cancelled"
    assert end.result.output is None
    assert len(model.requests) == 1
    again = await agent.invoke_async("please")
    assert again.output == City(name="Bern", people=1)


async def test_in_the_middle_of_structured_output_half_an_object_is_never_given():
    agent = Agent(
        scripted([Say('{"name": "Bern", "people": 1', chunk=100), Say("34000}", chunk=100)]), output_type=City
    )
    end = await stopped_at(agent, is_a(TextDelta))
    assert end.reason == "cancelled"
    assert end.result.output is None
    assert end.result.text == '{"name": "Bern", "people": 1'


# --- While settling, and after --------------------------------------------------------------------------------------


async def test_a_second_stop_while_settling_changes_nothing():
    agent = Agent(scripted([Call("forever")]), tools=[forever])
    end = await stopped_at(agent, is_a(ToolStarted), then="now")
    assert_cancelled(end, Phase.ACTING)
    assert len(end.of(StopRequested)) == 1
    assert end.result.receipt.cause.reason == "the test said so"


async def test_escalation_while_settling_takes_the_grace_away():
    @tool(on_stop="finish", grace=1000)
    async def patient() -> str:
        await asyncio.get_running_loop().create_future()

    agent = Agent(scripted([Call("patient")]), tools=[patient])
    run = agent.start("go")
    record = Record(run, is_a(ToolStarted), lambda: run.cancel("first"))
    run.tap(lambda event: run.cancel("now really", mode="kill") if isinstance(event, StopRequested) else None)
    end = await ended(run, record, agent)
    assert outcomes(end.result) == {"patient": "cancelled"}
    assert end.result.receipt.cause.reason == "first"
    assert end.result.receipt.mode == "kill"


async def test_escalation_after_waiting_for_tools():
    agent = Agent(scripted([Call("forever")]), tools=[forever])
    run = agent.start("go")
    record = Record(run, is_a(ToolStarted), lambda: run.cancel(mode="after_tools"))
    await until(lambda: run.phase is Phase.ACTING and record.stops)
    assert not run.done
    run.cancel(mode="now")
    end = await ended(run, record, agent)
    assert outcomes(end.result) == {"forever": "cancelled"}
    assert end.result.receipt.mode == "now"


async def test_a_stop_while_the_hooks_hear_of_the_end_comes_too_late_but_ends_the_waiting():
    entered = asyncio.Event()

    async def linger(event: AfterRun) -> None:
        entered.set()
        await asyncio.get_running_loop().create_future()

    agent = Agent(scripted("Done."), hooks=[linger])
    run = agent.start("go")
    record = Record(run)
    await entered.wait()
    run.cancel()
    end = await ended(run, record, agent)
    assert end.reason == "end_turn"
    assert end.result.receipt.cause is None


@pytest.mark.promise("P8")
@pytest.mark.case("strands#4107", "strands#2156")
async def test_after_the_end_a_stop_touches_nothing():
    agent = Agent(scripted("Done."))
    end = await stopped_at(agent, None)
    before = agent.messages
    assert end.record.run.cancel("too late") is False
    assert end.record.run.cancel("too late", mode="kill") is False
    assert end.reason == "end_turn"
    assert agent.messages == before
    assert (await answers(agent)).text == "Fine."


async def test_a_stall_is_cut():
    model = scripted([Say("Well"), Stall()])
    agent = Agent(model)
    end = await stopped_at(agent, is_a(TextDelta))
    assert_cancelled(end, Phase.STREAMING)
    assert model.open_streams == 0


async def test_a_deadline_cuts_a_stream_in_the_middle():
    agent = Agent(scripted([Say("Well"), Stall()]), timeout=1000)
    run = agent.start("go")
    end = await ended(run, Record(run, is_a(TextDelta), lambda: run.deadline_passed(1000)), agent)
    assert end.reason == "cancelled"
    assert end.result.receipt.cause.source == "deadline"
    assert end.result.text == "Well"


async def test_a_token_budget_cuts_inside_an_answer():
    agent = Agent(scripted([Say("word " * 100)]), limits=Limits(output_tokens=10))
    end = await stopped_at(agent, None)
    assert end.reason == "limit"
    assert end.result.receipt.cause.source == "budget"
    assert 0 < len(end.result.text) < 100


async def test_on_stop_hooks_hear_of_the_stop_once():
    heard = []

    def hear(event: OnStop) -> None:
        heard.append(event.cause.reason)

    agent = Agent(scripted([Stall()]), hooks=[hear])
    await stopped_at(agent, is_a(AnswerStart))
    assert heard == ["the test said so"]
