"""Middleware around model calls and tool calls, and the parts that come with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from quiesce import (
    Agent,
    CachePrompt,
    ConcurrencyLimit,
    FallbackModels,
    InputGuardrail,
    Limits,
    Middleware,
    ModelCall,
    OutputGuardrail,
    OutputMissing,
    Price,
    RateLimit,
    Retry,
    Run,
    RunContext,
    Text,
    ToolCallRequest,
    ToolError,
    tool,
)
from quiesce.errors import (
    ConfigurationError,
    GuardrailTripped,
    MiddlewareFailed,
    ModelTimeout,
    Overloaded,
    RateLimited,
    RequestRejected,
    ServerError,
)
from quiesce.events import Delta, ModelCallEnded, ModelCallStarted, ModelCallWaiting, TextDelta, ToolEnded, ToolStarted
from quiesce.hooks import AfterToolCall, BeforeModelCall, BeforeToolCall
from quiesce.messages import AssistantMessage, CutNote, Outcome, UserMessage
from quiesce.middleware import Send, text_answer
from quiesce.models.base import ModelRequest
from quiesce.sessions.journal.recovery import CrashedRun
from quiesce.testing import Call, Drop, End, Fail, Pause, Say, ScriptedModel, Stall, TornCall, Used, run_virtual

pytestmark = pytest.mark.promise("P6")


PRICE = Price(Decimal(1), Decimal(1))


class Replacing(Middleware):
    """Changes the request by what it was made with."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def model_call(self, call: ModelCall, next: Send) -> Any:
        return next(call.replace(**self.changes))


def entries(result: Any) -> list[tuple[str, str]]:
    return [(entry.model, entry.ended) for entry in result.usage.entries]


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


# --- Model calls -----------------------------------------------------------------------------------------------------


async def test_the_request_can_be_changed() -> None:
    model = ScriptedModel(then="Yes.")
    changes = {"instructions": "Shout.", "tools": (), "settings": {"temperature": 0}}
    agent = Agent(model, tools=[add], instructions="Whisper.", middleware=[Replacing(**changes)])
    result = await agent.invoke_async("Hello")
    sent = model.requests[0]
    assert (sent.instructions, sent.tools, sent.settings) == ("Shout.", (), {"temperature": 0})
    assert entries(result) == [("scripted", "completed")]


async def test_the_model_can_be_changed_and_is_billed_by_its_own_name_and_price() -> None:
    other = ScriptedModel([Say("From b."), Used(10, 5)], name="b", price=PRICE)
    agent = Agent(ScriptedModel(name="a"), middleware=[Replacing(model=other)])
    result = await agent.invoke_async("Hello")
    assert result.output == "From b."
    assert entries(result) == [("b", "completed")]
    assert result.cost is not None


async def test_middleware_may_answer_without_a_request() -> None:
    class Closed(Middleware):
        def model_call(self, call: ModelCall, next: Send) -> Any:
            return text_answer("We are closed.")

    model = ScriptedModel()
    result = await Agent(model, middleware=[Closed()]).invoke_async("Hello")
    assert result.output == "We are closed."
    assert model.requests == []
    assert entries(result) == []


async def test_the_first_middleware_is_the_outermost_and_sees_the_deps() -> None:
    order: list[str] = []

    class Noting(Middleware[str]):
        def __init__(self, name: str) -> None:
            self.name = name

        @asynccontextmanager
        async def model_call(self, call: ModelCall[str], next: Send[str]) -> AsyncGenerator[AsyncIterator[Delta]]:
            order.append(f"{self.name} {call.deps}")
            async with next(call) as deltas:
                yield deltas
            order.append(f"{self.name} left")

    agent = Agent(ScriptedModel(then="Yes."), deps_type=str, middleware=[Noting("a"), Noting("b")])
    await agent.invoke_async("Hello", deps="shop")
    assert order == ["a shop", "b shop", "b left", "a left"]


