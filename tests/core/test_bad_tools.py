"""Bad tools, results and arguments: each is a clear message to the model, and the conversation stays valid."""

import asyncio
import threading
from dataclasses import dataclass

import pytest

from quiesce import Agent, Document, Image, Text, ToolContext, ToolError, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ConfigurationError, DuplicateTool, InvalidTool
from quiesce.events import ToolStarted
from quiesce.hooks import AfterToolCall, BeforeToolCall
from quiesce.messages import Outcome, ToolCall, ToolResult
from quiesce.models.scripted import Call
from quiesce.tools.output import completed_result
from quiesce.tools.tool import Tool
from tests.core.kit import City, Ended, Record, ended, is_a, outcomes, results, scripted, stopped_at, until

pytestmark = pytest.mark.promise("P4", "P7")


async def one_call(made: Tool, arguments: object = None, **options: object) -> tuple[ToolResult, Ended]:
    """Let a model call a tool once; the result that it is told."""
    agent = Agent(scripted([Call(made.name, arguments if arguments is not None else {})]), tools=[made], **options)
    end = await stopped_at(agent, None)
    assert end.reason == "end_turn"
    (result,) = results(end.result.messages)
    return result, end


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
        ([Text("a"), Text("b")], "a\nb"),
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


async def test_half_a_character_in_structured_content_does_not_cost_the_result():
    @tool
    async def give() -> object:
        return ToolResult("call_1", "give", (Text("x"),), structured_content={"a": ["\ud800"]})

    result, _ = await one_call(give)
    assert (result.text, result.is_error, result.structured_content) == ("x", False, {"a": ["\ufffd"]})


def test_options_beside_the_function_count():
    def pay() -> str:
        return "paid"

    assert tool(pay, requires_approval=True, name="till").requires_approval is True


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


@pytest.mark.feature
def test_a_tool_that_is_named_twice():
    def same() -> str: ...

    with pytest.raises(DuplicateTool, match="Two tools are named 'same'"):
        Agent(scripted(), tools=[same, tool(name="same")(lambda: "x")])


@pytest.mark.feature
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


class Grid:
    """Looks like an array or a table, as far as the text needs it."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, dtype

    def __getitem__(self, rows: slice) -> str:
        return f"[rows up to {rows.stop}]"

    def item(self) -> int:
        return 7


@pytest.mark.promise("P3")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Grid((3, 2), "float64"), "Grid of shape (3, 2) (float64):\n[rows up to 20]"),
        (Grid((100,), "int8"), "Grid of shape (100,) (int8), the first 20 rows:\n[rows up to 20]"),
        (Grid((), "int64"), "7"),
        ({"a": Grid((1,), "int8")}, '{"a":"Grid of shape (1,) (int8):\\n[rows up to 20]"}'),
    ],
)
def test_an_array_is_shown_with_its_shape_and_first_rows(value: object, text: str) -> None:
    result = completed_result(ToolCall("a", "look", {}), value)
    assert (result.text, result.is_error) == (text, False)


@pytest.mark.promise("P3")
def test_real_arrays_and_tables() -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    call = ToolCall("a", "look", {})
    array = completed_result(call, numpy.zeros((3, 2)))
    assert array.text.startswith("ndarray of shape (3, 2) (float64):\n[[0. 0.]")
    assert completed_result(call, numpy.int64(7)).text == "7"
    table = completed_result(call, pandas.DataFrame({"a": range(50), "b": "x"}))
    assert table.text.startswith("DataFrame of shape (50, 2) (a: int64, b: ")
    assert ", the first 20 rows:\n" in table.text
    assert not table.is_error
