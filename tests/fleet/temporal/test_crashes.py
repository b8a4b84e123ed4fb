"""Workers that die, freeze or shut down: runs on Temporal go on, and nothing that finished is done twice.

The agent is that of the fleet's tests: `work:N` may not run twice, `again:N` may, `stall` never ends.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollActivityTaskQueueRequest
from temporalio.service import RPCError
from temporalio.worker import Worker

from quiesce.fleet.temporal.progress import MAX_LOSSES
from quiesce.fleet.temporal.records import MODEL_CALL, RunInfo
from quiesce.fleet.temporal.workflow import RunWorkflow
from quiesce.messages import Outcome, ToolMessage
from quiesce.usage.figure import Provenance

from ..agents import agent
from ..processes import counted, witnessed
from .conftest import RunTemporal, TemporalUnderTest

pytestmark = pytest.mark.promise("P6", "P9")


async def started(temporal: TemporalUnderTest, count: int) -> None:
    """Wait until so many calls have begun, in all."""
    async with asyncio.timeout(60):
        while len([each for each in witnessed(temporal.witness) if each[1] == "start"]) < count:
            await asyncio.sleep(0.02)


def outcomes(run: Any) -> list[Outcome]:
    return [each.outcome for message in run.messages if isinstance(message, ToolMessage) for each in message.results]


def test_after_a_kill_runs_go_on(run_temporal: RunTemporal) -> None:
    """A model call is repeated, and the one that was cut is in the ledger; a tool runs again only if it may."""
    found: list[TemporalUnderTest] = []

    async def test(temporal: TemporalUnderTest) -> None:
        found.append(temporal)
        victim = temporal.process()
        start = temporal.fleet.start
        worked = await start("agent", "work:0 work:600 the end", lease=2)
        again = await start("agent", "again:1.5 the end", lease=2)
        stalled = await start("agent", "stall", lease=2)
        await started(temporal, 3)
        await temporal.is_started(stalled.id)
        victim.kill()
        async with temporal.worker(agent):
            ended = await temporal.rest(worked.id)
            assert (ended.reason, outcomes(ended)) == ("end_turn", [Outcome.COMPLETED, Outcome.UNKNOWN])
            assert ended.receipt is not None
            assert [each.outcome for each in ended.receipt.calls] == [Outcome.COMPLETED, Outcome.UNKNOWN]
            ended = await temporal.rest(again.id)
            assert (ended.reason, outcomes(ended)) == ("end_turn", [Outcome.COMPLETED])
            await temporal.is_started(stalled.id)
            ended = await temporal.stopped(stalled.id)
            assert ended.receipt is not None
            entries = ended.receipt.usage.entries
            assert [(each.model, each.ended) for each in entries] == [("planner", "open"), ("planner", "hung_up")]
            assert entries[0].usage.input.source is Provenance.UNKNOWN
            assert ended.receipt.usage.output.high is None

    run_temporal(test)
    starts, ends = counted(found[0].witness, "start"), counted(found[0].witness, "done")
    # What the process that was killed did. Call ids are those of a conversation: the first is one of `work` and one of
    # `again`, which began in the other worker once more.
    assert starts == {"call_0_0": 2, "call_1_1": 1}
    assert ends == {"call_0_0": 1}


@pytest.mark.proof
def test_a_stop_is_honoured_although_the_worker_is_dead(run_temporal: RunTemporal) -> None:
    async def test(temporal: TemporalUnderTest) -> None:
        victim = temporal.process()
        run = await temporal.fleet.start("agent", "work:600 the end", lease=2)
        stalled = await temporal.fleet.start("agent", "stall", lease=2)
        await started(temporal, 1)
        await temporal.is_started(stalled.id)
        victim.kill()
        for each in (run, stalled):
            state = await temporal.fleet.stop(each.id, "enough")
            assert state is not None
            assert (state.accepted, state.at_rest) == (True, False)
        async with temporal.worker(agent):
            ended = await temporal.rest(run.id)
            assert (ended.reason, outcomes(ended)) == ("cancelled", [Outcome.UNKNOWN])
            ended = await temporal.rest(stalled.id)
            assert (ended.reason, len(ended.messages)) == ("cancelled", 2)
            assert ended.receipt is not None
            assert [each.ended for each in ended.receipt.usage.entries] == ["open"]

    run_temporal(test)


@pytest.mark.proof
def test_a_frozen_worker_that_wakes_changes_nothing(run_temporal: RunTemporal) -> None:
    async def test(temporal: TemporalUnderTest) -> None:
        victim = temporal.process()
        run = await temporal.fleet.start("agent", "work:3 the end", lease=2)
        await started(temporal, 1)
        victim.freeze()
        async with temporal.worker(agent):
            ended = await temporal.rest(run.id)
            assert (ended.reason, outcomes(ended)) == ("end_turn", [Outcome.UNKNOWN])
            victim.thaw()
            assert await asyncio.to_thread(victim.terminate) == 0
            assert await temporal.rest(run.id) == ended

    run_temporal(test)


def test_activities_that_no_worker_begins_are_given_to_others(run_temporal: RunTemporal) -> None:
    """As by a frozen worker, whose open polls still take activities: nothing of the run is lost with them."""

    async def test(temporal: TemporalUnderTest) -> None:
        queue = TaskQueue(name=f"{temporal.queue}/agent")
        poll = PollActivityTaskQueueRequest(namespace="default", task_queue=queue, identity="frozen")
        async with Worker(
            temporal.client,
            task_queue=temporal.queue,
            workflows=[RunWorkflow],
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        ):
            run = await temporal.fleet.start("agent", "again:0 the end", lease=0.5)
            given = [await temporal.client.workflow_service.poll_activity_task_queue(poll) for _ in range(MAX_LOSSES)]
            assert {each.activity_type.name for each in given} == {MODEL_CALL}
        async with temporal.worker(agent):
            ended = await temporal.rest(run.id)
        assert (ended.reason, outcomes(ended)) == ("end_turn", [Outcome.COMPLETED])
        assert ended.receipt is not None
        assert ended.receipt.usage.calls == 2
        late = temporal.client.get_async_activity_handle(task_token=given[-1].task_token)
        with pytest.raises(RPCError):  # a worker that wakes does not begin what it was given
            await late.heartbeat()

    run_temporal(test)


def test_an_activity_that_fails_before_it_begins_ends_the_run(run_temporal: RunTemporal) -> None:
    def no_deps(_: RunInfo) -> object:
        raise RuntimeError("no database")

    async def test(temporal: TemporalUnderTest) -> None:
        async with temporal.worker(agent, deps=no_deps):
            run = await temporal.fleet.start("agent", "the end")
            ended = await temporal.rest(run.id)
        assert (ended.reason, ended.error) == ("error", "no database")

    run_temporal(test)


@pytest.mark.proof
def test_sigterm_hands_over(run_temporal: RunTemporal) -> None:
    """A model call is made again elsewhere; a tool that may not run twice says that it was stopped."""

    async def test(temporal: TemporalUnderTest) -> None:
        first = temporal.process()
        worked = await temporal.fleet.start("agent", "work:600 the end")
        again = await temporal.fleet.start("agent", "again:1.5 the end")
        stalled = await temporal.fleet.start("agent", "stall")
        await started(temporal, 2)
        await temporal.is_started(stalled.id)
        assert await asyncio.to_thread(first.terminate) == 0
        async with temporal.worker(agent):
            ended = await temporal.rest(worked.id)
            assert (ended.reason, outcomes(ended)) == ("end_turn", [Outcome.CANCELLED])
            ended = await temporal.rest(again.id)
            assert (ended.reason, outcomes(ended)) == ("end_turn", [Outcome.COMPLETED])
            await temporal.is_started(stalled.id)
            ended = await temporal.stopped(stalled.id)
            assert ended.receipt is not None
            assert [each.ended for each in ended.receipt.usage.entries] == ["hung_up", "hung_up"]
            assert ended.text == "Waiting. "

    run_temporal(test)


@pytest.mark.proof
@pytest.mark.timeout(400)
def test_runs_that_are_not_to_go_on_are_sealed(run_temporal: RunTemporal) -> None:
    """By policy, and after three lost workers."""

    async def test(temporal: TemporalUnderTest) -> None:
        async def lose(*run_ids: str) -> None:
            victim = temporal.process()
            for each in run_ids:
                await temporal.is_started(each)
            victim.kill()

        sealed = await temporal.fleet.start("agent", "stall", lease=2, on_worker_loss="seal")
        often = await temporal.fleet.start("agent", "stall", lease=2)
        await lose(sealed.id, often.id)
        await lose(often.id)
        await lose(often.id)
        async with temporal.worker(agent):
            for run, calls in ((sealed, 1), (often, 3)):
                ended = await temporal.rest(run.id)
                assert (ended.state, ended.reason) == ("crashed", "crashed")
                assert ended.receipt is not None
                assert ended.receipt.usage.calls == calls

    run_temporal(test)
