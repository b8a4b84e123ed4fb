"""Stops of runs on Temporal: what is cut is closed at once, what was said is kept, and the receipt is true."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from bench._loopback import PROVIDER, LoopbackModel, Provider

from quiesce import Agent, ToolContext, tool
from quiesce.errors import ConfigurationError, InvalidAnswer
from quiesce.interrupts import Approve
from quiesce.messages import AssistantMessage, Outcome, ToolMessage
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.phases import Phase
from quiesce.receipt import Receipt

from .conftest import Gate, RunTemporal, TemporalUnderTest


def receipt_of(run: Any) -> Receipt:
    assert run.receipt is not None
    return run.receipt


@pytest.mark.promise("P1", "P3")
def test_a_stop_closes_the_connection_to_the_model_and_keeps_what_it_said(
    run_temporal: RunTemporal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a real socket: a model that is streaming, and one that has stalled."""

    async def test(temporal: TemporalUnderTest) -> None:
        provider = Provider("stream")
        server = await asyncio.start_server(provider, "127.0.0.1", 0)
        monkeypatch.setenv(PROVIDER, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with temporal.worker(Agent(LoopbackModel(), name="reader")):
            for name in ("stream", "silence"):
                run = await temporal.fleet.start("reader", name)
                async with asyncio.timeout(30):
                    while name not in provider.closed:
                        await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)  # for a few words
                before = time.perf_counter()
                stopped = await temporal.stopped(run.id)
                assert await asyncio.wait_for(provider.closed[name], 5) - before < 2
                receipt = receipt_of(stopped)
                assert (stopped.reason, str(receipt.cause)) == ("cancelled", "user: enough")
                assert receipt.usage.calls == 1
                assert receipt.usage.entries[0].ended == "hung_up"
                last = stopped.messages[-1]
                assert isinstance(last, AssistantMessage)
                assert last.cut
                assert ("word" in last.text) == (name == "stream")
        server.close()
        await server.wait_closed()

    run_temporal(test)


@pytest.mark.promise("P4", "P5")
def test_a_tool_is_stopped_by_its_policy(run_temporal: RunTemporal, tmp_path: Path) -> None:
    """An async one is cancelled, one in a process of its own is killed; a call that waits for it never starts."""
    begun = Gate()

    @tool(sequential=True)
    async def wait_for_ever() -> str:
        """Wait."""
        begun.open()
        await asyncio.Event().wait()
        return ""

    @tool(on_stop="kill", grace=0)
    def spin(file: str) -> str:
        """Spin."""
        Path(file).touch()
        while True:
            time.sleep(0.01)

    waiting = Agent(
        ScriptedModel(then=[Call("wait_for_ever", id="one"), Call("wait_for_ever", id="two")]),
        tools=[wait_for_ever],
        name="waiting",
    )
    spinning = Agent(
        ScriptedModel(then=[Call("spin", {"file": str(tmp_path / "spinning")})]), tools=[spin], name="spinning"
    )

    async def test(temporal: TemporalUnderTest) -> None:
        async with temporal.worker(waiting, spinning):
            first = await temporal.fleet.start("waiting", "go")
            second = await temporal.fleet.start("spinning", "go")
            await begun.passed()
            stopped = await temporal.stopped(first.id)
            outcomes = [(each.call_id, each.outcome) for each in receipt_of(stopped).calls]
            assert outcomes == [("one", Outcome.CANCELLED), ("two", Outcome.NEVER_STARTED)]
            assert receipt_of(stopped).phase is Phase.ACTING
            async with asyncio.timeout(60):
                while not (tmp_path / "spinning").exists():
                    await asyncio.sleep(0.02)
            stopped = await temporal.stopped(second.id)
            assert [each.outcome for each in receipt_of(stopped).calls] == [Outcome.KILLED]
            assert receipt_of(stopped).still_running == ()

    run_temporal(test)


@pytest.mark.promise("P6", "P8")
def test_a_queued_run_ends_before_anything_is_sent(run_temporal: RunTemporal) -> None:
    """Where no worker has the agent it ends at once. A stop without any worker is honoured by the first that comes."""
    teller = Agent(ScriptedModel("Never said."), name="teller")

    async def test(temporal: TemporalUnderTest) -> None:
        alone = await temporal.fleet.start("teller", "Hello")
        state = await temporal.fleet.stop(alone.id, "changed my mind")
        assert state is not None
        assert (state.accepted, state.delivered, state.at_rest) == (True, False, False)
        async with temporal.worker(teller):
            early = await temporal.rest(alone.id)
            queued = await temporal.fleet.start("another", "Hello")
            await temporal.has_activity(queued.id, "quiesce_model_call")
            stopped = await temporal.stopped(queued.id)
            late = await temporal.fleet.stop(queued.id)
            assert late is not None
            assert (late.accepted, late.at_rest) == (False, True)
            assert await temporal.fleet.stop("no-such-run") is None
        for each in (early, stopped):
            assert (each.reason, each.messages) == ("cancelled", ())
            assert receipt_of(each).usage.calls == 0
            assert receipt_of(each).phase is Phase.WAITING

    run_temporal(test)


