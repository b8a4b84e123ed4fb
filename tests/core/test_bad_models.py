"""Models that misbehave: each is a clear, typed error or is mended, and the conversation stays valid."""

import pytest

from quiesce import Agent, tool
from quiesce.conversation.validity import faults
from quiesce.errors import (
    ConfigurationError,
    EmptyAnswer,
    ModelError,
    ModelProtocolError,
    Overloaded,
    RunError,
    ScriptError,
    StreamBroken,
)
from quiesce.events import AnswerEnd, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart, UsageDelta
from quiesce.messages import CutNote
from quiesce.models.scripted import Call, Drop, End, Fail, Raw, Say, ScriptedModel, Stall, TornCall
from tests.core.kit import NO_WAIT, City, results, scripted, stopped_at

pytestmark = pytest.mark.promise("P2", "P7")


@pytest.mark.parametrize(
    "deltas",
    [
        ["garbage"],
        [None],
        [42],
        [ToolCallArguments("nobody", "{}")],
        [ToolCallEnd("nobody")],
        [ToolCallStart("a", "t"), ToolCallEnd("a"), ToolCallArguments("a", "{}")],
        [ToolCallStart("a", "t"), AnswerEnd("tool_use")],
        [TextDelta("x"), AnswerEnd(), TextDelta("y")],
        [TextDelta("x"), AnswerEnd(), AnswerEnd()],
    ],
)
async def test_a_model_that_sends_garbage(deltas):
    agent = Agent(scripted([Raw(delta) for delta in deltas]), retry=NO_WAIT)
    end = await stopped_at(agent, None)
    assert end.reason == "error"
    assert isinstance(end.result.error, ModelProtocolError)
    with pytest.raises(ModelProtocolError) as caught:
        await end.record.run
    assert caught.value.result is end.result
    assert "conversation" in str(caught.value)
    assert (await agent.invoke_async("again")).stop_reason == "end_turn"


async def test_a_model_that_raises_what_it_should_not():
    agent = Agent(scripted([Say("Well"), Fail(ZeroDivisionError("oops"))]))
    end = await stopped_at(agent, None)
    assert isinstance(end.result.error, ModelProtocolError)
    assert isinstance(end.result.error.__cause__, ZeroDivisionError)
    assert end.result.text == "Well"


@pytest.mark.parametrize("answer", [[], [Say("  ")], [Raw(TextDelta(""))], [End("end_turn")]])
async def test_a_model_that_sends_nothing_is_asked_again_and_then_it_is_an_error(answer):
    agent = Agent(ScriptedModel(then=answer), retry=NO_WAIT)
    run = agent.start("go")
    await run.stopped()
    result = run.inspect().result
    assert isinstance(result.error, EmptyAnswer)
    assert result.usage.calls == 4
    assert faults(result.messages) == ()


async def test_an_answer_of_nothing_but_max_tokens():
    agent = Agent(scripted([End("max_tokens")]))
    end = await stopped_at(agent, None)
    assert end.reason == "max_tokens"


async def test_an_answer_of_nothing_but_max_tokens_where_a_type_is_wanted():
    agent = Agent(scripted([End("max_tokens")], '{"name": "Bern"}'), output_type=City)
    end = await stopped_at(agent, None)
    assert end.reason == "end_turn"
    assert end.result.output == City(name="Bern")


async def test_arguments_that_max_tokens_cut_are_left_out():
    agent = Agent(scripted([Say("Now: "), TornCall("t"), End("max_tokens")]))
    end = await stopped_at(agent, None)
    assert end.reason == "max_tokens"
    assert end.result.messages[-1].tool_calls == ()


async def test_duplicate_call_ids_are_made_unique_within_and_across_answers():
    @tool
    async def echo(x: int) -> int:
        return x

    model = scripted(
        [Call("echo", {"x": 1}, id="same"), Call("echo", {"x": 2}, id="same")], Call("echo", {"x": 3}, id="same")
    )
    agent = Agent(model, tools=[echo])
    end = await stopped_at(agent, None)
    assert [result.call_id for result in results(end.result.messages)] == ["same", "same_2", "same_3"]
    assert [result.text for result in results(end.result.messages)] == ["1", "2", "3"]
    assert [event.id for event in end.of(ToolCallEnd)] == ["same", "same_2", "same_3"]


