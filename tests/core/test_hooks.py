"""Hooks, limits, retries and structured output."""

import asyncio
from dataclasses import dataclass
from decimal import Decimal

import pytest

from quiesce import Agent, Limits, Price, Retry, tool
from quiesce.errors import (
    ConfigurationError,
    ModelError,
    ModelTimeout,
    OutputInvalid,
    Overloaded,
    QuotaExceeded,
    RateLimited,
)
from quiesce.events import HookFailed, LateOutcomeRecorded, OutputRejected, RetryScheduled, TextDelta, ToolStarted
from quiesce.hooks import (
    AfterModelCall,
    AfterRun,
    AfterToolCall,
    BeforeModelCall,
    BeforeRun,
    BeforeToolCall,
    HookEvent,
    OnLateOutcome,
    OnMessage,
    OnStop,
)
from quiesce.models.scripted import Call, Fail, Say, ScriptedModel, Stall, Used
from quiesce.phases import Phase
from tests.core.kit import NO_WAIT, City, Record, ended, is_a, outcomes, results, scripted, stopped_at, until

pytestmark = pytest.mark.promise("P4", "P7")


@tool
async def quick(x: int = 0) -> str:
    return f"quick {x}"


# --- Hooks ----------------------------------------------------------------------------------------------------------


@pytest.mark.feature
async def test_sync_and_async_hooks_hear_of_everything_in_order():
    heard = []

    def plain(event: BeforeRun | AfterRun | BeforeModelCall | AfterModelCall) -> None:
        heard.append(type(event).__name__)

    class Audit:
        async def __call__(self, event: BeforeToolCall | AfterToolCall) -> None:
            await asyncio.sleep(0)
            heard.append(type(event).__name__)

    agent = Agent(scripted([Call("quick")]), tools=[quick], hooks=[plain, Audit()])
    messages = []

    @agent.hook()
    def on_message(event: OnMessage) -> None:
        messages.append(event.message)

    end = await stopped_at(agent, None)
    assert heard == [
        "BeforeRun",
        "BeforeModelCall",
        "AfterModelCall",
        "BeforeToolCall",
        "AfterToolCall",
        "BeforeModelCall",
        "AfterModelCall",
        "AfterRun",
    ]
    assert tuple(messages) == end.result.messages


@pytest.mark.feature
async def test_a_hook_may_want_all_events():
    heard, seen = [], []

    def everything(event: HookEvent) -> None:
        heard.append(type(event))
        seen.append((event.run_id, event.token.cancelled))

    result = await Agent(scripted(), hooks=[everything]).invoke_async("go")
    assert heard == [OnMessage, BeforeRun, BeforeModelCall, AfterModelCall, OnMessage, AfterRun]
    assert set(seen) == {(result.run_id, False)}


@pytest.mark.parametrize("kind", [BeforeRun, BeforeModelCall, AfterModelCall, BeforeToolCall, AfterToolCall, AfterRun])
async def test_a_failing_hook_is_an_event_not_a_dead_run(kind):
    heard = []

    def broken(event: HookEvent) -> None:
        raise ValueError("oops")

    agent = Agent(scripted([Call("quick")]), tools=[quick])
    agent.hook(kind)(broken)
    agent.hook(kind)(lambda event: heard.append(1))
    end = await stopped_at(agent, None)
    assert end.reason == "end_turn"
    failure = end.of(HookFailed)[0]
    assert (failure.event, failure.error) == (kind.__name__, "ValueError: oops")
    assert "broken" in failure.hook
    assert heard


@pytest.mark.parametrize("kind", [BeforeRun, BeforeModelCall, AfterModelCall, BeforeToolCall, AfterToolCall, OnMessage])
async def test_a_hook_may_cancel_the_run(kind):
    agent = Agent(scripted([Call("quick")]), tools=[quick])
    agent.hook(kind)(lambda event: event.cancel("because"))
    end = await stopped_at(agent, None)
    assert (end.reason, end.result.receipt.cause.source) == ("cancelled", "hook")
    assert end.result.receipt.cause.reason == "because"


def test_a_hook_decorator_takes_hook_events_only():
    """Without parentheses, the hook was never registered, and nothing said so."""
    agent = Agent(scripted())
    for wrong in (lambda event: None, "BeforeRun", str):
        with pytest.raises(ConfigurationError, match="is not a hook event"):
            agent.hook(wrong)


@pytest.mark.feature
async def test_a_hook_may_replace_a_result_before_and_after():
    started = []

    @tool
    async def work(x: int) -> str:
        started.append(x)
        return "real"

    def before(event: BeforeToolCall) -> None:
        if event.call.arguments["x"] == 1:
            event.replace({"instead": 1})

    def after(event: AfterToolCall) -> None:
        if event.call.arguments["x"] == 2:
            assert event.result.text == "real"
            event.replace("changed")

    calls = [Call("work", {"x": number}) for number in (1, 2, 3)]
    end = await stopped_at(Agent(scripted(calls), tools=[work], hooks=[before, after]), None)
    assert [result.text for result in results(end.result.messages)] == ['{"instead":1}', "changed", "real"]
    assert started == [2, 3]


