"""Bad input: each gets a clear, typed error or a message to the model, and the conversation stays valid."""

import asyncio
import threading
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from quiesce import Agent, Conversation, Document, Image, Text, ToolContext, ToolError, UserMessage, tool
from quiesce.errors import (
    ConfigurationError,
    DuplicateTool,
    EmptyAnswer,
    InvalidConversation,
    InvalidPrompt,
    InvalidTool,
    ModelError,
    ModelProtocolError,
    Overloaded,
    RunError,
    ScriptError,
    StreamBroken,
    UnknownModel,
)
from quiesce.events import AnswerEnd, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart, ToolStarted, UsageDelta
from quiesce.hooks import AfterToolCall, BeforeToolCall
from quiesce.messages import AssistantMessage, CutNote, Outcome, ToolResult
from quiesce.models.scripted import Call, Drop, End, Fail, Raw, Say, ScriptedModel, Stall, TornCall
from quiesce.tools.tool import Tool
from quiesce.transcript import faults
from tests.core.kit import NO_WAIT, Ended, Record, ended, is_a, outcomes, results, scripted, stopped_at, until

pytestmark = pytest.mark.promise("P2", "P3", "P4", "P7")


async def one_call(made: Tool, arguments: object = None, **options: object) -> tuple[ToolResult, Ended]:
    """Let a model call a tool once; the result that it is told."""
    agent = Agent(scripted([Call(made.name, arguments if arguments is not None else {})]), tools=[made], **options)
    end = await stopped_at(agent, None)
    assert end.reason == "end_turn"
    (result,) = results(end.result.messages)
    return result, end


# --- Tools ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("k"), SystemExit(3), AssertionError()])
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_tool_that_raises(error, kind):
    if kind == "async":

        @tool
        async def broken() -> str:
            raise error
    else:

        @tool
        def broken() -> str:
            raise error

    result, _ = await one_call(broken)
    assert result.is_error
    assert result.outcome is Outcome.COMPLETED
    assert result.text.startswith(type(error).__name__)


async def test_a_tool_error_is_given_in_the_tools_own_words():
    @tool
    async def broken() -> str:
        raise ToolError("The printer is out of paper.")

    result, end = await one_call(broken)
    assert (result.text, result.is_error) == ("The printer is out of paper.", True)
    assert end.result.receipt.calls[0].ok is False


@pytest.mark.parametrize("value", [object(), {1, object()}, lambda: None, b"\xff\xfe", {"x": object()}])
async def test_a_tool_that_returns_something_unserialisable(value):
    @tool
    async def odd() -> object:
        return value

    result, _ = await one_call(odd)
    assert result.is_error
    assert "cannot be sent" in result.text


class City(BaseModel):
    name: str


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "(no output)"),
        ("", "(no output)"),
        ("  \n", "(no output)"),
        (3, "3"),
        (float("nan"), "NaN"),
        ([1, "a"], '[1,"a"]'),
        ({"a": None}, '{"a":null}'),
        (City(name="Bern"), '{"name":"Bern"}'),
        (Point(1), '{"x":1}'),
        (Text("words"), "words"),
        (Text(" "), "(no output)"),
        ([Text("a"), Text("b")], "ab"),
        ([], "[]"),
        ("\ud83d\ude00", "\U0001f600"),
        ("bad \ud800 half", "bad \ufffd half"),
    ],
)
async def test_what_a_tool_returns_and_what_the_model_is_told(value, told):
    @tool
    async def give() -> object:
        return value

    result, _ = await one_call(give)
    assert (result.text, result.is_error) == (told, False)


async def test_a_tool_may_return_pictures():
    picture = Image(data=b"png")

    @tool
    async def draw() -> object:
        return [Text("Here: "), picture]

    result, _ = await one_call(draw)
    assert result.content == (Text("Here: "), picture)


