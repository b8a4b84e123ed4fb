"""From the stop to its return, beside a bare client: a task that reads the same stream, cancelled and awaited.

The bare client leaves nothing behind: no conversation, no bill, no receipt. The server is a process of its own. Trials
alternate. CPU time is compared as well as wall time.

    python -m bench.stop_return [trials]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import httpx2

from quiesce import Agent, tool
from quiesce.models.providers.openai_chat import OpenAIChat

from ._server import running_server

LIMIT = 1.3
Stop = Callable[[], Awaitable[Any]]


class Spent(NamedTuple):
    """Seconds from the stop to its return."""

    cpu: float
    wall: float


# --- What is stopped ------------------------------------------------------------------------------------------------


@tool
async def sleeping() -> str:
    """Sleep."""
    await asyncio.Event().wait()
    return "never"


async def _quiesce(url: str, kind: str) -> Spent:
    """Start a run, wait until it is in the state that `kind` names, and stop it."""
    tools: list[Any] = [sleeping]
    if kind == "child":
        tools = [Agent(OpenAIChat("bench", base_url=f"{url}/stall/v1", api_key="none")).as_tool(name="helper")]
    run = Agent(OpenAIChat("bench", base_url=f"{url}/{kind}/v1", api_key="none"), tools=tools).start("Go.")
    awaited = {"sleep": "ToolStarted", "child": "ChildEvent"}.get(kind, "TextDelta")
    async for each in run.events():
        if type(each).__name__ == awaited and (kind != "child" or type(each.event).__name__ == "TextDelta"):  # pyright: ignore
            break

    async def stop() -> None:
        run.cancel()
        await run.stopped()

    return await _timed(stop)


async def _bare(client: httpx2.AsyncClient, url: str, kind: str) -> Spent:
    """The same with a task of one's own."""
    begun = asyncio.Event()

    async def read(path: str) -> None:
        body = {"model": "bench", "stream": True, "messages": [{"role": "user", "content": "Go."}]}
        async with client.stream("POST", f"{url}/{path}/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and '"content":"word' in line:
                    begun.set()

    async def work() -> None:
        await read(kind)
        if kind == "sleep":
            begun.set()
            await asyncio.Event().wait()
        if kind == "child":
            await asyncio.create_task(read("stall"))

    task = asyncio.create_task(work())
    await begun.wait()

    async def stop() -> None:
        task.cancel()
        await asyncio.wait((task,))

    return await _timed(stop)


async def _timed(stop: Stop) -> Spent:
    await asyncio.sleep(0.005)
    cpu, wall = time.process_time(), time.perf_counter()
    await stop()
    return Spent(time.process_time() - cpu, time.perf_counter() - wall)


async def measure(url: str, trials: int) -> dict[str, dict[str, list[Spent]]]:
    """By state and client, what each stop took."""
    taken: dict[str, dict[str, list[Spent]]] = {}
    async with httpx2.AsyncClient() as client:
        for name, kind in STATES.items():
            both = taken[name] = {"bare": [], "quiesce": []}
            for _ in range(trials):
                both["bare"].append(await _bare(client, url, kind))
                both["quiesce"].append(await _quiesce(url, kind))
    return taken


STATES = {"mid-stream": "flood", "stalled": "stall", "an async tool": "sleep", "a sub-agent": "child"}


def main(trials: int = 100) -> None:
    """Print the figures."""
    with running_server() as url:
        taken = asyncio.run(measure(url, trials))
    print(f"stop to return, {trials} trials each; least and median, in ms (wanted: {LIMIT} of bare)")
    for name, both in taken.items():
        for client, spent in both.items():
            cpu, wall = ([each * 1e3 for each in column] for column in zip(*spent, strict=True))
            print(
                f"  {name:14} {client:8} CPU {min(cpu):5.2f} {statistics.median(cpu):5.2f}"
                f"   wall {min(wall):5.2f} {statistics.median(wall):5.2f}"
            )


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