async def test_each_next_is_one_request_with_its_own_entry_and_events() -> None:
    class Twice(Middleware):
        @asynccontextmanager
        async def model_call(self, call: ModelCall, next: Send) -> AsyncGenerator[AsyncIterator[Delta]]:
            async with next(call) as deltas:
                first = "".join([delta.text async for delta in deltas if isinstance(delta, TextDelta)])
            async with text_answer(f"Checked: {first}") as answer:
                async with next(call) as deltas:
                    async for _ in deltas:
                        pass
                yield answer

    events: list[object] = []
    run = Agent(ScriptedModel("One.", "Two."), middleware=[Twice()]).start("Hello")
    run.tap(events.append)
    result = await run
    assert result.output == "Checked: One."
    assert entries(result) == [("scripted", "completed")] * 2
    kinds = [type(event) for event in events if isinstance(event, ModelCallStarted | ModelCallEnded)]
    assert kinds == [ModelCallStarted, ModelCallEnded, ModelCallStarted, ModelCallEnded]


async def test_deltas_can_be_changed_while_they_stream() -> None:
    async def shouting(deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta]:
        async for delta in deltas:
            yield TextDelta(delta.text.upper()) if isinstance(delta, TextDelta) else delta

    class Shout(Middleware):
        @asynccontextmanager
        async def model_call(self, call: ModelCall, next: Send) -> AsyncGenerator[AsyncIterator[Delta]]:
            async with next(call) as deltas:
                yield shouting(deltas)

    result = await Agent(ScriptedModel("quiet words"), middleware=[Shout()]).invoke_async("Hello")
    assert result.output == "QUIET WORDS"


async def test_an_exception_ends_the_run_in_words() -> None:
    class Broken(Middleware):
        def model_call(self, call: ModelCall, next: Send) -> Any:
            raise ValueError("oops")

    with pytest.raises(MiddlewareFailed, match="ValueError: oops"):
        await Agent(ScriptedModel(then="Yes."), middleware=[Broken()]).invoke_async("Hello")


async def test_a_request_that_no_provider_accepts_is_not_sent() -> None:
    model = ScriptedModel(then="Yes.")
    with pytest.raises(RequestRejected, match="no provider accepts"):
        await Agent(model, middleware=[Replacing(messages=(UserMessage((Text("a"),)),) * 2)]).invoke_async("Hello")
    assert model.requests == []


async def test_the_retry_policy_holds_for_requests_of_middleware() -> None:
    model = ScriptedModel(Fail(ServerError("oops")), Drop(), "Yes.")
    agent = Agent(model, middleware=[Replacing(max_tokens=5)], retry=Retry(attempts=3, first=0, jitter=0))
    result = await agent.invoke_async("Hello")
    assert entries(result) == [("scripted", "failed"), ("scripted", "failed"), ("scripted", "completed")]


async def test_limits_are_kept_inside_the_answer() -> None:
    model = ScriptedModel([Say("word " * 500, chunk=5), Used(5, 500)])
    agent = Agent(model, middleware=[Replacing(max_tokens=9)], limits=Limits(output_tokens=20))
    result = await agent.invoke_async("Hello")
    assert result.stop_reason == "limit"
    assert entries(result) == [("scripted", "hung_up")]


async def test_a_cost_limit_refuses_a_model_without_a_price() -> None:
    other = ScriptedModel("No.", name="b")
    agent = Agent(ScriptedModel(name="a", price=PRICE), middleware=[Replacing(model=other)], limits=Limits(cost=1))
    with pytest.raises(RequestRejected, match="cost limit"):
        await agent.invoke_async("Hello")
    assert other.requests == []


async def test_nothing_is_sent_after_a_stop_even_if_middleware_swallows_it() -> None:
    waiting = asyncio.Event()

    class Stubborn(Middleware):
        @asynccontextmanager
        async def model_call(self, call: ModelCall, next: Send) -> AsyncGenerator[AsyncIterator[Delta]]:
            try:
                waiting.set()
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
            async with next(call) as deltas:
                yield deltas

    model = ScriptedModel(then="Yes.")
    run = Agent(model, middleware=[Stubborn()]).start("Hello")
    await waiting.wait()
    run.cancel("enough")
    result = await run
    assert result.stop_reason == "cancelled"
    assert model.requests == []
    assert entries(result) == []


async def test_live_usage_counts_the_request_under_way() -> None:
    seen = asyncio.Event()
    run = Agent(ScriptedModel([Say("Some words."), Stall()]), middleware=[Replacing(max_tokens=9)]).start("Hello")
    run.tap(lambda event: seen.set() if isinstance(event, TextDelta) else None)
    await seen.wait()
    output = run.usage.output
    assert output.high is not None
    assert 0 < output.low <= output.value <= output.high
    assert [entry.ended for entry in run.usage.entries] == ["open"]
    run.cancel()
    assert entries(await run) == [("scripted", "hung_up")]


