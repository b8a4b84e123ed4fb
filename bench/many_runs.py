"""Ten thousand runs at once, stopped by one parent token: time and memory per run."""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from pathlib import Path

from quiesce import Agent, CancellationToken, tool
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

RUNS = 10_000


@tool
async def sleeping() -> str:
    """Sleep."""
    await asyncio.sleep(600)
    return "slept"


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def _stop_all() -> None:
    parent = CancellationToken()
    gc.collect()
    before = _resident()
    started = time.perf_counter()
    runs = []
    for number in range(RUNS):
        streaming = number % 2
        answer = [Say("Well"), Stall()] if streaming else [Say("Look"), Call("sleeping")]
        runs.append(Agent(ScriptedModel(answer), tools=[sleeping]).start("go", token=parent))
    await asyncio.sleep(0.5)
    while any(run.phase.value not in ("streaming", "acting") for run in runs):
        await asyncio.sleep(0.05)
    under_way = time.perf_counter() - started
    memory = (_resident() - before) / RUNS
    asked = time.perf_counter()
    parent.cancel("everybody out")
    returned = time.perf_counter() - asked
    receipts = [await run.stopped() for run in runs]
    at_rest = time.perf_counter() - asked
    left = len(asyncio.all_tasks()) - 1
    print(f"{RUNS:,} runs under way after {under_way:.2f} s, {memory / 1024:.1f} KiB each")
    print(f"parent.cancel() returned after {returned * 1e3:.0f} ms")
    print(f"all at rest after {at_rest * 1e3:.0f} ms, {at_rest / RUNS * 1e6:.0f} us per run; {left} tasks left")
    assert left == 0
    assert all(r.stop_reason == "cancelled" and not r.still_running for r in receipts)


def main() -> None:
    asyncio.run(_stop_all())


if __name__ == "__main__":
    main()