BAD_RESULTS = [
    ToolResult("other", "other", (Text("x"),)),
    ToolResult("call_1", "give", ()),
    ToolResult("call_1", "give", (Text(" "),)),
    ToolResult("call_1", "give", (Text("\ud800"),)),
    Image(),
    Document(),
    [Text("x"), Image()],
]


@pytest.mark.parametrize("value", BAD_RESULTS, ids=lambda value: repr(value)[:60])
@pytest.mark.parametrize("by", ["tool", "before hook", "after hook"])
async def test_a_result_that_providers_would_refuse_does_not_spoil_the_conversation(value, by):
    @tool
    async def give() -> object:
        return value if by == "tool" else "fine"

    def before(event: BeforeToolCall) -> None:
        if by == "before hook":
            event.replace(value)

    def after(event: AfterToolCall) -> None:
        if by == "after hook":
            event.replace(value)

    result, _ = await one_call(give, hooks=[before, after])
    assert result.call_id == "call_1"


async def test_a_tool_that_never_returns_is_stopped_by_the_timeout():
    @tool
    async def forever() -> str:
        await asyncio.get_running_loop().create_future()

    agent = Agent(scripted([Call("forever")]), tools=[forever], timeout=1000)
    run = agent.start("go")
    end = await ended(run, Record(run, is_a(ToolStarted), lambda: run.deadline_passed(1000)), agent)
    assert end.reason == "cancelled"
    assert outcomes(end.result) == {"forever": "cancelled"}


@pytest.mark.leaves("tasks")
async def test_a_tool_that_swallows_its_cancellation_is_abandoned_and_named():
    gate = asyncio.Event()

    @tool(grace=0.01)
    async def deaf() -> str:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return "done anyway"

    agent = Agent(scripted([Call("deaf", id="d")]), tools=[deaf])
    run = agent.start("go")
    end = await ended(run, Record(run, is_a(ToolStarted), run.cancel), agent)
    assert outcomes(end.result) == {"deaf": "abandoned"}
    assert end.result.receipt.still_running == ("tool deaf (d)",)
    gate.set()
    await until(lambda: end.result.receipt.late)
    assert end.result.receipt.late[0].detail == "done anyway"
    assert faults(agent.messages) == ()


def test_a_tool_that_is_named_twice():
    def same() -> str: ...

    with pytest.raises(DuplicateTool, match="Two tools are named 'same'"):
        Agent(scripted(), tools=[same, tool(name="same")(lambda: "x")])


def test_functions_that_cannot_be_tools():
    def positional(x, /): ...
    def many(*args): ...
    def any_name(**options): ...
    def unknown(x: "Nowhere"): ...  # noqa: F821
    def odd(x: threading.Lock): ...

    for function in (positional, many, any_name, unknown):
        with pytest.raises(InvalidTool):
            Agent(scripted(), tools=[function])
    with pytest.raises(ConfigurationError):
        Agent(scripted(), tools=[odd])
    with pytest.raises(InvalidTool, match="cannot be named"):
        tool(name="not a name")(many)
    with pytest.raises(ConfigurationError, match="no stop policy 'gently'"):
        tool(on_stop="gently")(many)
    with pytest.raises(ConfigurationError, match="grace of -1"):
        tool(grace=-1)(many)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("not json", "not a JSON object"),
        ("[1, 2]", "not a JSON object"),
        ('{"x": NaN}', "not a JSON object"),
        ('{"x": 1', "not a JSON object"),
        ('{"x": "\\ud800"}', "not"),
        ('{"x": 1e999}', "not"),
        ('{"x": "many"}', "x: Input should be a valid integer"),
        ("{}", "x: Field required"),
        ('{"x": 1, "y": 2}', "y: Extra inputs are not permitted"),
        ('{"x": ' + "[" * 5000 + "]" * 5000 + "}", "not"),
    ],
)
async def test_arguments_that_do_not_fit(arguments, told):
    @tool
    async def double(x: int) -> int:
        return 2 * x

    agent = Agent(scripted([Call("double", arguments, chunk=2000)]), tools=[double])
    end = await stopped_at(agent, None)
    assert end.reason == "end_turn"
    (result,) = results(end.result.messages)
    assert result.is_error
    assert told in result.text
    assert end.of(ToolStarted) == []