async def test_a_stream_is_drained_for_the_bill_through_middleware() -> None:
    seen = asyncio.Event()
    model = ScriptedModel([Say("One "), Pause(0.01), Say("two "), Used(11, 222)])
    run = Agent(model, middleware=[Replacing(max_tokens=500)], stop_policy="drain").start("Hello")
    run.tap(lambda event: seen.set() if isinstance(event, TextDelta) else None)
    await seen.wait()
    run.cancel("enough")
    result = await run
    assert result.text == "One "
    assert entries(result) == [("scripted", "draining")]
    usage = await result.usage.final()
    assert [entry.ended for entry in usage.entries] == ["drained"]
    assert (usage.input.value, usage.output.value) == (11, 222)


async def test_middleware_that_does_not_let_go_is_named_on_the_receipt() -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    class Stuck(Middleware):
        @asynccontextmanager
        async def model_call(self, call: ModelCall, next: Send) -> AsyncGenerator[AsyncIterator[Delta]]:
            begun.set()
            while not let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await let_go.wait()
            async with next(call) as deltas:
                yield deltas

    model = ScriptedModel(then="Yes.")
    run = Agent(model, middleware=[Stuck()]).start("Hello")
    await begun.wait()
    run.cancel("enough")
    result = await run
    assert result.receipt.still_running == ("model stream",)
    let_go.set()
    await asyncio.sleep(0.01)
    assert model.requests == []


def test_a_crash_keeps_an_answer_that_middleware_gave() -> None:
    before = (UserMessage((Text("Hello"),)),)
    started = ModelCallStarted(1, 1, "scripted")
    own = CrashedRun("r", before, None, [TextDelta("We are closed.")])
    joined = CrashedRun("r", before, None, [started, TextDelta("One, "), started, TextDelta("two.")])
    texts = [turn.conversation()[0][1] for turn in (own, joined)]
    assert [message.text for message in texts if isinstance(message, AssistantMessage)] == [
        "We are closed.",
        "One, two.",
    ]


def test_what_is_no_middleware_is_refused_in_words() -> None:
    class Generator(Middleware):
        async def model_call(self, call: ModelCall, next: Send) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            yield 1

    for wrong in ([5], 5, Replacing(), "x"):
        with pytest.raises(ConfigurationError, match=r"(?i)middleware"):
            Agent(ScriptedModel(), middleware=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="asynccontextmanager"):
        Agent(ScriptedModel(), middleware=[Generator()])
    with pytest.raises(ConfigurationError, match="not a Middleware"):
        Agent(ScriptedModel())("Hi", middleware=[5])  # pyright: ignore[reportArgumentType]


async def test_middleware_per_call_replaces_the_agents() -> None:
    model = ScriptedModel(then="Yes.")
    agent = Agent(model, middleware=[Replacing(instructions="a")])
    await agent.invoke_async("Hello", middleware=[Replacing(instructions="b")])
    await agent.invoke_async("Hello", middleware=[])
    assert [request.instructions for request in model.requests] == ["b", None]


# --- Tool calls ------------------------------------------------------------------------------------------------------


class ToolMiddleware(Middleware):
    def __init__(self, function: Any) -> None:
        self.function = function

    async def tool_call(self, call: ToolCallRequest, next: Any) -> Any:
        return await self.function(call, next)


async def tool_result(function: Any, *tools: Any, arguments: dict[str, Any] | None = None) -> Any:
    events: list[Any] = []
    model = ScriptedModel([Call("add", arguments or {"a": 1, "b": 2})], then="Done.")
    run = Agent(model, tools=tools or [add], middleware=[ToolMiddleware(function)]).start("Go")
    run.tap(events.append)
    result = await run
    ended = next(event.result for event in events if isinstance(event, ToolEnded))
    return ended, [event.call.arguments for event in events if isinstance(event, ToolStarted)], result


