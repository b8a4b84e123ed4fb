"""A stop at each place around the tools, in isolation."""

import asyncio
import threading

import pytest

from quiesce import Agent, tool
from quiesce.events import MessageAdded, StopRequested, ToolEnded, ToolProgress, ToolStarted
from quiesce.hooks import BeforeToolCall
from quiesce.messages import Outcome, ToolMessage
from quiesce.models.scripted import Call, Say, ScriptedModel
from quiesce.phases import Phase
from tests.core.checkpoints import assert_cancelled, forever, quick
from tests.core.kit import Record, answers, ended, is_a, outcomes, scripted, stopped_at, until

pytestmark = pytest.mark.promise("P3", "P4")


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
    result = await run
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


@pytest.mark.promise("P4")
async def test_a_call_that_did_not_come_to_its_own_end_is_not_ok() -> None:
    begun = asyncio.Event()

    @tool(sequential=True)
    async def wait(until: str) -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return until

    agent = Agent(ScriptedModel([Call("wait", {"until": "noon"}), Call("wait", {"until": "night"})]), tools=[wait])
    run = agent.start("Go.")
    await begun.wait()
    run.cancel("enough")
    receipt = await run.stopped()
    calls = [(call.outcome, call.ok) for call in receipt.calls]
    assert calls == [(Outcome.CANCELLED, False), (Outcome.NEVER_STARTED, False)]
    assert "with an error" not in str(receipt)