async def test_no_arguments_at_all_means_none():
    @tool
    async def hello() -> str:
        return "hi"

    result, _ = await one_call(hello, "")
    assert result.text == "hi"


async def test_an_unknown_tool():
    agent = Agent(scripted([Call("nowhere")]))
    end = await stopped_at(agent, None)
    (result,) = results(end.result.messages)
    assert result.text == "There is no tool named 'nowhere'."
    assert end.reason == "end_turn"


async def test_a_context_is_injected_by_type_and_reports_and_stops():
    @tool
    def work(x: int, context: ToolContext) -> str:
        context.report({"x": x})
        context.state["seen"] = (context.tool_name, context.call_id, bool(context.run_id), context.token.cancelled)
        context.cancel()
        return "done"

    agent = Agent(scripted([Call("work", {"x": 3}, id="w")]), tools=[work])
    end = await stopped_at(agent, None)
    assert agent.state["seen"] == ("work", "w", True, False)
    assert (end.reason, end.result.receipt.cause.source) == ("cancelled", "tool")
    assert outcomes(end.result) == {"work": "completed"}
    assert "context" not in str(work.spec.schema)


# --- Models ---------------------------------------------------------------------------------------------------------


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
        await end.record.run.result()
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
    result = run._ended.result()
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
    result = await run.result()
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


async def test_usage_after_the_end_of_the_answer_counts():
    agent = Agent(scripted([Raw(TextDelta("x")), Raw(AnswerEnd()), Raw(UsageDelta(input=3, output=1, final=True))]))
    model = agent._setup.model
    run = agent.start("go")
    await run.stopped()
    assert model.open_streams == 0
    assert faults(agent.messages) == ()


# --- Prompts and configuration --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt",
    [
        3,
        None,
        b"x",
        {},
        "",
        "  ",
        "\ud800",
        [],
        [3],
        [Text("")],
        [Image()],
        UserMessage(()),
        UserMessage((CutNote("x"),)),
    ],
)
async def test_a_prompt_of_the_wrong_type_changes_nothing(prompt):
    agent = Agent(scripted())
    with pytest.raises(InvalidPrompt, match="The conversation is unchanged"):
        agent.start(prompt)
    assert agent.messages == ()
    assert agent.active_runs == ()
    assert (await agent.invoke_async("fine")).stop_reason == "end_turn"


@pytest.mark.parametrize("prompt", ["x", ["a", Text("b")], (Text("a"), Image(url="u")), UserMessage((Text("x"),))])
async def test_prompts_that_can_be_sent(prompt):
    assert (await Agent(scripted()).invoke_async(prompt)).stop_reason == "end_turn"


def test_agents_that_cannot_work():
    model = scripted()
    with pytest.raises(UnknownModel):
        Agent("nobody:model")
    for options in (
        {"cut_note": " "},
        {"tool_execution": "sideways"},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"output_type": threading.Lock},
        {"hooks": [lambda event: None]},
        {"hooks": [3]},
        {"hooks": [lambda: None]},
    ):
        with pytest.raises(ConfigurationError):
            Agent(model, **options)
    with pytest.raises(ConfigurationError, match="is not a model"):
        Agent(3)
    with pytest.raises(InvalidConversation):
        Agent(model, messages=[AssistantMessage((Text("hi"),))])
    with pytest.raises(InvalidConversation, match="must end with an assistant"):
        Conversation((UserMessage((Text("hi"),)),))
    with pytest.raises(ConfigurationError, match="needs a price"):
        from quiesce import Limits

        Agent(model, limits=Limits(cost="0.5"))("go")