@pytest.mark.promise("P5", "P7")
@pytest.mark.leaves("tasks")
async def test_a_hook_that_swallows_its_cancellation_is_named():
    gate, entered = asyncio.Event(), asyncio.Event()

    async def deaf(event: BeforeModelCall) -> None:
        while not gate.is_set():
            entered.set()
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    agent = Agent(scripted(), hooks=[deaf])
    run = agent.start("go")
    record = Record(run)
    await entered.wait()
    run.cancel(mode="kill")
    end = await ended(run, record, agent)
    assert end.reason == "cancelled"
    assert end.result.receipt.still_running == ("hooks for BeforeModelCall",)
    gate.set()


@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("kind", [OnStop, AfterRun, OnMessage])
async def test_hooks_that_hear_of_a_stop_are_bounded_and_a_kill_ends_the_wait(kind):
    entered = asyncio.Event()

    async def slow(event: HookEvent) -> None:
        if event.token.cancelled:
            entered.set()
            await asyncio.get_running_loop().create_future()

    agent = Agent(scripted([Stall()]))
    agent.hook(kind)(slow)
    run = agent.start("go")
    record = Record(run)
    await until(lambda: run.phase is Phase.STREAMING)
    run.cancel()
    await entered.wait()
    run.cancel(mode="kill")
    end = await ended(run, record, agent)
    assert end.reason == "cancelled"
    assert end.result.receipt.still_running == ()


async def test_hooks_that_need_no_waiting_hear_of_a_kill():
    heard = []

    def hear(event: OnStop | AfterRun | OnMessage) -> None:
        heard.append(type(event))

    end = await stopped_at(Agent(scripted([Say("x"), Stall()]), hooks=[hear]), is_a(TextDelta), mode="kill")
    assert end.reason == "cancelled"
    assert heard == [OnMessage, OnStop, OnMessage, AfterRun]


@pytest.mark.promise("P5")
@pytest.mark.leaves("tasks")
async def test_a_last_hook_that_never_ends_is_named():
    async def deaf(event: AfterRun) -> None:
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if gate.is_set():
                    raise

    gate = asyncio.Event()
    agent = Agent(scripted([Stall()]), hooks=[deaf])
    run = agent.start("go")
    record = Record(run)
    await until(lambda: run.phase is Phase.STREAMING)
    run.cancel(mode="kill")
    end = await ended(run, record, agent)
    assert end.result.receipt.still_running == ("hooks for AfterRun",)
    gate.set()


async def test_late_outcomes_reach_readers_and_hooks():
    gate, heard = asyncio.Event(), []

    @tool(on_stop="abandon", grace=0)
    async def left() -> str:
        await gate.wait()
        return "late"

    def late(event: OnLateOutcome) -> None:
        heard.append((event.outcome.detail, event.receipt.run_id == event.run_id))

    agent = Agent(scripted([Call("left")]), tools=[left], hooks=[late])
    run = agent.start("go")
    end = await ended(run, Record(run, is_a(ToolStarted), run.cancel), agent)
    assert outcomes(end.result) == {"left": "abandoned"}
    gate.set()
    await until(lambda: heard)
    assert heard == [("late", True)]
    assert end.of(LateOutcomeRecorded) == [], "nothing follows the terminal event"


async def test_a_tool_that_may_finish_is_cancelled_when_its_grace_is_over():
    @tool(on_stop="finish", grace=0.01)
    async def slow() -> str:
        await asyncio.get_running_loop().create_future()

    end = await stopped_at(Agent(scripted([Call("slow")]), tools=[slow]), is_a(ToolStarted))
    assert outcomes(end.result) == {"slow": "cancelled"}


# --- Limits ---------------------------------------------------------------------------------------------------------


async def test_a_limit_of_turns_and_of_tool_calls():
    agent = Agent(ScriptedModel(then=Call("quick")), tools=[quick], limits=Limits(turns=2))
    end = await stopped_at(agent, None)
    assert (end.reason, end.result.usage.calls) == ("limit", 2)
    assert "2 turns" in end.result.receipt.cause.reason
    agent = Agent(ScriptedModel(then=[Call("quick"), Call("quick")]), tools=[quick], limits=Limits(tool_calls=3))
    end = await stopped_at(agent, None)
    assert end.reason == "limit"
    assert [result.outcome.value for result in results(end.result.messages)] == ["completed"] * 2 + [
        "never_started"
    ] * 2


@pytest.mark.parametrize(
    ("limits", "words"),
    [(Limits(tokens=20), "20 tokens"), (Limits(output_tokens=10), "10 output"), (Limits(cost="0.001"), "0.001 USD")],
)
async def test_limits_that_cut_inside_an_answer(limits, words):
    price = Price(Decimal(10), Decimal(100))
    steps = [Used(input=12, final=False), Say("word " * 100), Call("quick")]
    agent = Agent(scripted(steps, price=price), tools=[quick], limits=limits)
    end = await stopped_at(agent, None)
    assert end.reason == "limit"
    assert words in end.result.receipt.cause.reason
    assert 0 < len(end.result.text) < 200
    assert end.result.cost.value > 0
    assert end.result.cost.high >= end.result.cost.value >= end.result.cost.low


