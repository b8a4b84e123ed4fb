"""Undo: what completed is taken back, last one first, each at most once, and every outcome is told."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from quiesce import Agent, CancellationToken, Run, RunResult, tool
from quiesce.errors import InvalidTool
from quiesce.events import ToolEnded
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.receipt import Undone
from quiesce.testing import VirtualLoop
from quiesce.transcript import faults

pytestmark = pytest.mark.promise("P4")


class World:
    """Five tools that do something, and the undo of each."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.tools = [self._tool(number) for number in range(5)]

    def _tool(self, number: int):
        log = self.log
        if number % 2:

            @tool(name=f"make{number}")
            def make(x: int) -> str:
                log.append(f"+{number}:{x}")
                return f"made {x}"

            @make.undo
            def unmake(x: int, result: str) -> None:
                assert result == f"made {x}"
                log.append(f"-{number}:{x}")

        else:

            @tool(name=f"make{number}")
            async def make(x: int) -> str:
                await asyncio.sleep(0)
                log.append(f"+{number}:{x}")
                return f"made {x}"

            @make.undo
            async def unmake_async(x: int, result: str) -> None:
                assert result == f"made {x}"
                await asyncio.sleep(0)
                log.append(f"-{number}:{x}")

        return make

    def agent(self, *more, **options) -> Agent:
        turns = [[Call(f"make{n}", {"x": n})] for n in range(5)]
        return Agent(ScriptedModel(*turns, *more), tools=self.tools, **options)


def done(log: list[str]) -> list[str]:
    return [entry[1:] for entry in log if entry[0] == "+"]


def undone(log: list[str]) -> list[str]:
    return [entry[1:] for entry in log if entry[0] == "-"]


def test_a_finished_run_can_be_undone_once():
    async def main():
        world = World()
        result = await world.agent("all made").invoke_async("make them")
        receipts = await result.undo()
        assert [receipt.outcome for receipt in receipts] == [Undone.UNDONE] * 5
        assert undone(world.log) == done(world.log)[::-1]
        assert await result.undo() == ()
        assert len(undone(world.log)) == 5
        assert result.receipt.undo == list(receipts)
        assert "undone" in str(result.receipt)

    asyncio.run(main())


def test_undo_without_an_event_loop():
    world = World()
    result = world.agent("all made")("make them")
    assert [receipt.outcome for receipt in result.undo_sync()] == [Undone.UNDONE] * 5
    assert result.undo_sync() == ()


def test_a_stop_with_undo_takes_back_what_was_done_and_tells_the_model():
    async def main():
        world = World()
        agent = world.agent([Say("and "), Stall()], "Fresh.")
        run = agent.start("make them")
        async for event in run:
            if type(event).__name__ == "TextDelta":
                run.cancel("changed my mind", undo=True)
        result = await run.result()
        assert undone(world.log) == done(world.log)[::-1] == ["4:4", "3:3", "2:2", "1:1", "0:0"]
        note = agent.messages[-1].content[-1].text
        assert "Undone since: make4" in note
        assert not faults(agent.messages)
        assert await result.undo() == ()
        assert (await agent.invoke_async("again")).text == "Fresh."

    asyncio.run(main())


def test_a_stop_that_comes_too_late_undoes_nothing():
    async def main():
        world = World()
        run = world.agent("all made").start("make them")
        await run.result()
        assert run.cancel(undo=True) is False
        assert undone(world.log) == []

    asyncio.run(main())


def test_undo_reaches_down_the_tree():
    async def main():
        world = World()
        child = world.agent("child made", name="maker")
        ask = Call("maker", {"prompt": "make"})
        parent = Agent(ScriptedModel([ask], [Say("and "), Stall()]), tools=[child.as_tool()])
        run = parent.start("go")
        async for event in run:
            if type(event).__name__ == "TextDelta":
                run.cancel(undo=True)
        result = await run.result()
        assert undone(world.log) == done(world.log)[::-1]
        assert len(undone(world.log)) == 5
        assert await result.children[0].undo() == ()

    asyncio.run(main())


def test_a_failing_undo_is_told_and_the_others_go_on():
    async def main():
        world = World()

        @world.tools[2].undo
        async def broken(x: int) -> None:
            raise OSError("the disk is gone")

        result = await world.agent("made").invoke_async("go")
        outcomes = {receipt.name: receipt for receipt in await result.undo()}
        assert outcomes["make2"].outcome is Undone.FAILED
        assert "the disk is gone" in outcomes["make2"].detail
        assert undone(world.log) == ["4:4", "3:3", "1:1", "0:0"]
        assert await result.undo() == (), "a failed undo is not tried again: it may have done half"

    asyncio.run(main())


