"""A parent with 100 children that stream from a real HTTP server: from the stop to the last connection closed.

The server is a process of its own and notes when it sees each client hang up, so the figure is what a provider sees.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import NamedTuple

import httpx2
from tests.support.sse_server import HttpModel, sse_process

from quiesce import Agent, Limits, Run
from quiesce.events import ChildEvent, TextDelta
from quiesce.models.scripted import Call, ScriptedModel

CHILDREN = 100
TRIALS = 30


async def start_tree(client: httpx2.AsyncClient, url: str, children: int) -> Run:
    """A parent whose children are all streaming."""
    agents = [Agent(HttpModel(client, url), name=f"child{number}") for number in range(children)]
    asks = [Call(agent.name, {"prompt": "Talk."}) for agent in agents]
    tools = [agent.as_tool() for agent in agents]
    run = Agent(ScriptedModel(asks), tools=tools, name="parent", limits=Limits(turns=None)).start("All of you.")
    speaking: set[str] = set()
    async for event in run.events():
        if isinstance(event, ChildEvent) and isinstance(event.event, TextDelta):
            speaking.add(event.run_id)
            if len(speaking) == children:
                break
    return run


class Stopped(NamedTuple):
    """Seconds from the stop to each, and the connections that were left."""

    at_rest: float
    processor: float
    all_closed: float
    left_open: int


async def stop_tree(client: httpx2.AsyncClient, url: str, children: int) -> Stopped:
    """Start a tree, stop it, and ask the server when it saw the last client hang up."""
    run = await start_tree(client, url, children)
    asked, used = time.monotonic(), time.process_time()
    run.cancel("bench")
    receipt = await run.stopped()
    at_rest, used = time.monotonic() - asked, time.process_time() - used
    assert receipt.still_running == ()
    async with httpx2.AsyncClient() as control:
        closed: list[float] = []
        while True:
            report = (await control.get(f"{url}/report")).json()
            closed += report["closed"]
            if len(closed) == children or time.monotonic() - asked > 10:
                return Stopped(at_rest, used, max(closed) - asked, report["open"])


async def measure(children: int, trials: int) -> list[Stopped]:
    """Several trees, one after the other."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    with sse_process() as url:
        async with httpx2.AsyncClient(limits=limits, timeout=60) as client:
            await stop_tree(client, url, children)  # to warm up
            return [await stop_tree(client, url, children) for _ in range(trials)]


def main() -> None:
    figures = asyncio.run(measure(CHILDREN, TRIALS))
    print(f"{CHILDREN} children streaming over HTTP, {TRIALS} trials: from the stop to")
    rows = {
        "the last connection closed": [figure.all_closed for figure in figures],
        "the parent at rest": [figure.at_rest for figure in figures],
        "  processor time till then": [figure.processor for figure in figures],
    }
    for name, times in rows.items():
        times.sort()
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        print(f"  {name:<27} median {statistics.median(times) * 1e3:7.1f} ms   p99 {p99 * 1e3:7.1f} ms")
    print(f"  connections left open       {sum(figure.left_open for figure in figures)}")


if __name__ == "__main__":
    main()
