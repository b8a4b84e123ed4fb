"""`on_stop="kill"`: whatever a tool does, a stop ends it, with everything that it started."""

from __future__ import annotations

import asyncio
from pathlib import Path

import hazards
import oddities
import pytest
from hazards import HAZARDS, survivors
from tool_runs import agent_with, call, killable, results, run_async, stop_when, stray_processes

from quiesce import Agent
from quiesce.events import ToolEnded, ToolProgress
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.processes.supervised import fork_server
from quiesce.tools.worker.pool import pool

pytestmark = pytest.mark.promise("P1", "P5")


@pytest.mark.case("odysseus#2338")
@pytest.mark.case("GenericAgent#797")
@pytest.mark.parametrize("mode", ["now", "kill"])
@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.__name__)
def test_a_stop_leaves_nothing(hazard, mode, tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        each = killable(hazard)
        agent = Agent(
            ScriptedModel([Call(each.name, {"book": book})], [Call("again")], then="done"),
            tools=[each, killable(oddities.process_id, name="again")],
        )
        outcome, events = await stop_when(agent, lambda run: run.cancel("test", mode=mode))
        assert survivors(book) == []
        assert stray_processes() == []
        assert results(outcome)[each.name].outcome is Outcome.KILLED
        assert outcome.stop_reason == "cancelled"
        assert outcome.receipt.still_running == ()
        assert [(call.outcome, call.ok) for call in outcome.receipt.calls] == [(Outcome.KILLED, False)]
        assert len([event for event in events if isinstance(event, ToolEnded)]) == 1
        following = await agent.invoke_async("go on")
        assert results(following)["again"].outcome is Outcome.COMPLETED

    run_async(main())


def test_many_at_once_are_stopped_together(tmp_path: Path) -> None:
    async def main() -> None:
        tools = [killable(hazard) for hazard in HAZARDS]
        book = str(tmp_path / "book")
        calls = [Call(each.name, {"book": f"{book}-{each.name}"}) for each in tools]
        ready: set[str] = set()

        def all_ready(event: object) -> bool:
            if isinstance(event, ToolProgress) and event.progress == "ready":
                ready.add(event.name)
            return len(ready) == len(tools)

        outcome, _ = await stop_when(agent_with(*tools, calls=calls), lambda run: run.cancel(), ready=all_ready)
        assert [survivors(f"{book}-{each.name}") for each in tools] == [[]] * len(tools)
        assert stray_processes() == []
        assert {result.outcome for result in results(outcome).values()} == {Outcome.KILLED}

    run_async(main())


def test_a_stop_lets_a_tool_clean_up(tmp_path: Path) -> None:
    async def main() -> None:
        book = tmp_path / "book"
        each = killable(oddities.clean_up, grace=10)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(book)})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel())
        assert book.read_text() == "cleaned up"
        assert results(outcome)[each.name].outcome is Outcome.KILLED

    run_async(main())


def test_the_next_worker_is_started_when_the_run_is_at_rest(tmp_path: Path) -> None:
    async def main() -> None:
        pool.shut_down()
        each = killable(hazards.sleep)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(tmp_path / "book")})])
        await stop_when(agent, lambda run: run.cancel(mode="kill"))
        assert pool.kept() == fork_server.handles
        while pool.kept() == fork_server.handles:
            await asyncio.sleep(0.01)
        ready = pool.kept()
        assert (await call(killable(oddities.speak), {"words": "next"})).text == "next"
        assert pool.kept() == ready

    run_async(main())


@pytest.mark.promise("P3")
def test_a_result_that_came_in_the_grace_is_kept() -> None:
    async def main() -> None:
        each = killable(oddities.finish_when_asked, grace=10)
        outcome, _ = await stop_when(agent_with(each), lambda run: run.cancel())
        result = results(outcome)[each.name]
        assert (result.outcome, result.text) == (Outcome.COMPLETED, "stopped by parent")
        assert stray_processes() == []

    run_async(main())


def test_a_patient_stop_is_seen_and_waited_for() -> None:
    async def main() -> None:
        each = killable(oddities.finish_when_asked)
        outcome, _ = await stop_when(agent_with(each), lambda run: run.cancel(mode="after_tools"))
        assert results(outcome)[each.name].text == "stopped by parent"
        assert await call(killable(oddities.speak), {"words": "next"})

    run_async(main())