def test_stopping_the_undo_says_how_far_it_came():
    async def main():
        world = World()
        token, entered = CancellationToken(), asyncio.Event()

        @world.tools[3].undo
        async def slow(x: int) -> None:
            entered.set()
            await asyncio.Event().wait()

        result = await world.agent("made").invoke_async("go")
        undoing = asyncio.create_task(result.undo(token))
        await entered.wait()
        token.cancel("enough")
        outcomes = {receipt.name: receipt.outcome for receipt in await undoing}
        assert outcomes == {
            "make4": Undone.UNDONE, "make3": Undone.UNKNOWN, "make2": Undone.NOT_UNDONE,
            "make1": Undone.NOT_UNDONE, "make0": Undone.NOT_UNDONE}  # fmt: skip
        rest = await result.undo()
        assert [receipt.name for receipt in rest] == ["make2", "make1", "make0"]
        assert undone(world.log) == ["4:4", "2:2", "1:1", "0:0"]

    asyncio.run(main())


@pytest.mark.promise("P7")
def test_cancelling_the_task_that_waits_stops_the_undo_and_goes_on():
    async def main():
        world = World()
        entered = asyncio.Event()

        @world.tools[3].undo
        async def slow(x: int) -> None:
            entered.set()
            await asyncio.Event().wait()

        result = await world.agent("made").invoke_async("go")
        undoing = asyncio.create_task(result.undo())
        await entered.wait()
        undoing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await undoing
        assert [receipt.outcome for receipt in result.receipt.undo[:2]] == [Undone.UNDONE, Undone.UNKNOWN]
        assert len(await result.undo()) == 3

    asyncio.run(main())


@pytest.mark.parametrize("how", ["kill", "undo=False"])
def test_a_run_stops_undoing_when_told_to(how: str):
    async def main():
        world = World()
        entered = asyncio.Event()

        @world.tools[4].undo
        async def slow(x: int) -> None:
            entered.set()
            await asyncio.Event().wait()

        run = world.agent([Say("and "), Stall()]).start("go")
        async for event in run:
            if type(event).__name__ == "TextDelta":
                run.cancel(undo=True)
                await entered.wait()
                run.cancel(mode="kill") if how == "kill" else run.cancel(undo=False)
        receipt = await run.stopped()
        assert [line.outcome for line in receipt.undo] == [Undone.UNKNOWN, *[Undone.NOT_UNDONE] * 4]
        assert undone(world.log) == []

    asyncio.run(main())


def test_an_undo_that_does_not_end_is_given_up():
    async def main():
        world = World()

        @world.tools[4].undo(timeout=0.02)
        async def endless(x: int) -> None:
            await asyncio.Event().wait()

        result = await world.agent("made").invoke_async("go")
        first, *others = await result.undo()
        assert first.outcome is Undone.UNKNOWN
        assert "within 0.02 s" in first.detail
        assert {other.outcome for other in others} == {Undone.UNDONE}

    asyncio.run(main())


def test_a_call_that_was_cut_is_not_undone_and_that_is_told():
    async def main():
        log: list[str] = []

        @tool
        async def make() -> None:
            await asyncio.Event().wait()

        @make.undo
        def unmake() -> None:
            log.append("undone")

        run = Agent(ScriptedModel([Call("make")]), tools=[make]).start("go")
        async for event in run:
            if type(event).__name__ == "ToolStarted":
                run.cancel(undo=True)
        receipt = await run.stopped()
        assert receipt.calls[0].outcome is Outcome.CANCELLED
        (line,) = receipt.undo
        assert line.outcome is Undone.NOT_UNDONE
        assert log == []

    asyncio.run(main())


def test_an_abandoned_call_that_completes_later_can_be_undone_then():
    async def main():
        log: list[str] = []
        gate, started = threading.Event(), threading.Event()

        @tool(on_stop="abandon", grace=0)
        def make() -> str:
            started.set()
            gate.wait()
            log.append("+")
            return "made"

        @make.undo
        def unmake(result: str) -> None:
            log.append("-")

        run = Agent(ScriptedModel([Call("make")]), tools=[make]).start("go")
        await asyncio.to_thread(started.wait)
        run.cancel(undo=True)
        result = await run.result()
        assert [line.outcome for line in result.receipt.undo] == [Undone.NOT_UNDONE]
        gate.set()
        while not result.receipt.late:
            await asyncio.sleep(0.001)
        assert [line.outcome for line in await result.undo()] == [Undone.UNDONE]
        assert log == ["+", "-"]

    asyncio.run(main())


def test_a_thread_that_ends_as_it_is_given_up_has_one_effect():
    """The thread has ended, the loop has not heard of it, and the call is given up in that instant."""

    async def main():
        world = World()
        run = Agent(ScriptedModel([Call("make1", {"x": 1})], "made"), tools=world.tools).start("go")
        while not (run.course.current.batch and run.course.current.batch.records[0].stage.value == "running"):
            await asyncio.sleep(0)
        record = run.course.current.batch.records[0]
        while not done(world.log) or any(thread.name.startswith("quiesce-make1") for thread in threading.enumerate()):
            time.sleep(0.001)  # the loop stands still meanwhile
        record.leave_behind()
        result = await run.result()
        assert result.receipt.calls[0].outcome is Outcome.COMPLETED
        assert len(await result.undo()) == 1
        assert undone(world.log) == ["1:1"]

    asyncio.run(main())