@pytest.mark.proof
@pytest.mark.promise("P1", "P7")
def test_a_stop_that_becomes_more_urgent_ends_the_grace_of_a_tool(run_temporal: RunTemporal) -> None:
    begun, asked = Gate(), Gate()

    @tool(on_stop="finish", grace=300)
    async def slow(ctx: ToolContext) -> str:
        """Be slow."""
        begun.open()
        await ctx.token.wait()
        asked.open()
        await asyncio.Event().wait()
        return ""

    agent = Agent(ScriptedModel(then=[Call("slow")]), tools=[slow], name="slow")

    async def test(temporal: TemporalUnderTest) -> None:
        async with temporal.worker(agent):
            run = await temporal.fleet.start("slow", "go")
            await begun.passed()
            await temporal.fleet.stop(run.id, "please")
            await asked.passed()
            before = time.perf_counter()
            stopped = await temporal.stopped(run.id, "now", mode="kill")
            assert time.perf_counter() - before < 10
            assert (str(receipt_of(stopped).cause), receipt_of(stopped).mode) == ("user: please", "kill")

    run_temporal(test)


@pytest.mark.proof
@pytest.mark.promise("P3", "P7")
@pytest.mark.parametrize("mode", ["after_turn", "after_tools"])
def test_patient_stops(run_temporal: RunTemporal, mode: str) -> None:
    """Both let a tool that runs finish; only `after_turn` starts the next one, and neither calls the model again."""
    begun, finish = Gate(), asyncio.Event()

    @tool(sequential=True)
    async def work() -> str:
        """Work."""
        begun.open()
        await finish.wait()
        return "worked"

    agent = Agent(ScriptedModel(then=[Call("work"), Call("work")]), tools=[work], name="agent")

    async def test(temporal: TemporalUnderTest) -> None:
        async with temporal.worker(agent):
            run = await temporal.fleet.start("agent", "go")
            await begun.passed()
            await temporal.fleet.stop(run.id, mode=mode)
            await temporal.has_stop(run.id)
            finish.set()
            ended = await temporal.rest(run.id)
        assert ended.reason == "cancelled"
        second = Outcome.COMPLETED if mode == "after_turn" else Outcome.NEVER_STARTED
        assert [each.outcome for each in receipt_of(ended).calls] == [Outcome.COMPLETED, second]
        assert receipt_of(ended).usage.calls == 1

    run_temporal(test)


@pytest.mark.proof
@pytest.mark.promise("P7")
def test_temporals_own_cancellation_is_a_stop(run_temporal: RunTemporal) -> None:
    agent = Agent(ScriptedModel(then=[Say("Once upon a time "), Stall()]), name="teller")

    async def test(temporal: TemporalUnderTest) -> None:
        async with temporal.worker(agent):
            run = await temporal.fleet.start("teller", "go")
            await temporal.has_activity(run.id, "quiesce_model_call")
            await temporal.client.get_workflow_handle(run.id).cancel(reason="the cluster is full")
            ended = await temporal.rest(run.id)
        assert (ended.reason, str(receipt_of(ended).cause)) == ("cancelled", "remote: the cluster is full")

    run_temporal(test)


@pytest.mark.promise("P1", "P7")
def test_what_a_workflow_could_not_read_is_refused_and_does_not_hold_a_run_up(run_temporal: RunTemporal) -> None:
    """Temporal had it, and tried again and again to give it to the workflow: the run could not be stopped any more."""
    agent = Agent(ScriptedModel(then=[Say("Once upon a time "), Stall()]), name="teller")

    async def test(temporal: TemporalUnderTest) -> None:
        for wrong in ({"on_worker_loss": "pray"}, {"timeout": "soon"}, {"lease": 0}):
            with pytest.raises(ConfigurationError):
                await temporal.fleet.start("teller", "go", **wrong)  # type: ignore[arg-type]
        async with temporal.worker(agent):
            run = await temporal.fleet.start("teller", "go")
            await temporal.has_activity(run.id, "quiesce_model_call")
            with pytest.raises(ConfigurationError, match="boredom"):
                await temporal.fleet.stop(run.id, source="boredom")
            await temporal.client.get_workflow_handle(run.id).signal("quiesce_stop", {"cause": {"source": "boredom"}})
            ended = await asyncio.wait_for(temporal.stopped(run.id), 20)
        assert (ended.reason, str(receipt_of(ended).cause)) == ("cancelled", "user: enough")

    run_temporal(test)


@pytest.mark.promise("P1", "P5")
def test_an_answer_that_is_none_is_refused_and_the_run_waits_for_another(run_temporal: RunTemporal) -> None:
    """The run ended with an error: its tools were not called, and nobody could answer any more."""

    @tool(requires_approval=True)
    async def paint(layers: int) -> str:
        """Paint."""
        return f"{layers} layers"

    model = ScriptedModel([Call("paint", {"layers": 1})], then="Done.")

    async def test(temporal: TemporalUnderTest) -> None:
        async with temporal.worker(Agent(model, tools=[paint], name="painter")):
            run = await temporal.fleet.start("painter", "go")
            async with asyncio.timeout(60):
                while not (found := await temporal.fleet.find(run.id)) or not found.interrupts:
                    await asyncio.sleep(0.05)
            asked = found.interrupts[0].id
            for wrong in ({"type": "deny", "reason": 5}, object(), float("nan")):
                with pytest.raises(InvalidAnswer):
                    await temporal.fleet.answer(run.id, {asked: wrong})
            handle = temporal.client.get_workflow_handle(run.id)
            await handle.signal("quiesce_answer", {asked: {"type": "deny", "reason": 5}})
            for answer in (Approve(arguments={"layers": "many"}), "perhaps", Approve(arguments={"layers": 2})):
                assert await temporal.fleet.answer(run.id, {asked: answer})
            ended = await asyncio.wait_for(temporal.rest(run.id), 60)
        assert (ended.reason, ended.error) == ("end_turn", "")
        results = [each.results for each in ended.messages if isinstance(each, ToolMessage)]
        assert [each.text.rpartition("\n")[2] for (each,) in results] == ["2 layers"]

    run_temporal(test)
