"""What a stop in an async tool costs at least: a bare task, and what any agent adds to it, one part after the other.

Each line has all that the line above it has. Nothing of Quiesce is in them: the parts are those of asyncio and anyio.

    python -m bench.stop_parts [trials]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import anyio

Stop = Callable[[], Awaitable[object]]


async def _sleep(begun: asyncio.Event) -> None:
    begun.set()
    await asyncio.Event().wait()


async def task() -> Stop:
    """A task that is cancelled and awaited."""
    begun = asyncio.Event()
    work = asyncio.create_task(_sleep(begun))
    await begun.wait()

    async def stop() -> None:
        work.cancel()
        await asyncio.wait((work,))

    return stop


async def scope() -> Stop:
    """The task does its work in a cancel scope, and ends as usual after a stop."""
    begun, inside = asyncio.Event(), anyio.CancelScope()

    async def work() -> None:
        with inside:
            await _sleep(begun)

    running = asyncio.create_task(work())
    await begun.wait()

    async def stop() -> None:
        inside.cancel()
        await asyncio.wait((running,))

    return stop


async def tool_task() -> Stop:
    """The tool has a task of its own, which is cancelled by the run."""
    return await _with_a_tool(grace=None)


async def grace() -> Stop:
    """The run waits for the tool, no longer than its grace."""
    return await _with_a_tool(grace=5.0)


async def _with_a_tool(grace: float | None) -> Stop:
    begun, inside = asyncio.Event(), anyio.CancelScope()

    async def work() -> None:
        tool = asyncio.create_task(_sleep(begun))
        with inside:
            await asyncio.wait((tool,))
        tool.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((tool,), timeout=grace)

    running = asyncio.create_task(work())
    await begun.wait()

    async def stop() -> None:
        inside.cancel()
        await asyncio.wait((running,))

    return stop


PARTS = {
    "a task": task,
    "+ a cancel scope": scope,
    "+ a task for the tool": tool_task,
    "+ a grace for it": grace,
}


async def _taken(begin: Callable[[], Awaitable[Stop]]) -> float:
    stop = await begin()
    await asyncio.sleep(0.001)
    began = time.process_time()
    await stop()
    return time.process_time() - began


async def measure(trials: int) -> dict[str, list[float]]:
    """By part, the CPU time of each stop. The trials alternate between the parts."""
    taken: dict[str, list[float]] = {name: [] for name in PARTS}
    for _ in range(trials):
        for name, begin in PARTS.items():
            taken[name].append(await _taken(begin))
    return taken


def main(trials: int = 200) -> None:
    """Print the figures."""
    taken = asyncio.run(measure(trials))
    bare = min(taken["a task"])
    print(f"a stop in an async tool, {trials} trials each; CPU time, least and median, in us")
    for name, each in taken.items():
        least, median = min(each), statistics.median(each)
        print(f"  {name:22} {least * 1e6:6.1f} {median * 1e6:6.1f}   {least / bare:.1f} of a task")


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
