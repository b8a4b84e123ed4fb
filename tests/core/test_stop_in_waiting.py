"""A stop while something is waited for, in isolation: a back-off, a hook, another answer; while settling, and after."""

import asyncio

import pytest
from pydantic import BaseModel

from quiesce import Agent, Limits, tool
from quiesce.errors import Overloaded
from quiesce.events import AnswerStart, OutputRejected, RetryScheduled, StopRequested, TextDelta, ToolStarted
from quiesce.hooks import AfterModelCall, AfterRun, BeforeModelCall, BeforeRun, BeforeToolCall, OnMessage, OnStop
from quiesce.models.scripted import Call, Fail, Say, Stall
from quiesce.phases import Phase
from tests.core.checkpoints import assert_cancelled, forever, quick
from tests.core.kit import Record, answers, ended, is_a, outcomes, scripted, stopped_at, until

pytestmark = pytest.mark.promise("P1", "P2")


# --- Waiting, hooks, retries -----------------------------------------------------------------------------------------


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
    assert not end.result.finished
    assert len(model.requests) == 1
    again = await agent.invoke_async("please")
    assert again.output == City(name="Bern", people=1)


async def test_in_the_middle_of_structured_output_half_an_object_is_never_given():
    agent = Agent(
        scripted([Say('{"name": "Bern", "people": 1', chunk=100), Say("34000}", chunk=100)]), output_type=City
    )
    end = await stopped_at(agent, is_a(TextDelta))
    assert end.reason == "cancelled"
    assert not end.result.finished
    assert end.result.text == '{"name": "Bern", "people": 1'


# --- While settling, and after ---------------------------------------------------------------------------------------


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