def test_a_reason_of_any_length_is_seen() -> None:
    async def main() -> None:
        each = killable(oddities.finish_when_asked, grace=10)
        outcome, _ = await stop_when(agent_with(each), lambda run: run.cancel("why? " * 200_000))
        assert results(outcome)[each.name].text == "stopped by parent"

    run_async(main())


def test_a_shield_in_a_process_holds_the_stop_back(tmp_path: Path) -> None:
    async def main() -> None:
        book = tmp_path / "book"
        each = killable(oddities.protected, grace=10)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(book)})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel())
        assert outcome.receipt.waited_for == ("protected (commit)",)
        assert "The stop waited for its protected part: protected (commit)." in outcome.receipt.calls[0].detail
        assert book.read_text() == "whole"
        assert results(outcome)[each.name].outcome is Outcome.KILLED

    run_async(main())


def test_what_a_tool_forks_ends_by_term() -> None:
    """A pool of processes is not told of a stop in a way that its processes take for a task that has failed."""

    async def main() -> None:
        each = killable(hazards.pool_of_processes, grace=1000)
        outcome, _ = await stop_when(agent_with(each), lambda run: run.cancel())
        assert results(outcome)[each.name].outcome is not Outcome.ABANDONED
        assert stray_processes() == []

    run_async(main())


def test_kill_takes_the_grace_away(tmp_path: Path) -> None:
    async def main() -> None:
        each = killable(hazards.ignore_term, grace=1000)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(tmp_path / "book")})])

        def stop_twice(run) -> None:
            run.cancel()
            asyncio.get_running_loop().call_later(0.05, lambda: run.cancel(mode="kill"))

        outcome, _ = await stop_when(agent, stop_twice)
        assert results(outcome)[each.name].outcome is Outcome.KILLED
        assert survivors(str(tmp_path / "book")) == []

    run_async(main())


def test_a_tool_can_stop_its_own_run() -> None:
    async def main() -> None:
        outcome = await agent_with(killable(oddities.stop_the_run)).invoke_async("go")
        assert outcome.receipt.cause is not None
        assert (outcome.receipt.cause.source, outcome.receipt.cause.reason) == ("tool", "enough")

    run_async(main())


@pytest.mark.promise("P7")
def test_an_outside_cancellation_kills_too(tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        each = killable(hazards.hundred_children)
        agent = agent_with(each, calls=[Call(each.name, {"book": book})])
        ready = asyncio.Event()
        run = agent.start("go")
        run.tap(lambda event: ready.set() if isinstance(event, ToolProgress) else None)
        waiting = asyncio.create_task(_wait_within(run))
        await ready.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert survivors(book) == []

    async def _wait_within(run) -> None:
        async with run:
            await run

    run_async(main())


@pytest.mark.leaves("tasks")
def test_a_loop_that_shuts_down_kills_too(tmp_path: Path) -> None:
    book = str(tmp_path / "book")
    each = killable(hazards.hundred_children)

    async def main() -> None:
        ready = asyncio.Event()
        run = agent_with(each, calls=[Call(each.name, {"book": book})]).start("go")
        run.tap(lambda event: ready.set() if isinstance(event, ToolProgress) else None)
        await ready.wait()  # and leave: asyncio.run cancels every task

    asyncio.run(main())
    assert survivors(book) == []


def test_a_limit_of_memory_may_be_a_float() -> None:
    async def main() -> None:
        small = killable(oddities.process_id, name="small", max_memory=1e9)
        assert not (await call(small)).is_error

    run_async(main())


def test_a_wait_for_a_stop_takes_any_number_of_seconds() -> None:
    async def main() -> None:
        ended = await call(killable(oddities.waits_no_longer))
        assert ended.text == "[false,false]"

    run_async(main())


@pytest.mark.promise("P5")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc")
def test_a_program_of_a_tool_inherits_no_handle_of_its_worker() -> None:
    assert run_async(call(killable(oddities.inherited_handles), {})).text == "[]"