async def test_arguments_can_be_changed_and_are_checked() -> None:
    async def ten(call: ToolCallRequest, next: Any) -> Any:
        return await next(call.replace(arguments={**call.arguments, "b": 10}))

    async def wrong(call: ToolCallRequest, next: Any) -> Any:
        return await next(call.replace(arguments={"b": "x"}))

    ended, started, _ = await tool_result(ten)
    assert (ended.text, started) == ("11", [{"a": 1, "b": 10}])
    ended, started, _ = await tool_result(wrong)
    assert ended.is_error
    assert started == []


async def test_middleware_may_answer_a_call_and_change_a_result() -> None:
    async def instead(call: ToolCallRequest, next: Any) -> Any:
        return {"name": call.name}

    async def louder(call: ToolCallRequest, next: Any) -> Any:
        result = await next(call)
        return f"{result.text}!"

    ended, started, _ = await tool_result(instead)
    assert (ended.text, ended.outcome, started) == ('{"name":"add"}', Outcome.COMPLETED, [])
    ended, started, _ = await tool_result(louder)
    assert (ended.text, len(started)) == ("3!", 1)


async def test_what_tool_middleware_raises_is_the_result_of_the_call() -> None:
    async def refuse(call: ToolCallRequest, next: Any) -> Any:
        raise ToolError("Not today.")

    async def twice(call: ToolCallRequest, next: Any) -> Any:
        await next(call)
        return await next(call)

    ended, started, _ = await tool_result(refuse)
    assert (ended.is_error, started) == (True, [])
    assert "Not today." in ended.text
    ended, started, _ = await tool_result(twice)
    assert "twice" in ended.text
    assert len(started) == 1


async def test_an_approval_is_asked_for_what_will_be_run() -> None:
    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    class Half(Middleware):
        async def tool_call(self, call: ToolCallRequest, next: Any) -> Any:
            return await next(call.replace(arguments={"amount": 5}))

    agent = Agent(ScriptedModel([Call("pay", {"amount": 10})], then="Done."), tools=[pay], middleware=[Half()])
    result = await agent.invoke_async("Go")
    assert [interrupt.arguments for interrupt in result.interrupts] == [{"amount": 5}]
    result = await agent.answer_async({result.interrupts[0].id: True})
    assert "paid 5" in str(result.messages)


async def test_a_stop_after_the_tool_keeps_its_result() -> None:
    finished = asyncio.Event()

    async def ponder(call: ToolCallRequest, next: Any) -> Any:
        result = await next(call)
        finished.set()
        await asyncio.sleep(3600)
        return result

    model = ScriptedModel([Call("add", {"a": 1, "b": 2})], then="Done.")
    run = Agent(model, tools=[add], middleware=[ToolMiddleware(ponder)]).start("Go")
    await finished.wait()
    run.cancel()
    result = await run
    assert [call.outcome for call in result.receipt.calls] == [Outcome.COMPLETED]
    assert "3" in str(result.messages[2])


# --- Fallback --------------------------------------------------------------------------------------------------------


async def test_the_next_model_answers_when_one_fails_before_its_first_word() -> None:
    first = ScriptedModel(Fail(Overloaded("busy")), name="a")
    second = ScriptedModel(Drop(), name="b")
    third = ScriptedModel("From c.", name="c")
    result = await Agent(first, middleware=[FallbackModels(second, third)]).invoke_async("Hello")
    assert result.output == "From c."
    assert entries(result) == [("a", "failed"), ("b", "failed"), ("c", "completed")]


async def test_a_model_that_times_out_as_it_hangs_up_is_followed_by_the_next() -> None:
    class TimesOut(ScriptedModel):
        @asynccontextmanager
        async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
            try:
                async with asyncio.timeout(0.01), super().stream(request) as deltas:
                    yield deltas
            except TimeoutError:
                raise ModelTimeout("Too slow.") from None

    second = ScriptedModel("From b.", name="b")
    result = await Agent(TimesOut(Stall(), name="a"), middleware=[FallbackModels(second)]).invoke_async("Hello")
    assert result.output == "From b."
    assert [(entry.model, entry.error) for entry in result.usage.entries] == [("a", "ModelTimeout"), ("b", None)]


async def test_an_answer_that_has_begun_stays_with_its_model() -> None:
    first = ScriptedModel([Say("Begun."), Fail(Overloaded("busy"))], name="a")
    second = ScriptedModel(then="From b.", name="b")
    run = Agent(first, middleware=[FallbackModels(second)]).start("Hello")
    result = await run.stopped()
    assert result is not None
    assert second.requests == []