@pytest.mark.parametrize("call_id", ["a b", "call/1", "", "é", "\ud800"])
async def test_call_ids_that_providers_refuse_are_made_legal(call_id):
    @tool
    async def echo() -> str:
        return "ok"

    deltas = [
        ToolCallStart(call_id, "echo"),
        ToolCallArguments(call_id, "{}"),
        ToolCallEnd(call_id),
        AnswerEnd("tool_use"),
    ]
    agent = Agent(scripted([*[Raw(delta) for delta in deltas[:-1]], End("tool_use")]), tools=[echo])
    end = await stopped_at(agent, None)
    assert end.reason == "end_turn"
    assert results(end.result.messages)[0].text == "ok"


@pytest.mark.parametrize("name", ["a b", "", "x" * 200, "\ud800", "füße"])
async def test_tool_names_that_providers_refuse_are_made_legal(name):
    agent = Agent(scripted([Call(name)]))
    end = await stopped_at(agent, None)
    assert results(end.result.messages)[0].is_error


async def test_surrogates_that_a_stream_split_are_joined_and_lone_ones_replaced():
    halves = "\U0001f600".encode("utf-16-be")
    first, second = halves[:2].decode("utf-16-be", "surrogatepass"), halves[2:].decode("utf-16-be", "surrogatepass")
    agent = Agent(scripted([Raw(TextDelta(first)), Raw(TextDelta(second)), Raw(TextDelta(" \ud800!"))]))
    result = await agent.invoke_async("go")
    assert result.text == "\U0001f600 \ufffd!"
    assert faults(result.messages) == ()


async def test_a_stop_between_two_halves_of_a_character():
    agent = Agent(scripted([Raw(TextDelta("x \ud83d")), Stall()]))
    run = agent.start("go")
    run.tap(lambda event: run.cancel() if isinstance(event, TextDelta) else None)
    result = await run
    assert faults(result.messages) == ()
    assert result.text == "x \ufffd"


async def test_a_dropped_connection_before_the_answer_is_tried_again():
    agent = Agent(scripted([Drop()], [Fail(Overloaded("busy", retry_after=0))], "Here."), retry=NO_WAIT)
    end = await stopped_at(agent, None)
    assert end.result.text == "Here."
    assert [entry.ended for entry in end.result.usage.entries] == ["failed", "failed", "completed"]


@pytest.mark.parametrize("how", [Drop(), Fail(Overloaded("busy"))])
async def test_a_connection_that_is_lost_in_the_middle_keeps_what_was_read(how):
    agent = Agent(scripted([Say("Half an "), how]))
    end = await stopped_at(agent, None)
    assert isinstance(end.result.error, StreamBroken)
    assert end.result.text == "Half an "
    assert end.result.messages[-1].content[-1] == CutNote("(This answer ended here because of an error.)")
    assert (await agent.invoke_async("again")).text == "Fine."


async def test_an_error_that_is_not_retried_keeps_its_type():
    agent = Agent(scripted([Say("Half an "), Fail(ModelError("no"))]))
    end = await stopped_at(agent, None)
    assert type(end.result.error) is ModelError


async def test_a_script_that_is_over():
    agent = Agent(ScriptedModel())
    with pytest.raises(RunError):
        await agent.invoke_async("go")
    assert faults(agent.messages) == ()
    assert issubclass(ScriptError, ConfigurationError)


@pytest.mark.promise("P2", "P6")
async def test_usage_after_the_end_of_the_answer_counts():
    agent = Agent(scripted([Raw(TextDelta("x")), Raw(AnswerEnd()), Raw(UsageDelta(input=3, output=1, final=True))]))
    model = agent.config.model
    run = agent.start("go")
    receipt = await run.stopped()
    assert (receipt.usage.input.value, receipt.usage.output.value) == (3, 1)
    assert receipt.usage.is_final
    assert model.open_streams == 0
    assert faults(agent.messages) == ()
