"""Workers that die, freeze, or are told to end: their runs go on elsewhere or are sealed, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quiesce.conversation.validity import faults
from quiesce.messages import Outcome, ToolMessage
from quiesce.sessions import Session

from .agents import agent
from .conftest import FleetUnderTest
from .processes import WorkerProcess, counted

pytestmark = pytest.mark.promise("P4", "P9")


class Processes:
    """The worker processes of one test."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness
        self.started: list[WorkerProcess] = []

    def start(self, fleet: FleetUnderTest, **options: Any) -> WorkerProcess:
        self.started.append(WorkerProcess(fleet.url, self.witness, **options))
        return self.started[-1]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path / "witness")
    yield made
    for each in made.started:
        each.close()


async def outcomes(fleet: FleetUnderTest, session: str = "ann/s") -> list[Outcome]:
    """The outcomes of all calls of the conversation, which must be valid."""
    messages = await Session(session, fleet.fleet.store).load()
    assert not faults(messages)
    return [each.outcome for message in messages if isinstance(message, ToolMessage) for each in message.results]


def test_after_a_kill_runs_are_taken_over_by_policy(run_fleet: Any, processes: Processes) -> None:
    """Finished tools are not run again; one that may run twice is; a stop is honoured, and `seal` only seals."""

    async def test(fleet: FleetUnderTest) -> None:
        first = processes.start(fleet, lease=1.0)
        run = await fleet.submit("work:0 work:600 the end")
        repeated = await fleet.submit("again:1 the end", session="ann/again")
        sealed = await fleet.submit("stall", session="ann/sealed", on_worker_loss="seal")
        stopped = await fleet.submit("stall", session="ann/stopped")
        started = await fleet.until(run.id, "tool_started")
        await fleet.until(run.id, "tool_started", started)
        await fleet.until(repeated.id, "tool_started")
        for each in (sealed, stopped):
            await fleet.until(each.id, "text")
        first.kill()
        stop = await fleet.fleet.stop(stopped.id, "enough")
        assert stop is not None
        assert (stop.accepted, stop.delivered, stop.at_rest) == (True, False, False)

        async with fleet.worker(agent, lease=1.0):
            crashed = await fleet.rest(run.id)
            following = await fleet.rest(crashed.restarted_as)
            again = await fleet.rest((await fleet.rest(repeated.id)).restarted_as)
            for each in (sealed, stopped):
                ended = await fleet.rest(each.id)
                assert (ended.state, ended.reason, ended.restarted_as) == ("crashed", "crashed", "")

        assert (crashed.state, crashed.reason) == ("crashed", "crashed")
        assert crashed.receipt is not None
        assert str(crashed.receipt).startswith(f"Run {run.id} crashed: its process ended, or was lost")
        assert [call.outcome for call in crashed.receipt.calls] == [Outcome.UNKNOWN]
        assert crashed.receipt.usage.calls == 2
        assert (following.reason, following.continued_from, following.losses) == ("end_turn", run.id, 1)
        assert await outcomes(fleet) == [Outcome.COMPLETED, Outcome.UNKNOWN]
        assert again.reason == "end_turn"
        assert await outcomes(fleet, "ann/again") == [Outcome.COMPLETED]
        last = [each async for each in fleet.fleet.events(run.id)][-1]
        assert last.event.__struct_config__.tag == "run_ended"
        late = await fleet.fleet.stop(run.id)  # goes to the run that goes on, which has ended
        assert late is not None
        assert (late.run.id, late.accepted) == (following.id, False)

    run_fleet(test)
    # Call ids are those of a conversation: the first calls are one of `work` and one of `again`.
    assert counted(processes.witness, "start") == {"call_0_0": 2, "call_1_1": 1}
    assert counted(processes.witness, "done") == {"call_0_0": 1}


def test_a_frozen_worker_that_wakes_cannot_write(run_fleet: Any, processes: Processes) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        first = processes.start(fleet, lease=1.0)
        run = await fleet.submit("work:0.5 work:0 the end")
        await fleet.until(run.id, "tool_started")
        first.freeze()
        async with fleet.worker(agent, lease=1.0):
            crashed = await fleet.rest(run.id)
            following = await fleet.rest(crashed.restarted_as)
            assert following.reason == "end_turn"
            session = Session("ann/s", fleet.fleet.store)
            before = await session.load()
            first.thaw()
            other = await fleet.submit("work:0 bye", session="ann/two")
            await fleet.rest(other.id)
            assert await asyncio.to_thread(first.terminate) == 0  # all that it was in the middle of is over
            assert await session.load() == before
            assert (await fleet.rest(run.id)) == crashed
        assert await outcomes(fleet) == [Outcome.UNKNOWN, Outcome.COMPLETED]

    run_fleet(test)
    # The call that was cut has run to its end in the frozen worker; the one after it ran once, in the other.
    starts = counted(processes.witness, "start")
    assert "call_0_0" in starts
    assert "call_1_1" not in starts


@pytest.mark.proof
def test_sigterm_hands_over(run_fleet: Any, processes: Processes) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        first = processes.start(fleet, drain=10.0)
        run = await fleet.submit("work:0.5 work:0 the end")
        await fleet.until(run.id, "tool_started")
        assert await asyncio.to_thread(first.terminate) == 0
        drained = await fleet.rest(run.id)
        assert (drained.reason, bool(drained.restarted_as)) == ("cancelled", True)
        assert await fleet.fleet.workers() == []
        async with fleet.worker(agent):
            following = await fleet.rest(drained.restarted_as)
        assert (following.reason, following.losses) == ("end_turn", 0)
        assert await outcomes(fleet) == [Outcome.COMPLETED, Outcome.COMPLETED]

    run_fleet(test)
    assert counted(processes.witness, "done") == {"call_0_0": 1}