async def test_which_errors_are_a_reason_can_be_chosen() -> None:
    first = ScriptedModel(Fail(RequestRejected("no")), name="a")
    second = ScriptedModel("From b.", name="b")
    with pytest.raises(RequestRejected):
        await Agent(first, middleware=[FallbackModels(second, on=(Overloaded, RateLimited))]).invoke_async("Hello")
    assert second.requests == []
    for wrong in ((), ("x",)):
        with pytest.raises(ConfigurationError):
            FallbackModels(*wrong) if not wrong else FallbackModels(second, on=wrong)  # pyright: ignore[reportArgumentType]


# --- Guardrails ------------------------------------------------------------------------------------------------------


@dataclass
class Rules:
    forbidden: str


def no_secrets(context: RunContext[Rules], text: str) -> str | None:
    return f"It says {context.deps.forbidden}" if context.deps.forbidden in text else None


async def test_an_input_guardrail_stops_the_run_before_anything_is_sent() -> None:
    model = ScriptedModel(then="Fine.")
    agent = Agent(model, deps_type=Rules, middleware=[InputGuardrail(no_secrets)])
    result = await agent.invoke_async("the secret", deps=Rules("secret"))
    assert result.stop_reason == "cancelled"
    cause = result.receipt.cause
    assert cause is not None
    assert (cause.source, cause.reason) == ("guardrail", "It says secret")
    assert (model.requests, entries(result)) == ([], [])
    with pytest.raises(OutputMissing):
        _ = result.output
    assert (await agent.invoke_async("hello", deps=Rules("secret"))).output == "Fine."
    prompts = [message.text for message in model.requests[0].messages if isinstance(message, UserMessage)]
    assert prompts == ["hello"], "the refused prompt is not sent later either"
    assert len(agent.messages) == 4


async def test_a_prompt_that_was_cut_before_its_check_is_checked_with_the_next() -> None:
    begun = asyncio.Event()

    async def slowly(_: RunContext[Any], text: str) -> str | None:
        if "bad" in text and not begun.is_set():
            begun.set()
            await asyncio.sleep(3600)
        return "bad" if "bad" in text else None

    model = ScriptedModel(then="Fine.")
    agent = Agent(model, middleware=[InputGuardrail(slowly)])
    run = agent.start("bad")
    await begun.wait()
    run.steer("good")
    assert (await run).stop_reason == "cancelled"
    assert model.requests == []


async def test_a_guardrail_that_failed_is_asked_again_before_the_next_try() -> None:
    asked: list[str] = []

    async def judge(_: RunContext[Any], text: str) -> str | None:
        asked.append(text)
        if len(asked) == 1:
            raise ServerError("the judge is down")
        return "bad"

    model = ScriptedModel(then="Fine.")
    agent = Agent(model, middleware=[InputGuardrail(judge)], retry=Retry(first=0, jitter=0))
    assert (await agent.invoke_async("bad")).stop_reason == "cancelled"
    assert (len(asked), model.requests) == (2, [])


async def test_a_guardrail_around_a_tool_call_stops_the_run_and_the_tool_never_starts() -> None:
    async def refuse(call: ToolCallRequest, next: Any) -> Any:
        raise GuardrailTripped("not this tool")

    model = ScriptedModel([Call("add", {"a": 1, "b": 2})], then="Done.")
    result = await Agent(model, tools=[add], middleware=[ToolMiddleware(refuse)]).invoke_async("Go")
    assert str(result.receipt.cause) == "guardrail: not this tool"
    assert [call.outcome for call in result.receipt.calls] == [Outcome.NEVER_STARTED]


async def test_an_output_guardrail_withholds_the_output_and_marks_the_answer() -> None:
    async def judge(_: RunContext[Any], text: str) -> str | None:
        await asyncio.sleep(0)
        return "rude" if "evil" in text else None

    agent = Agent(ScriptedModel([Say("evil words"), Used(5, 2)], then="kind"), middleware=[OutputGuardrail(judge)])
    result = await agent.invoke_async("Hello")
    assert result.stop_reason == "cancelled"
    assert result.receipt.cause is not None
    assert result.receipt.cause.source == "guardrail"
    with pytest.raises(OutputMissing):
        _ = result.output
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.cut, last.content[-1]) == ("evil words", True, CutNote("(Stopped by a guardrail: rude)"))
    assert entries(result) == [("scripted", "completed")]
    assert result.usage.output.value == 2
    assert (await agent.invoke_async("Again")).output == "kind"


