"""A tool that finishes just as the stop comes: its result is kept, none is lost, none is told twice."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import oddities
import pytest
from tool_runs import agent_with, call, results, run_async, stray_processes

from quiesce.events import ToolEnded, ToolStarted
from quiesce.messages import Outcome
from quiesce.models.scripted import Call
from quiesce.run.handle import Run
from quiesce.tools.thread import live_threads
from quiesce.tools.tool import Tool
from quiesce.tools.worker import call as workers

pytestmark = pytest.mark.promise("P3", "P4")


class Race:
    """One kind of tool against one kind of stop, again and again."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tally: Counter[str] = Counter()
        self.returned: list[bool] = []
        # The bias moves with each trial to where it is even who comes first, however slow this machine is just now:
        # the longer the same one comes first, the longer the steps.
        self.bias = 0.0
        self.step = SHORTEST_STEP
        self.stop_was_late: bool | None = None

    def tool(self, kind: str, seconds: float, book: Path) -> Tool:
        async def in_the_loop() -> str:
            await asyncio.sleep(seconds)
            self.returned.append(True)
            return "kept"

        def in_a_thread() -> str:
            time.sleep(seconds)
            self.returned.append(True)
            return "kept"

        match kind:
            case "async":
                return Tool(in_the_loop, name="racer", grace=self.random.choice([0, 0.001]))
            case "thread":
                return Tool(in_a_thread, name="racer", grace=self.random.choice([0, 0.001]))
            case _:
                return Tool(oddities.finish_after, name="racer", on_stop="kill", grace=self.random.choice([0, 0.001]))

    async def run(self, kind: str, book: Path) -> None:
        self.returned.clear()
        book.unlink(missing_ok=True)
        seconds = self.random.uniform(0, 0.002)
        offset = seconds + self.bias + self.random.uniform(-0.0005, 0.0005)
        tool = self.tool(kind, seconds, book)
        arguments = {"seconds": seconds, "book": str(book)} if kind == "process" else {}
        run = agent_with(tool, calls=[Call("racer", arguments, id="c1")]).start("go")
        stop = self.random.choice(STOPS)
        announced: list[ToolEnded] = []
        run.tap(lambda event: announced.append(event) if isinstance(event, ToolEnded) else None)
        loop = asyncio.get_running_loop()
        run.tap(lambda event: self._arm(event, loop, offset, lambda: stop(run)))
        outcome = await run
        result = results(outcome)["racer"]
        assert len(announced) == 1
        assert announced[0].result == result
        for _ in range(1000):
            if not outcome.receipt.still_running or outcome.receipt.late:
                break
            await asyncio.sleep(0.001)
        self._judge(kind, result, outcome.receipt.late, book)

    def _arm(self, event: object, loop: asyncio.AbstractEventLoop, offset: float, act: Callable[[], object]) -> None:
        if not isinstance(event, ToolStarted):
            return
        if self.random.random() < 0.5:
            loop.call_later(max(0.0, offset), act)
        else:
            threading.Timer(max(0.0, offset), act).start()

    def _move(self, *, stop_was_late: bool) -> None:
        same_again = stop_was_late is self.stop_was_late
        self.step = min(2 * self.step, LONGEST_STEP) if same_again else SHORTEST_STEP
        self.stop_was_late = stop_was_late
        self.bias = max(LEAST_BIAS, self.bias + (-self.step if stop_was_late else self.step))

    def _judge(self, kind: str, result, late, book: Path) -> None:
        completed = result.outcome is Outcome.COMPLETED
        self.tally[str(result.outcome)] += 1
        self._move(stop_was_late=completed)
        if completed:
            assert (result.text, result.is_error) == ("kept", False)
        if kind == "process":
            told = "value" in REPLIES
            REPLIES.clear()
            assert told == completed, (told, result)
            effects = len(book.read_text()) if book.exists() else 0
            assert effects <= 1
            assert effects == 1 or not completed
        else:
            kept = completed + len([each for each in late if each.ok and each.detail == "kept"])
            assert kept == len(self.returned), (result, late, self.returned)


# In seconds.
SHORTEST_STEP, LONGEST_STEP = 0.0003, 0.3
LEAST_BIAS = -0.003  # here the stop is sent as soon as the call has begun
STOPS: list[Callable[[Run], object]] = [
    lambda run: run.cancel(),
    lambda run: run.cancel(mode="kill"),
    lambda run: run.cancel_tool("c1"),
]
REPLIES: list[str] = []


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch):
    """Writes down what the workers answered."""
    on_message = workers.WorkerCall._on_message

    def noting(self, message) -> None:
        if message[0] in ("value", "error", "terminated"):
            REPLIES.append(message[0])
        on_message(self, message)

    monkeypatch.setattr(workers.WorkerCall, "_on_message", noting)
    REPLIES.clear()


def race(kind: str, trials: int, book: Path) -> None:
    each = Race(seed=trials)

    async def main() -> None:
        for _ in range(trials):
            await each.run(kind, book)

    asyncio.run(main())
    print(f"{kind}: {trials} races, {dict(each.tally)}")
    assert each.tally[Outcome.COMPLETED] > 0
    assert sum(each.tally.values()) == trials
    assert len(each.tally) > 1, "no stop ever came first: this was no race"
    assert stray_processes() == []


@pytest.mark.parametrize(("kind", "trials"), [("async", 100), ("thread", 60), ("process", 60)])
def test_races(kind: str, trials: int, tmp_path: Path, replies: None) -> None:
    race(kind, trials, tmp_path / "book")


@pytest.mark.proof
@pytest.mark.parametrize(("kind", "trials"), [("async", 4000), ("thread", 3000), ("process", 3000)])
def test_ten_thousand_races(kind: str, trials: int, tmp_path: Path, replies: None) -> None:
    race(kind, trials, tmp_path / "book")


def test_a_thread_that_cannot_be_started_is_an_error_of_the_call() -> None:
    async def main() -> None:
        before = threading.stack_size(1 << 46)  # more than there is
        try:
            refused = await call(Tool(lambda: "ran", name="small"))
        finally:
            threading.stack_size(before)
        assert refused.is_error
        assert "can't start new thread" in refused.text
        assert not live_threads

    run_async(main())
