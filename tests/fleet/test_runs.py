"""Runs in the queue of a fleet: taken by workers, watched, stopped and steered from another process."""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from typing import Any

import pytest

from quiesce import Agent, tool
from quiesce.cancellation import Mode
from quiesce.conversation.validity import faults, user_message
from quiesce.errors import ConfigurationError, ConversationBusy, SessionBusy, StoreError
from quiesce.events import RunEnded, TextDelta
from quiesce.fleet import FleetRun, RunRequest, WorkerSettings, run_table, worker
from quiesce.fleet.records import StopBody
from quiesce.fleet.taking import RowLocked, ServedAgent, take
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.sessions import Session
from quiesce.sessions.journal.rows import Row, encode
from quiesce.sessions.records import RunBegin, WriteBatch, holder

from .conftest import FleetUnderTest

pytestmark = pytest.mark.promise("P1", "P9")


def endless(**options: Any) -> Agent:
    return Agent(ScriptedModel(then=[Say("It was a dark night. "), Stall()]), **options)


def test_a_queued_run_is_taken_and_its_events_are_read_elsewhere(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        run = await fleet.submit()
        assert run.state == "queued"
        async with fleet.worker(Agent(ScriptedModel(then="Good morning."))):
            events = [each async for each in fleet.fleet.events(run.id)]
        assert [number for number, _ in events] == list(range(1, len(events) + 1))
        assert "".join(event.text for _, event in events if isinstance(event, TextDelta)) == "Good morning."
        assert isinstance(events[-1].event, RunEnded)
        ended = await fleet.rest(run.id)
        assert (ended.state, ended.reason) == ("ended", "end_turn")
        assert ended.receipt is not None
        assert ended.receipt.saved
        assert [each async for each in fleet.fleet.events(run.id, after=2)] == events[2:]
        assert [each async for each in fleet.fleet.events(run.id, after=len(events))] == []

    run_fleet(test)


def test_a_reader_that_has_seen_the_end_finds_the_run_at_rest(run_fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is in the journal before it is in the row of the run, by which a follow-up is refused or accepted."""
    record = run_table.end

    async def end_later(*arguments: Any, **options: Any) -> bool:
        await asyncio.sleep(0.5)
        return await record(*arguments, **options)

    monkeypatch.setattr(run_table, "end", end_later)

    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(Agent(ScriptedModel(then="Good morning."))):
            run = await fleet.submit()
            await fleet.until(run.id, "run_ended")
            found = await fleet.fleet.find(run.id)
            assert found is not None
            assert found.state == "ended"

    run_fleet(test)


def test_a_stop_reaches_the_worker_that_has_the_run(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(endless()):
            run = await fleet.submit()
            await fleet.until(run.id, "text")
            state = await fleet.fleet.stop(run.id, "enough", wait=30)
            assert state is not None
            assert (state.accepted, state.delivered, state.at_rest) == (True, True, True)
            receipt = state.run.receipt
            assert receipt is not None
            assert receipt.cause is not None
            assert (receipt.stop_reason, receipt.cause.source, receipt.cause.reason) == ("cancelled", "user", "enough")
            assert receipt.kept_text == len("It was a dark night. ")
            again = await fleet.fleet.stop(run.id)
            assert again is not None
            assert not again.accepted
            assert again.at_rest
            assert await fleet.fleet.stop("nosuchrun") is None

    run_fleet(test)


def test_a_stop_of_a_queued_run_ends_it_before_it_starts(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        run = await fleet.submit()
        state = await fleet.fleet.stop(run.id, "not needed")
        assert state is not None
        assert (state.accepted, state.at_rest) == (True, True)
        assert state.run.receipt is not None
        assert state.run.receipt.run_id == run.id
        assert str(state.run.receipt).splitlines()[0] == f"Run {run.id} was stopped (user: not needed)."
        (only,) = [each async for each in fleet.fleet.events(run.id)]
        assert (only.number, isinstance(only.event, RunEnded)) == (1, True)
        assert [each async for each in fleet.fleet.events(run.id, after=1)] == []
        model = ScriptedModel(then="Good morning.")
        async with fleet.worker(Agent(model)):
            other = await fleet.submit()
            assert (await fleet.rest(other.id)).reason == "end_turn"
        assert len(model.requests) == 1
        assert (await fleet.rest(run.id)).attempt == 0

    run_fleet(test)


def test_a_lost_notification_costs_time_and_not_the_stop(run_fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SLOW_PACE", 0.2)

    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(endless()):
            run = await fleet.submit()
            await fleet.until(run.id, "text")
            async with fleet.fleet._database.connection() as db:  # the row of a stop, without its notification
                await db.execute(
                    "INSERT INTO quiesce_fleet_commands (run, kind, body, created) VALUES ($1, 'stop', $2, 0)",
                    run.id,
                    encode(StopBody("unheard")),
                )
            ended = await fleet.rest(run.id)
            assert ended.receipt is not None
            assert ended.receipt.cause is not None
            assert ended.receipt.cause.reason == "unheard"

    run_fleet(test)


def test_a_later_stop_can_only_be_more_urgent(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(endless()):
            run = await fleet.submit()
            await fleet.until(run.id, "text")
            patient = await fleet.fleet.stop(run.id, "when you are ready", mode=Mode.AFTER_TURN)
            assert patient is not None
            assert not patient.at_rest
            await fleet.fleet.stop(run.id, mode=Mode.NOW)
            await fleet.fleet.stop(run.id, mode=Mode.AFTER_TURN)
            ended = await fleet.rest(run.id)
            assert ended.stop == "now"
            assert ended.receipt is not None
            assert (ended.receipt.mode, ended.receipt.cause and ended.receipt.cause.reason) == (
                Mode.NOW,
                "when you are ready",
            )

    run_fleet(test)


def test_steering_pausing_and_the_stop_of_one_tool_travel_the_same_way(run_fleet: Any) -> None:
    @tool
    async def wait_for_ever() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([Call("wait_for_ever", id="call_1")], [Say("Waiting. "), Stall()], "As you like.")

    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(Agent(model, tools=[wait_for_ever])):
            run = await fleet.submit()
            await fleet.until(run.id, "tool_started")
            paused = await fleet.fleet.command(run.id, "pause", None, wait=30)
            assert paused is not None
            assert paused.took
            state = await fleet.fleet.command(run.id, "cancel_tool", ("call_1", "not this"), wait=30)
            assert state is not None
            assert (state.delivered, state.took) == (True, True)
            nothing = await fleet.fleet.command(run.id, "cancel_tool", ("call_9", ""), wait=30)
            assert nothing is not None
            assert (nothing.delivered, nothing.took) == (True, False)
            await fleet.until(run.id, "run_paused")
            await fleet.fleet.command(run.id, "unpause", None, wait=30)
            await fleet.until(run.id, "text")
            steered = await fleet.fleet.command(run.id, "steer", user_message("Say something else."), wait=30)
            assert steered is not None
            assert steered.took
            ended = await fleet.rest(run.id)
            assert ended.reason == "end_turn"
            assert ended.receipt is not None
            assert [call.outcome for call in ended.receipt.calls] == [Outcome.CANCELLED]
            late = await fleet.fleet.command(run.id, "steer", user_message("Too late."))
            assert late is not None
            assert not late.accepted

    run_fleet(test)
    assert len(model.requests) == 3


def test_an_approval_is_answered_in_another_run(run_fleet: Any) -> None:
    paid: list[str] = []

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(str(amount))
        return "paid"

    async def test(fleet: FleetUnderTest) -> None:
        model = ScriptedModel([Call("pay", {"amount": 3}, id="call_1")], "It is paid.")
        async with fleet.worker(Agent(model, tools=[pay])):
            run = await fleet.submit()
            assert (await fleet.rest(run.id)).reason == "interrupt"
            session = Session(run.session, fleet.fleet.store)
            await session.load()
            (asked,) = session.interrupts
            answer = RunRequest("ann", "agent", run.session, "answer", encode({asked.id: True}))
            resumed, _ = await fleet.fleet.submit(answer)
            assert (await fleet.rest(resumed.id)).reason == "end_turn"
        assert paid == ["3"]
        assert not faults(await session.load())

    run_fleet(test)


def test_a_busy_session_refuses_or_queues(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        request = RunRequest("ann", "agent", "ann/s", "prompt", encode(user_message("Hello")), idempotency_key="k")
        first, is_new = await fleet.fleet.submit(request, on_busy="refuse")
        assert is_new
        assert await fleet.fleet.submit(request, on_busy="refuse") == (first, False)
        with pytest.raises(ConversationBusy):
            await fleet.fleet.submit(RunRequest("ann", "agent", "ann/s", "prompt", request.given), on_busy="refuse")
        second = await fleet.submit("And again")
        async with (
            fleet.worker(Agent(ScriptedModel(then="Yes.")), capacity=1),
            fleet.worker(Agent(ScriptedModel(then="Yes.")), capacity=1),
        ):
            for run in (first, second):
                assert (await fleet.rest(run.id)).reason == "end_turn"
        session = Session("ann/s", fleet.fleet.store)
        assert len(await session.load()) == 4
        assert not faults(session.messages)

    run_fleet(test)


def test_stop_all_stops_what_is_queued_and_what_runs(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(endless(), capacity=3):
            runs = [await fleet.submit(session=f"ann/{number}") for number in range(8)]
            other = await fleet.submit(session="ann/other", agent="another")
            for _ in range(3):
                running = [run.id for run in await fleet.fleet.runs(states=("running",))]
                for run_id in running:
                    await fleet.until(run_id, "text")
            stopped = await fleet.fleet.stop_all("all of it", agent="agent")
            assert sorted(stopped) == sorted(run.id for run in runs)
            ended = [await fleet.rest(run.id) for run in runs]
            assert {run.reason for run in ended} == {"cancelled"}
            assert {run.receipt and run.receipt.cause and run.receipt.cause.reason for run in ended} == {"all of it"}
            left = await fleet.fleet.find(other.id)
            assert left is not None
            assert left.state == "queued"

    run_fleet(test)


def test_a_stop_and_a_worker_that_takes_the_same_run_do_not_deadlock(run_fleet: Any) -> None:
    """Each locks what the other wants: the stop the run and then its job, the worker the job and then the run."""

    async def test(fleet: FleetUnderTest) -> None:
        run = await fleet.submit()
        database, locked, tried = fleet.fleet._database, asyncio.Event(), asyncio.Event()
        engine = database.engine

        class Slow:
            """Ends the job only when the worker has it, too."""

            async def finish(self, db: Any, jobs: Any) -> None:
                locked.set()
                await tried.wait()
                await engine.finish(db, jobs)

        async def stop() -> None:
            async with database.transaction() as db:
                await run_table.stop_queued(db, Slow(), [run.id], StopBody("enough"))  # type: ignore[arg-type]

        async def try_to_take() -> None:
            with pytest.raises(RowLocked):
                async with database.transaction() as db:
                    asyncio.get_running_loop().call_later(0.2, tried.set)  # also when the worker waits for the row
                    await take(db, engine, {"agent": ServedAgent()}, 1, uuid.uuid4(), lease=5)

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            group.create_task(stop())
            await locked.wait()
            await try_to_take()
        assert (await fleet.rest(run.id)).reason == "cancelled"
        async with fleet.worker(endless()):
            other = await fleet.submit(session="ann/other")
            await fleet.until(other.id, "text")
            await fleet.fleet.stop(other.id)
            await fleet.rest(other.id)

    run_fleet(test)


def test_a_drained_worker_hands_its_runs_over(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(endless(), hurry=True):
            run = await fleet.submit()
            await fleet.until(run.id, "text")
        drained = await fleet.rest(run.id)
        assert drained.receipt is not None
        assert drained.receipt.cause is not None
        assert (drained.reason, drained.receipt.cause.source) == ("cancelled", "shutdown")
        following = await fleet.fleet.find(drained.restarted_as)
        assert following is not None
        assert (following.state, following.continued_from, following.kind) == ("queued", run.id, "continue")
        async with fleet.worker(Agent(ScriptedModel(then="And then it ended."))):
            assert (await fleet.rest(following.id)).reason == "end_turn"
        session = Session("ann/s", fleet.fleet.store)
        assert not faults(await session.load())

    run_fleet(test)


def test_a_stop_that_comes_during_the_drain_is_honoured(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(endless(), drain=3.0):
            run = await fleet.submit()
            await fleet.until(run.id, "text")
            stopping = asyncio.create_task(fleet.fleet.stop(run.id, "mine", mode=Mode.AFTER_TURN))
            await stopping
        drained = await fleet.rest(run.id)
        assert (drained.reason, drained.restarted_as) == ("cancelled", "")

    run_fleet(test)


def test_a_stop_that_was_accepted_before_the_run_was_taken_again_lets_nothing_be_sent(run_fleet: Any) -> None:
    """The worker that had the run was lost before it began: the stop is there first."""

    async def test(fleet: FleetUnderTest) -> None:
        run = await fleet.submit()
        async with fleet.fleet._database.transaction() as db:  # a worker that takes it and does nothing more
            engine = fleet.fleet._database.engine
            (taken,) = await take(db, engine, {"agent": ServedAgent()}, 1, uuid.uuid4(), lease=1.0)
        assert taken.id == run.id
        state = await fleet.fleet.stop(run.id, "too late for the first, in time for the second")
        assert state is not None
        assert (state.accepted, state.delivered) == (True, False)
        model = ScriptedModel(then="Good morning.")
        async with fleet.worker(Agent(model), lease=0.5):
            ended = await fleet.rest(run.id)
        assert (ended.state, ended.reason, ended.attempt) == ("ended", "cancelled", 2)
        assert model.requests == []

    run_fleet(test)


def test_a_stop_that_a_worker_could_not_read_is_refused_and_not_accepted(run_fleet: Any) -> None:
    """It was stored, said to be accepted, and dropped by the worker with a warning in its log."""

    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(endless()):
            run = await fleet.submit()
            async for _, event in fleet.fleet.events(run.id):
                if isinstance(event, TextDelta):
                    break
            for stop in (fleet.fleet.stop(run.id, source="boredom"), fleet.fleet.stop_all(source="boredom")):
                with pytest.raises(ConfigurationError, match="boredom"):
                    await stop
            state = await fleet.fleet.stop(run.id, wait=30)
            assert state is not None
            assert state.at_rest

    run_fleet(test)


@pytest.mark.promise("P9")
def test_a_session_is_deleted_with_its_runs_or_not_at_all(run_fleet: Any) -> None:
    """The runs were deleted although the session was refused; one without runs was deleted, and said not to exist."""

    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(Agent(ScriptedModel(then="Yes."))):
            run = await fleet.submit()
            await fleet.rest(run.id)
        store = fleet.fleet.store
        held = await asyncio.wrap_future(store.acquire(run.session, holder("another"), seconds=60))
        with pytest.raises(SessionBusy):
            await fleet.fleet.delete_session(run.owner, run.session)
        assert await fleet.fleet.find(run.id) is not None
        await asyncio.wrap_future(store.release(held.lease))
        assert await fleet.fleet.delete_session(run.owner, run.session)
        assert await fleet.fleet.find(run.id) is None
        held = await asyncio.wrap_future(store.acquire("without runs", holder("another"), seconds=60))
        await asyncio.wrap_future(store.release(held.lease))
        assert await fleet.fleet.delete_session("", "without runs")
        assert not await fleet.fleet.delete_session("", "without runs")

    run_fleet(test)


@pytest.mark.promise("P9")
def test_a_session_of_another_owner_is_not_deleted(run_fleet: Any) -> None:
    """Nobody's run matched, and the conversation was deleted all the same."""

    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(Agent(ScriptedModel(then="Yes."))):
            run = await fleet.submit()
            await fleet.rest(run.id)
        assert not await fleet.fleet.delete_session("bob", run.session)
        assert len(await Session(run.session, fleet.fleet.store).load()) == 2
        assert await fleet.fleet.delete_session("ann", run.session)

    run_fleet(test)


@pytest.mark.promise("P9")
def test_a_run_that_is_queued_while_its_session_is_deleted_is_not_lost(
    run_fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was accepted, and then deleted with the runs that had ended."""

    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(Agent(ScriptedModel(then="Yes."))):
            run = await fleet.submit()
            await fleet.rest(run.id)
        delete, queued = run_table.delete_runs, list[str]()

        async def delete_later(db: Any, owner: str, session: str) -> int:
            queued.append((await fleet.submit("And again")).id)
            return await delete(db, owner, session)

        monkeypatch.setattr(run_table, "delete_runs", delete_later)
        with pytest.raises(ConversationBusy) as refused:
            await fleet.fleet.delete_session(run.owner, run.session)
        assert queued[0] in str(refused.value)
        for each in (run.id, *queued):
            assert await fleet.fleet.find(each) is not None

    run_fleet(test)


@pytest.mark.promise("P4")
def test_the_reason_of_a_stop_is_recorded_as_it_was_given(run_fleet: Any) -> None:
    """A word in it was replaced by the id of the run; half a character raised `UnicodeEncodeError`."""
    reason = "the \N{LEFT DOUBLE ANGLE BRACKET}run\N{RIGHT DOUBLE ANGLE BRACKET} of today \0"

    async def test(fleet: FleetUnderTest) -> None:
        run = await fleet.submit()
        with pytest.raises(ConfigurationError, match="cannot be encoded"):
            await fleet.fleet.stop(run.id, "half a \ud800")
        state = await fleet.fleet.stop(run.id, reason)
        assert state is not None
        assert state.run.receipt is not None
        assert (state.run.receipt.run_id, str(state.run.receipt.cause)) == (run.id, f"user: {reason}")

    run_fleet(test)


def test_a_start_that_no_worker_could_make_is_refused(run_fleet: Any) -> None:
    """It was queued, and told after three tries that workers were lost, or went on without what was asked."""

    async def test(fleet: FleetUnderTest) -> None:
        wrongs: list[dict[str, Any]] = [{"session": "a\nb"}, {"session": "\0"}, {"timeout": -1}, {"timeout": math.nan}]
        for wrong in (*wrongs, {"on_worker_loss": "pray"}):
            with pytest.raises(ConfigurationError):
                await fleet.fleet.start("agent", "Hello", **wrong)
        assert await fleet.fleet.runs() == []

    run_fleet(test)


@pytest.mark.promise("P4")
def test_deps_that_cannot_be_made_end_the_run_with_their_error(
    run_fleet: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Three workers tried it, one after the other; then it was said that they were lost."""
    caplog.set_level(logging.CRITICAL, "quiesce")  # a worker of pytest-xdist cannot send half a character
    tries: list[str] = []

    def make_deps(run: FleetRun) -> object:
        tries.append(run.id)
        raise ValueError("no tenant \udcff")

    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(endless(), lease=0.5) as worker:
            worker.deps = make_deps  # type: ignore[misc]
            run = await fleet.submit()
            ended = await fleet.rest(run.id)
        assert ended.receipt is not None
        assert (ended.state, ended.reason, str(ended.receipt.cause)) == ("ended", "error", "caller: no tenant ?")
        assert tries == [run.id]

    run_fleet(test)


@pytest.mark.promise("P9")
def test_a_drained_run_whose_end_its_worker_could_not_record_goes_on(
    run_fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal had the end and the worker was gone: the next one recorded a stop by nobody, and nothing followed."""
    end, lost = run_table.end, list[str]()

    async def end_later(db: Any, engine: Any, run: FleetRun, *args: Any, **options: Any) -> bool:
        if not lost:
            lost.append(run.id)
            raise StoreError("The worker is killed here.")
        return await end(db, engine, run, *args, **options)

    async def test(fleet: FleetUnderTest) -> None:
        monkeypatch.setattr(run_table, "end", end_later)
        async with fleet.worker(endless(), hurry=True, lease=0.5):
            run = await fleet.submit()
            await fleet.until(run.id, "text")
        assert lost == [run.id]
        async with fleet.worker(Agent(ScriptedModel(then="And then it ended.")), lease=0.5):
            drained = await fleet.rest(run.id)
            assert (drained.state, drained.reason, drained.attempt) == ("ended", "cancelled", 2)
            assert (await fleet.rest(drained.restarted_as)).reason == "end_turn"
        assert not faults(await Session(run.session, fleet.fleet.store).load())

    run_fleet(test)


@pytest.mark.promise("P3")
def test_a_lost_run_whose_journal_is_damaged_ends(run_fleet: Any) -> None:
    """It was taken again after each lease, and never ended."""

    async def test(fleet: FleetUnderTest) -> None:
        run, store = await fleet.submit(), fleet.fleet.store
        acquired = await asyncio.wrap_future(store.acquire(run.session, holder("lost"), seconds=-1))
        begun = WriteBatch(run.id)
        begun.begin = RunBegin("agent", 1.0)
        begun.take_rows([Row(b"?", 1)])
        begun.release = True
        await asyncio.wrap_future(store.write(acquired.lease, begun))
        async with fleet.worker(endless(), lease=0.5):
            ended = await fleet.rest(run.id)
        assert (ended.state, ended.reason) == ("crashed", "crashed")

    run_fleet(test)


@pytest.mark.parametrize(
    "wrong",
    [{name: value} for name in ("capacity", "lease") for value in (0, -1, math.nan, "5", None)]
    + [{"drain": -1}, {"drain": math.inf}, {"drain": None}, {"capacity": 1.5}, {"capacity": 1 << 64}],
)
def test_limits_of_a_worker_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    """No run was ever taken, or all of them by every worker at once."""
    with pytest.raises(ConfigurationError):
        WorkerSettings(**wrong)