@pytest.mark.parametrize(
    ("options", "seen", "note"),
    [({"keep": False}, "evil words", "Readers had seen 10 characters"), ({"hold": True}, "", "No reader has seen any")],
)
async def test_a_refused_answer_may_be_kept_out_of_the_conversation(
    options: dict[str, bool], seen: str, note: str
) -> None:
    texts: list[str] = []
    guardrail = OutputGuardrail(lambda _, text: "rude" if "evil" in text else None, **options)
    run = Agent(ScriptedModel("evil words"), middleware=[guardrail]).start("Hello")
    run.tap(lambda event: texts.append(event.text) if isinstance(event, TextDelta) else None)
    result = await run
    assert "".join(texts) == seen
    assert result.text == ""
    assert note in str(result.messages[-1])


async def test_an_answer_that_ends_in_the_middle_of_a_call_is_checked() -> None:
    model = ScriptedModel([Say("evil words"), TornCall("search"), End("max_tokens")])
    guardrail = OutputGuardrail(lambda _, text: "rude" if "evil" in text else None, hold=True)
    result = await Agent(model, middleware=[guardrail]).invoke_async("Hello")
    assert result.text == ""
    assert result.receipt.cause is not None
    assert result.receipt.cause.source == "guardrail"


async def test_a_guardrail_that_returns_something_else_fails_in_words() -> None:
    agent = Agent(ScriptedModel(then="Yes."), middleware=[InputGuardrail(lambda _, __: True)])  # pyright: ignore[reportArgumentType]
    with pytest.raises(MiddlewareFailed, match="returned True"):
        await agent.invoke_async("Hello")
    with pytest.raises(ConfigurationError):
        InputGuardrail(5)  # pyright: ignore[reportArgumentType]


# --- Rate and concurrency --------------------------------------------------------------------------------------------


async def test_so_many_requests_at_once_in_the_order_of_their_arrival() -> None:
    model = ScriptedModel([Say("x"), Stall()], [Say("x"), Stall()], then="Done.")
    agent = Agent(model, middleware=[ConcurrencyLimit(2)])
    events: dict[int, list[object]] = {}
    runs: list[Run[Any]] = []
    for number in range(5):
        run = agent.start(f"prompt {number}", conversation=None)
        run.tap(events.setdefault(number, []).append)
        runs.append(run)
        await asyncio.sleep(0)
    while len(model.requests) < 2 or not any(isinstance(each, ModelCallWaiting) for each in events[4]):
        await asyncio.sleep(0)
    assert model.open_streams == 2
    assert [any(isinstance(each, ModelCallWaiting) for each in events[n]) for n in range(5)] == [False] * 2 + [True] * 3
    runs[2].cancel("no longer")  # one that waits leaves the line
    assert (await runs[2]).stop_reason == "cancelled"
    runs[0].cancel("enough")
    await asyncio.gather(runs[3], runs[4])
    runs[1].cancel("enough")
    await runs[1]
    sent = [str(request.messages[0].text) for request in model.requests if isinstance(request.messages[0], UserMessage)]
    assert sent == ["prompt 0", "prompt 1", "prompt 3", "prompt 4"]


def test_requests_wait_until_the_window_has_room() -> None:
    sent: list[float] = []
    waits: list[str] = []

    class Clock(Middleware):
        def model_call(self, call: ModelCall, next: Send) -> Any:
            sent.append(asyncio.get_running_loop().time())
            return next(call)

    async def main() -> None:
        model = ScriptedModel([Say("a"), Used(600, 100)], [Say("b"), Used(100, 10)], then=[Say("c"), Used(10, 1)])
        agent = Agent(model, middleware=[RateLimit(requests=2, tokens=650, per=10), Clock()])
        for _ in range(2):
            await agent.invoke_async("Go", conversation=None)
            await asyncio.sleep(1)
        runs = [agent.start("Go", conversation=None) for _ in range(4)]
        for run in runs:
            run.tap(lambda event: waits.append(event.reason) if isinstance(event, ModelCallWaiting) else None)
        runs[1].cancel("no longer")
        for run in runs:
            await run

    run_virtual(main())
    first = sent[0]
    # The second waits for tokens; two more fit after it, and the last waits for requests.
    assert [round(at - first) for at in sent] == [0, 10, 11, 20, 21]
    assert waits
    assert "2 requests and 650 tokens in 10 s" in waits[0]


