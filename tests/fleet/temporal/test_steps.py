"""The steps of a run without a server: each is a run of its own, and what goes from one to the next is JSON."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from quiesce import Agent, Limits, ToolContext, handoff, tool
from quiesce.conversation.conversation import ConversationState
from quiesce.conversation.validity import faults, user_message
from quiesce.errors import ConfigurationError
from quiesce.fleet.temporal import TemporalFleet, TemporalWorkerSettings
from quiesce.fleet.temporal.progress import MAX_LOSSES, MAX_NOT_BEGUN, RunProgress
from quiesce.fleet.temporal.records import OnWorkerLoss, StepInput, StepResult, WorkflowInput, plain, read
from quiesce.fleet.temporal.step import start_step, step_result
from quiesce.hooks import BeforeToolCall
from quiesce.messages import Outcome, ToolMessage
from quiesce.models.scripted import Call, Say, ScriptedModel
from quiesce.run.handle import Run


def carried(value: Any) -> Any:
    """A value after it was in Temporal's history."""
    return read(msgspec.json.decode(msgspec.json.encode(plain(value))), type(value))


async def performed(agent: Agent[Any, Any], step: StepInput) -> StepResult:
    run: Run[Any] = start_step(agent, carried(step))
    await run.stopped()
    return carried(step_result(run))


async def played(agent: Agent[Any, Any], prompt: str = "go") -> tuple[RunProgress, tuple[Any, ...]]:
    """All steps of a run, as the workflow makes them."""
    progress = RunProgress("run", WorkflowInput(agent.name, user_message(prompt), "queue"))
    while not progress.reason:
        assert not progress.take_model_call(await performed(agent, progress.model_call()))
        assert not faults(progress.sealed())
        for position in range(len(progress.calls)):
            step = progress.tool_call(position, {})
            progress.take_tool_call(position, step, await performed(agent, step))
            assert not faults(progress.sealed())
    return progress, progress.sealed()


@pytest.mark.promise("P2", "P6")
async def test_a_run_in_steps_is_the_run() -> None:
    """The same conversation, requests and calls; tools and state are those of the run."""
    asked: list[str] = []

    @tool
    async def add(a: int, b: int, ctx: ToolContext) -> int:
        """Add."""
        ctx.state["sums"] = [*ctx.state.get("sums", []), a + b]
        return a + b

    def made() -> Agent[Any, Any]:
        answers = (
            [Say("First. "), Call("add", {"a": 1, "b": 2}, id="x"), Call("add", {"a": "?"}, id="y")],
            [Call("add", {"a": 3, "b": 4}, id="z")],
            [Say("3 and 7.")],
        )
        agent = Agent(ScriptedModel(*answers), tools=[add], tool_choice="required", limits=Limits(turns=9))

        @agent.hook(BeforeToolCall)
        def note(event: BeforeToolCall) -> None:
            asked.append(event.call.id)

        return agent

    whole = await made().invoke_async("go")
    agent = made()
    progress, messages = await played(agent)
    assert messages == whole.messages
    assert asked == ["x", "y", "z"] * 2
    receipt = progress.receipts.receipt(progress.reason, None, 0.0, messages, progress.values["conversation.task"])
    assert receipt.stop_reason == "end_turn"
    assert [(each.call_id, each.ok) for each in receipt.calls] == [("x", True), ("y", False), ("z", True)]
    assert [each.id for each in receipt.usage.entries] == ["run/1", "run/2", "run/3"]
    assert [each.turn for each in receipt.usage.entries] == [1, 2, 3]
    assert msgspec.json.decode(progress.values["conversation.state"]) == {"sums": [3, 7]}
    choices = [request.tool_choice for request in agent.config.model.requests]  # type: ignore[attr-defined]
    assert choices == ["required", None, None]
    assert receipt.task is not None
    assert (receipt.task.used.turns, receipt.task.used.tool_calls) == (3, 3)


