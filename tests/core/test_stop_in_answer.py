"""A stop at each place before the tools, in isolation: before anything is sent, in the answer, right after it."""

import pytest

from quiesce import Agent
from quiesce.events import (
    AnswerEnd,
    AnswerStart,
    MessageAdded,
    ModelCallStarted,
    ReasoningDelta,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolEnded,
    ToolStarted,
    TurnStarted,
    UsageDelta,
)
from quiesce.hooks import AfterModelCall, BeforeModelCall
from quiesce.messages import AssistantMessage, Outcome, Text, UserMessage
from quiesce.models.scripted import Call, Say, ScriptedModel, Think, Used
from quiesce.phases import Phase
from tests.core.checkpoints import assert_cancelled, quick
from tests.core.kit import HandModel, Record, answers, ended, is_a, notes, outcomes, scripted, stopped_at, until

pytestmark = pytest.mark.promise("P2", "P3")


# --- Before anything is sent -----------------------------------------------------------------------------------------


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


# --- In each kind of delta -------------------------------------------------------------------------------------------


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


# --- Between the answer and its tools --------------------------------------------------------------------------------


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