def test_many_who_ask_at_once_undo_each_call_once():
    async def main():
        world = World()
        result = await world.agent("made").invoke_async("go")
        passes = await asyncio.gather(*(result.undo() for _ in range(8)))
        assert sorted(undone(world.log)) == sorted(done(world.log))
        assert sum(len(each) for each in passes) >= 5
        assert len([line for line in result.receipt.undo if line.outcome is Undone.UNDONE]) == 5

    asyncio.run(main())


def test_an_undo_may_only_take_what_there_is():
    @tool
    def make(x: int) -> str:
        return str(x)

    with pytest.raises(InvalidTool, match="none of the tool's arguments"):

        @make.undo
        def unmake(y: int) -> None: ...


def test_no_undo_after_a_failure_unless_asked_for():
    async def main():
        world = World()
        agent = world.agent()  # the script ends: the run fails
        run = agent.start("go")
        ended = 0
        async for event in run:
            ended += isinstance(event, ToolEnded)
        result = await run.outcome()
        assert result.error is not None
        assert undone(world.log) == []
        assert len(await result.undo()) == 5

    asyncio.run(main())


# --- A stop at every point -------------------------------------------------------------------------------------------


class Stopping(VirtualLoop):
    """A loop in virtual time that does something before step `at`, and something else some steps later."""

    def __init__(self, at: int, stop: dict, then_after: int = 0) -> None:
        super().__init__()
        self._at, self._stop, self._second = at, stop, at + then_after if then_after else -1
        self._first_step = 0

    def watch(self, run: Run) -> None:
        self._first_step = self.steps

        def before_step() -> None:
            if self.steps - self._first_step == self._at:
                run.cancel("here", undo=True, **self._stop)
            if self.steps - self._first_step == self._second:
                run.cancel("no, wait", undo=False)

        self.before_step = before_step


def five(world: World, parallel: bool) -> Agent:
    if not parallel:
        return world.agent("made")
    return Agent(ScriptedModel([Call(f"make{n}", {"x": n}) for n in range(5)], "made"), tools=world.tools)


def stop_with_undo(loop: Stopping, parallel: bool) -> tuple[World, RunResult]:
    """What a run of the five tools did and left, when it was stopped like that."""
    world = World()

    async def main() -> RunResult:
        agent = five(world, parallel)
        run = agent.start("go")
        loop.watch(run)
        result = await run.result()
        loop.before_step = None
        assert not faults(agent.messages)
        return result

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return world, runner.run(main())


def check_each_at_most_once(world: World) -> None:
    assert sorted(undone(world.log)) == sorted(set(undone(world.log))), "twice"
    assert set(undone(world.log)) <= set(done(world.log)), "what never happened"


STOPS = [{}, {"mode": "kill"}, {"mode": "after_tools"}, {"mode": "after_turn"}]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_at_every_point_undoes_each_completed_effect_once(parallel: bool, stop: dict):
    points = 0
    while True:
        world, result = stop_with_undo(Stopping(points + 1, stop), parallel)
        check_each_at_most_once(world)
        if result.stop_reason != "cancelled":
            assert undone(world.log) == [], "a stop that comes too late undoes nothing"
            break
        points += 1
        completed = [line.call_id for line in result.receipt.calls if line.outcome is Outcome.COMPLETED]
        taken_back = [line.call_id for line in result.receipt.undo if line.outcome is Undone.UNDONE]
        assert sorted(taken_back) == sorted(completed)
        assert len(undone(world.log)) == len(completed)
        cut = [line for line in result.receipt.calls if line.outcome not in (Outcome.COMPLETED, Outcome.NEVER_STARTED)]
        told = [line for line in result.receipt.undo if line.outcome is Undone.NOT_UNDONE]
        assert {line.call_id for line in told} == {line.call_id for line in cut}
        assert asyncio.run(result.undo()) == ()
    assert points > 10


@pytest.mark.parametrize("parallel", [False, True])
def test_stopping_the_undo_at_every_point_is_told_truly(parallel: bool):
    pairs = 0
    for at in range(1, 60, 3):
        for later in range(1, 25):
            world, result = stop_with_undo(Stopping(at, {}, later), parallel)
            pairs += 1
            check_each_at_most_once(world)
            said = [line for line in result.receipt.undo if line.outcome is Undone.UNDONE]
            unknown = [line for line in result.receipt.undo if line.outcome is Undone.UNKNOWN]
            assert len(said) <= len(undone(world.log)) <= len(said) + len(unknown)
            asyncio.run(result.undo())
            check_each_at_most_once(world)
            completed = sum(line.outcome is Outcome.COMPLETED for line in result.receipt.calls)
            assert completed - len(unknown) <= len(undone(world.log)) <= completed
    assert pairs > 400