@pytest.mark.promise("P6")
async def test_limits_hold_over_all_steps() -> None:
    @tool
    async def ping() -> str:
        """Ping."""
        return "pong"

    agent = Agent(ScriptedModel(then=[Call("ping")]), tools=[ping], limits=Limits(turns=2), on_limit="ask")
    progress, messages = await played(agent)
    assert progress.reason == "limit"
    assert sum(isinstance(each, ToolMessage) for each in messages) == 2


@pytest.mark.promise("P4")
async def test_a_handoff_holds_in_the_next_steps() -> None:
    @tool
    async def look_up() -> str:
        """Look it up."""
        return "42"

    specialist = Agent(ScriptedModel([Call("look_up")], [Say("It is 42.")]), tools=[look_up], name="specialist")
    front = Agent(ScriptedModel([Call("hand_over_to_specialist")]), tools=[handoff(specialist)], name="front")
    progress, messages = await played(front)
    assert (progress.reason, messages[-1].text) == ("end_turn", "It is 42.")


@pytest.mark.promise("P4")
async def test_a_state_without_a_json_form_fails_the_run_and_keeps_the_result() -> None:
    @tool
    async def spoil(ctx: ToolContext) -> str:
        """Spoil the state."""
        ctx.state["socket"] = object()
        return "done"

    progress, messages = await played(Agent(ScriptedModel([Call("spoil")]), tools=[spoil]))
    assert progress.reason == "error"
    assert "state['socket'] has no JSON form" in progress.error
    results = [each for message in messages if isinstance(message, ToolMessage) for each in message.results]
    assert [(each.text, each.outcome) for each in results] == [("done", Outcome.COMPLETED)]


@pytest.mark.promise("P3", "P7")
async def test_a_step_that_is_stopped_is_the_last_one() -> None:
    """The conversation is sealed in the step, and a call of it that has not begun is answered."""
    begun = asyncio.Event()

    @tool
    async def wait_for_ever() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent(ScriptedModel(then=[Call("wait_for_ever"), Call("wait_for_ever")]), tools=[wait_for_ever])
    progress = RunProgress("run", WorkflowInput(agent.name, user_message("go"), "queue"))
    progress.take_model_call(await performed(agent, progress.model_call()))
    step = progress.tool_call(0, {})
    run = start_step(agent, step)
    await begun.wait()
    run.cancel("by hand", source="user")
    await run.stopped()
    assert not progress.take_tool_call(0, step, carried(step_result(run)))
    assert progress.reason == "cancelled"
    messages = progress.sealed()
    assert not faults(messages)
    results = [each for message in messages if isinstance(message, ToolMessage) for each in message.results]
    assert [each.outcome for each in results] == [Outcome.CANCELLED, Outcome.NEVER_STARTED]


@pytest.mark.promise("P2")
async def test_a_prompt_that_was_never_sent_is_not_in_the_conversation() -> None:
    given = WorkflowInput("agent", user_message("go"), "queue")
    unsent, lost = RunProgress("run", given), RunProgress("run", given)
    assert unsent.sealed() == ()
    assert lost.lose_model_call((), lost.losses)
    assert [type(each).__name__ for each in lost.sealed()] == ["UserMessage", "AssistantMessage"]
    assert not faults(lost.sealed())
    assert ConversationState() == unsent.model_call().conversation


def with_three_calls(answers: StepResult, on_worker_loss: OnWorkerLoss = "continue") -> RunProgress:
    progress = RunProgress("run", WorkflowInput("agent", user_message("go"), "queue", on_worker_loss=on_worker_loss))
    assert not progress.take_model_call(answers)
    assert len(progress.calls) == 3
    return progress


