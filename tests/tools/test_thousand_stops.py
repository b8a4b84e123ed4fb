"""A thousand stops of tools that are hard to stop, and what is left of them: nothing."""

from __future__ import annotations

import asyncio
import gc
import itertools
import statistics
from collections import defaultdict
from pathlib import Path

import oddities
import pytest
from hazards import HAZARDS, survivors
from tool_runs import results, stop_when, stray_processes

from quiesce import Agent
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.tools.tool import Tool

pytestmark = [pytest.mark.promise("P1", "P5"), pytest.mark.proof]

GRACE = 0.05
STOPS = 1000


def test_a_thousand_stops_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints how long after the grace each run was at rest; the figure belongs to the machine."""
    over: list[float] = []
    by_hazard: dict[str, list[float]] = defaultdict(list)

    async def one(number: int, hazard, mode: str) -> None:
        book = str(tmp_path / f"book-{number}")
        each = Tool(hazard, on_stop="kill", grace=GRACE)
        again = Tool(oddities.speak, on_stop="kill")
        agent = Agent(
            ScriptedModel([Call(each.name, {"book": book})], [Call("speak", {"words": "next"})], then="done"),
            tools=[each, again],
        )
        outcome, _ = await stop_when(agent, lambda run: run.cancel(mode=mode))
        assert survivors(book) == []
        assert stray_processes() == []
        assert results(outcome)[each.name].outcome is Outcome.KILLED, (hazard, mode)
        assert outcome.receipt.still_running == ()
        assert outcome.receipt.latency is not None
        over.append(outcome.receipt.latency - (GRACE if mode == "now" else 0.0))
        by_hazard[each.name].append(over[-1])
        assert results(await agent.invoke_async("go on"))["speak"].text == "next"

    async def main() -> None:
        cases = itertools.cycle(itertools.product(HAZARDS, ("now", "kill")))
        for number, (hazard, mode) in zip(range(STOPS), cases, strict=False):
            await one(number, hazard, mode)

    gc.collect()
    gc.freeze()  # what the test runner holds is no part of this; collecting it would take longer than most stops
    try:
        asyncio.run(main())
    finally:
        gc.unfreeze()
    late = sum(1 for each in over if each > 0.05)
    ranks = statistics.quantiles(over, n=100)
    with capsys.disabled():
        print(
            f"\n{STOPS} stops, 0 survivors. At rest after the grace: median {statistics.median(over) * 1000:.1f} ms,"
            f" p99 {ranks[98] * 1000:.1f} ms, max {max(over) * 1000:.1f} ms; {late} over 50 ms"
        )
        for name, times in by_hazard.items():
            print(f"  {name:20} median {statistics.median(times) * 1000:6.1f} ms, max {max(times) * 1000:6.1f} ms")
