"""A task of several runs, stopped at every point, with and without undo, with restarts between its runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from quiesce import Agent, Limits, RunResult, Session
from quiesce.conversation.validity import faults
from quiesce.receipt import Undone
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.testing import VirtualLoop

from .workshop import Workshop

pytestmark = pytest.mark.promise("P4", "P6")

# The call that writes each path: of the lead, or of a sub-agent.
CALLS = {"a": "a", "review": "n", "built": "x", "b": "b", "readme": "m", "tests": "y"}
TURNS = 9  # of the lead and its sub-agents together; the whole task takes as many


class Play(NamedTuple):
    """What a task did and left, when it was stopped at one point."""

    shop: Workshop
    results: list[RunResult]
    undone: list[str]
    stopped: bool


class Stopping(VirtualLoop):
    """A loop in virtual time that stops what is going on before its step `at`."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at
        self._first: int | None = None
        self.reached = False

    def watch(self, stop: Callable[[], object]) -> None:
        first = self._first = self.steps if self._first is None else self._first

        def before_step() -> None:
            if self.steps - first >= self._at and not self.reached:
                self.reached = True
                stop()

        self.before_step = before_step


def play(at: int, *, undo: bool, seed: int) -> Play:
    """The task, with a person who says yes, stopped at one point; a stop between two runs is made by the person."""
    shop, store, chance = Workshop(), MemoryStore(), random.Random(seed)
    loop = Stopping(at)
    results: list[RunResult] = []

    def process() -> Agent:
        return shop.agent(session=Session("s", store), limits=Limits(turns=TURNS))

    async def main() -> Play:
        agent = process()
        run = agent.start("go")
        undone: list[str] = []
        while True:
            current = run
            loop.watch(lambda: current.cancel("here", undo=undo or None))
            results.append(await run)
            loop.before_step = None
            if results[-1].stop_reason != "interrupt":
                break
            if chance.random() < 0.5:
                agent = process()
            if loop.reached:  # it came in the last steps of the run, which asks a person now
                if undo:
                    undone += [each.call_id for each in await agent.undo_async() if each.outcome is Undone.UNDONE]
                break
            run = agent.start_answer({each.id: True for each in results[-1].interrupts})
        stopped = loop.reached and results[-1].stop_reason in ("cancelled", "interrupt")
        undone += [each.call_id for each in results[-1].receipt.undo if each.outcome is Undone.UNDONE]
        check_conversation(agent)
        return Play(shop, results, undone, stopped)

    def check_conversation(agent: Agent) -> None:
        assert agent.session is not None
        assert not faults(agent.session.sealed())

    async def afterwards() -> None:
        """Another process undoes what is left, and the agent takes the next prompt."""
        agent = process()
        await agent.undo_async()
        check_log(shop)
        assert (await agent.invoke_async("next")).stop_reason in ("end_turn", "interrupt")
        check_conversation(agent)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        played = runner.run(main())
        check(played, undo=undo)
        runner.run(afterwards())
        return played


def check_log(shop: Workshop) -> None:
    """Nothing is undone twice, nor what never happened; the folder is what the log says."""
    done = [each[1:] for each in shop.log if each[0] == "+"]
    undone = [each[1:] for each in shop.log if each[0] == "-"]
    assert len(undone) == len(set(undone)), "twice"
    assert set(undone) <= set(done)
    expected = {"readme": "as it was"}
    for path in done:
        if path not in undone:
            expected[path] = shop.folder[path]
    assert shop.folder == expected


def check(played: Play, *, undo: bool) -> None:
    shop, results = played.shop, played.results
    check_log(shop)
    assert shop.requests <= TURNS
    last = results[-1].receipt
    bills = [0, *(each.receipt.task.usage.calls for each in results if each.receipt.task is not None)]
    assert bills[-1] == shop.requests, "each request that was sent is on the bill of the task"
    if not (undo and played.stopped):
        assert not [each for each in shop.log if each[0] == "-"]
        return
    done = [each[1:] for each in shop.log if each[0] == "+"]
    undone = [each[1:] for each in shop.log if each[0] == "-"]
    told = {each.call_id for each in last.undo if each.outcome is not Undone.UNDONE}
    assert {CALLS[path] for path in set(done) - set(undone)} <= told, "what is left is named on the receipt"
    assert {CALLS[path] for path in undone} == set(played.undone), "what is said to be undone is undone"


@pytest.mark.parametrize("undo", [True, False])
def test_some_points(undo: bool) -> None:
    """Every seventh point; all of them in `make proof`."""
    points = 0
    for at in range(1, 2000, 7):
        played = play(at, undo=undo, seed=at)
        if not played.stopped and played.results[-1].stop_reason != "interrupt":
            break
        points += 1
    assert points > 20


@pytest.mark.proof
@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_every_point(undo: bool, seed: int) -> None:
    points = late = 0
    for at in range(1, 5000):
        played = play(at, undo=undo, seed=seed * 10_000 + at)
        points += played.stopped
        late = 0 if played.stopped else late + 1
        if late > 50:
            break
    print(f"{points} points, 0 violations")
    assert points > 150