@pytest.mark.promise("P9")
async def test_calls_that_are_lost_with_one_worker_are_one_loss() -> None:
    """Three calls at once are not three losses; three workers in succession are, also for calls beside others."""

    @tool(idempotent=True)
    async def ping() -> str:
        """Ping."""
        return "pong"

    agent = Agent(ScriptedModel(then=[Call("ping"), Call("ping"), Call("ping")]), tools=[ping])
    answer = await performed(agent, RunProgress("run", WorkflowInput("a", user_message("go"), "q")).model_call())
    progress = with_three_calls(answer)
    for losses in range(MAX_LOSSES - 1):
        assert [progress.lose_tool_call(position, (), losses) for position in range(3)] == [True] * 3
        assert (progress.losses, progress.reason) == (losses + 1, "")
    assert [progress.lose_tool_call(position, (), MAX_LOSSES - 1) for position in range(3)] == [False] * 3
    assert progress.reason == "crashed"
    sealed = with_three_calls(answer, "seal")
    assert not sealed.lose_tool_call(0, (), 0)
    assert sealed.reason == "crashed"


@pytest.mark.promise("P9")
async def test_a_step_that_no_worker_begins_is_given_out_again_and_not_for_ever() -> None:
    agent = Agent(ScriptedModel(then="Done."))
    progress = RunProgress("run", WorkflowInput(agent.name, user_message("go"), "queue"))
    assert [progress.leave_unbegun() for _ in range(MAX_NOT_BEGUN - 1)] == [True] * (MAX_NOT_BEGUN - 1)
    assert progress.lose_model_call((), progress.losses)  # a worker has begun: the others are not in succession
    assert progress.leave_unbegun()
    assert not progress.take_model_call(await performed(agent, progress.model_call()))
    assert [progress.leave_unbegun() for _ in range(MAX_NOT_BEGUN)] == [True] * (MAX_NOT_BEGUN - 1) + [False]
    never = RunProgress("run", WorkflowInput(agent.name, user_message("go"), "queue"))
    assert [never.leave_unbegun() for _ in range(MAX_NOT_BEGUN)][-1] is False
    assert never.reason == "crashed"
    assert never.sealed() == ()  # nothing was sent
    assert not never.receipts.requests


@pytest.mark.feature
def test_a_fleet_on_postgres_does_not_import_temporal() -> None:
    program = "import sys, quiesce; from quiesce.fleet import Fleet, Worker; assert 'temporalio' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


FIRST_USE_IN_THREADS = """
import sys
import threading
from quiesce.conversation.validity import user_message
from quiesce.fleet.temporal.records import TemporalRun, WorkflowInput, plain, read

message = plain(user_message("Hello"))
given = {"agent": "a", "queue": "q", "prompt": message, "messages": [message] * 50}
run = {"id": "1", "messages": [message] * 50}
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)

def work():
    barrier.wait()
    for _ in range(100):
        read(run, TemporalRun)
        read(given, WorkflowInput)

threads = [threading.Thread(target=work) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


@pytest.mark.feature
def test_values_are_read_in_many_threads_at_once() -> None:
    """The process ended with a segmentation fault in most tries: workflows run in threads."""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", FIRST_USE_IN_THREADS], capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.promise("P1")
@pytest.mark.parametrize(
    "wrong", [{"lease": math.nan}, {"lease": math.inf}, {"lease": 0}, {"timeout": math.nan}, {"timeout": -1}]
)
async def test_a_time_that_a_workflow_could_not_wait_is_refused(wrong: dict[str, float]) -> None:
    """Its workflow failed in each step that Temporal repeated, and could not be stopped any more."""
    client: Any = None  # it is not asked
    with pytest.raises(ConfigurationError, match="makes no sense"):
        await TemporalFleet(client).start("teller", "go", **wrong)  # type: ignore[arg-type]


@pytest.mark.feature
@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"heartbeat": 0}, {"heartbeat": math.nan}, {"drain": -1}])
def test_limits_of_a_worker_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    """A heartbeat of 0 kept the loop busy for ever."""
    with pytest.raises(ConfigurationError):
        TemporalWorkerSettings(**wrong)
