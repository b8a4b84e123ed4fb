"""What a streamed chunk costs: 100,000 scripted chunks through `stream_async`, against the same script read bare."""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import statistics
import time

from quiesce import Agent
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Say, ScriptedModel

CHUNKS = 100_000


def _script() -> ScriptedModel:
    return ScriptedModel(Say("x" * CHUNKS, chunk=1))


async def _bare() -> float:
    model = _script()
    started = time.perf_counter()
    async with model.stream(ModelRequest(())) as deltas:
        async for _ in deltas:
            pass
    return (time.perf_counter() - started) / CHUNKS


async def _agent() -> float:
    agent = Agent(_script())
    started = time.perf_counter()
    async for _ in agent.stream_async("go"):
        pass
    return (time.perf_counter() - started) / CHUNKS


def main() -> None:
    bare = statistics.median(asyncio.run(_bare()) for _ in range(5))
    agent = statistics.median(asyncio.run(_agent()) for _ in range(5))
    print(f"bare script         {bare * 1e6:6.2f} us per chunk")
    print(f"through the agent   {agent * 1e6:6.2f} us per chunk (target: under 5)")
    print(f"the agent's share   {(agent - bare) * 1e6:6.2f} us per chunk")
    profile = cProfile.Profile()
    profile.runcall(asyncio.run, _agent())
    print("where it goes (profiled, so slower; own time):")
    pstats.Stats(profile).sort_stats("tottime").print_stats(8)


if __name__ == "__main__":
    main()