async def test_limits_count_earlier_calls_and_reported_figures():
    model = scripted([Call("quick"), Used(input=5, output=8)], [Used(input=5, output=50, final=False), Say("x")])
    agent = Agent(model, tools=[quick], limits=Limits(tokens=30))
    end = await stopped_at(agent, None)
    assert end.reason == "limit"
    assert end.result.usage.calls == 2


@pytest.mark.feature
@pytest.mark.parametrize(
    "wrong", [{"turns": 0}, {"turns": True}, {"tokens": 1.5}, {"tool_calls": -1}, {"cost": "much"}, {"cost": -1}]
)
def test_limits_that_make_no_sense(wrong):
    with pytest.raises(ConfigurationError):
        Limits(**wrong)


@pytest.mark.feature
def test_limits_print_what_is_limited():
    assert repr(Limits(turns=3, cost=0.5)) == "Limits(turns=3, repeated_calls=10, cost='0.5')"
    assert not Limits(turns=3, tool_calls=0).inside_answers


# --- Retries --------------------------------------------------------------------------------------------------------


@pytest.mark.feature
def test_how_long_a_retry_waits():
    retry = Retry(attempts=4, first=1, longest=3, jitter=0, patience=10)
    assert [retry.delay(Overloaded("x"), attempt) for attempt in (1, 2, 3, 4)] == [1, 2, 3, None]
    assert retry.delay(RateLimited("x", retry_after=7), 1) == 7
    assert retry.delay(RateLimited("x", retry_after=11), 1) is None
    assert retry.delay(QuotaExceeded("x"), 1) is None
    assert 1 <= Retry(first=1, jitter=0.5).delay(ModelTimeout("x"), 1) <= 1.5
    assert Retry(attempts=5000, jitter=0).delay(ModelTimeout("x"), 4999) == 30


async def test_failures_are_retried_and_then_raised():
    agent = Agent(ScriptedModel(then=Fail(Overloaded("busy"))), retry=NO_WAIT)
    end = await stopped_at(agent, None)
    assert isinstance(end.result.error, Overloaded)
    assert [event.attempt for event in end.of(RetryScheduled)] == [1, 2, 3]
    assert end.result.usage.calls == 4
    agent = Agent(scripted([Fail(ModelError("no"))]))
    assert (await stopped_at(agent, None)).result.usage.calls == 1


# --- Structured output ----------------------------------------------------------------------------------------------


@dataclass
class Point:
    x: int


@pytest.mark.feature
@pytest.mark.parametrize(
    ("kind", "answer", "output"),
    [
        (City, '{"name": "Bern"}', City(name="Bern")),
        (City, '```json\n{"name": "Bern"}\n```', City(name="Bern")),
        (Point, '{"x": 1}', Point(1)),
        (City | Point, '{"x": 1}', Point(1)),
        (list[int], "[1, 2]", [1, 2]),
    ],
)
async def test_output_types(kind, answer, output):
    agent = Agent(scripted(answer))
    result = await agent.invoke_async("go", output_type=kind)
    assert result.output == output
    assert agent.config.model.requests[0].output_schema


async def test_an_answer_that_does_not_fit_is_asked_for_again_and_then_an_error():
    model = ScriptedModel("no", '{"name": 3}', '{"name": "Bern"}', then="never")
    agent = Agent(model, output_type=City)
    end = await stopped_at(agent, None)
    assert end.result.output == City(name="Bern")
    assert [event.retry for event in end.of(OutputRejected)] == [1, 2]
    assert "name: Input should be a valid string" in model.requests[2].messages[-1].text
    end = await stopped_at(agent, None)
    assert isinstance(end.result.error, OutputInvalid)
    assert end.result.parsed == ()


async def test_a_stop_at_the_end_of_an_answer_that_does_not_fit_is_a_stop():
    agent = Agent(scripted("no"), output_type=City)
    end = await stopped_at(agent, lambda event: type(event).__name__ == "AnswerEnd")
    assert (end.reason, end.result.parsed) == ("cancelled", ())
    agent = Agent(scripted('{"name": "Bern"}'), output_type=City)
    end = await stopped_at(agent, lambda event: type(event).__name__ == "AnswerEnd")
    assert (end.reason, end.result.output) == ("end_turn", City(name="Bern"))


async def test_receipts_print_well():
    agent = Agent(scripted([Say("Looking. "), Call("quick", {"x": "bad"}), Call("quick")]), tools=[quick])
    end = await stopped_at(agent, is_a(TextDelta, 2))
    text = str(end.result.receipt)
    assert "was stopped (user: the test said so)" in text
    assert "while the model was answering" in text
    assert "nothing is left running" in text
    end = await stopped_at(agent, None)
    assert "ended by itself (end_turn)" in str(end.result.receipt)