def test_limits_that_make_no_sense_are_refused() -> None:
    for wrong in (
        lambda: ConcurrencyLimit(0),
        RateLimit,
        lambda: RateLimit(requests=-1),
        lambda: RateLimit(requests=1, per=0),
        lambda: CachePrompt("2h"),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(ConfigurationError):
            wrong()


def test_a_limit_is_shared_by_runs_in_different_event_loops() -> None:
    limit = ConcurrencyLimit(1)
    results = [Agent(ScriptedModel("Yes."), middleware=[limit])("Hello").output for _ in range(2)]
    results.append(asyncio.run(Agent(ScriptedModel("Yes."), middleware=[limit]).invoke_async("Hello")).output)
    assert results == ["Yes."] * 3


def test_a_slot_that_was_granted_to_a_closed_loop_is_free_again() -> None:
    limit = ConcurrencyLimit(1)
    closing = asyncio.new_event_loop()

    async def main() -> None:
        first = Agent(ScriptedModel([Stall()]), middleware=[limit]).start("Hello")
        while limit._slots.get("scripted") is None or not limit._slots["scripted"].full:
            await asyncio.sleep(0)
        waiting = closing.create_task(limit._slots["scripted"]._take())
        waiting.add_done_callback(lambda _: None)
        closing.call_soon(closing.stop)
        await asyncio.to_thread(closing.run_forever)
        first.cancel()
        await first.stopped()
        waiting.get_coro().close()  # as the run of a closed loop ends

    try:
        asyncio.run(main())
    finally:
        closing._ready.clear()  # pyright: ignore
        closing.close()
    assert Agent(ScriptedModel("Yes."), middleware=[limit])("Hello").output == "Yes."


# --- Tool choice and caching -----------------------------------------------------------------------------------------


async def test_a_tool_must_be_called_in_the_first_turn_only() -> None:
    model = ScriptedModel([Call("add", {"a": 1, "b": 2})], then="Done.")
    agent = Agent(model, tools=[add], tool_choice="required")
    await agent.invoke_async("Go")
    await agent.invoke_async("Go", tool_choice="none")
    assert [request.tool_choice for request in model.requests] == ["required", None, "none"]


async def test_a_tool_need_not_be_called_again_after_an_approval() -> None:
    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    model = ScriptedModel([Call("pay", {"amount": 1})], then="Done.")
    agent = Agent(model, tools=[pay], tool_choice="required")
    asked = (await agent.invoke_async("Go")).interrupts
    assert (await agent.answer_async({asked[0].id: True})).output == "Done."
    assert [request.tool_choice for request in model.requests] == ["required", None]


def test_a_tool_choice_that_cannot_be_is_refused() -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"tool_choice": "subtract", "tools": [add]},
        {"tool_choice": "required"},
        {"tool_choice": 5},
    )
    for options in wrong:
        with pytest.raises(ConfigurationError, match="tool_choice"):
            Agent(ScriptedModel(then="x"), **options)("Hello")


async def test_caching_is_a_part_of_the_request() -> None:
    model = ScriptedModel(then="Done.")
    await Agent(model, middleware=[CachePrompt("1h")]).invoke_async("Go")
    assert model.requests[0].cache == "1h"


# --- Hook events -----------------------------------------------------------------------------------------------------


async def test_assigning_to_a_hook_event_raises_in_words() -> None:
    said: list[str] = []

    def assign(event: BeforeModelCall | BeforeToolCall | AfterToolCall) -> None:
        for name in ("request", "result", "call", "state", "anything"):
            try:
                setattr(event, name, None)
            except AttributeError as error:
                said.append(str(error))

    model = ScriptedModel([Call("add", {"a": 1, "b": 2})], then="Done.")
    await Agent(model, tools=[add], hooks=[assign]).invoke_async("Go")
    assert len(said) == 5 * 4
    assert "Middleware.model_call" in said[0]
    assert any("event.replace(...)" in each for each in said)
