"""A stop with undo, and a stop of that undo, at every point of a run."""

from __future__ import annotations

import asyncio

import pytest

from quiesce import Agent, Run, RunResult
from quiesce.conversation.validity import faults
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.receipt import Undone
from quiesce.testing import VirtualLoop

from .world import World, done, undone

pytestmark = pytest.mark.promise("P4")


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
        result = await run
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
@pytest.mark.parametrize("stop", [STOPS[0], *(pytest.param(each, marks=pytest.mark.proof) for each in STOPS[1:])])
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


@pytest.mark.parametrize("parallel", [pytest.param(False, marks=pytest.mark.proof), True])
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
            assert {line.name[-1] for line in said} <= {entry[0] for entry in undone(world.log)}
            asyncio.run(result.undo())
            check_each_at_most_once(world)
            completed = sum(line.outcome is Outcome.COMPLETED for line in result.receipt.calls)
            assert completed - len(unknown) <= len(undone(world.log)) <= completed
    assert pairs > 400
