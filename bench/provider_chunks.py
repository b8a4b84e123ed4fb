"""What a whole agent turn costs per chunk of an OpenAI stream, as a ratio to a bare client in the same run.

The bare client is the same HTTP library with the leanest reading that it has, and msgspec for each chunk: no agent, no
SDK, nothing kept but the text. The server is a process of its own. Rounds alternate, so that a noisy machine disturbs
both alike, and CPU time is compared as well as wall time.

    python -m bench.provider_chunks [chunks] [rounds]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

import httpx2

from quiesce import Agent
from quiesce.models.providers.openai_chat import OpenAIChat

from ._openai import bare
from ._server import running_server

LIMIT = 1.3


async def measure(server: str, chunks: int, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of CPU for each round: bare, agent; and the ratio of wall times."""
    url = f"{server}/chunks-{chunks}/v1"
    model = OpenAIChat("gpt-4o-mini", base_url=url, api_key="none")
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Go."}], "stream": True}
    bare_times: list[float] = []
    agent_times: list[float] = []
    walls: list[float] = []
    async with httpx2.AsyncClient() as client:
        expected = await bare(client, url, body)
        assert len(expected.split()) == chunks
        for _ in range(rounds):
            cpu, wall = time.process_time(), time.perf_counter()
            assert await bare(client, url, body) == expected
            bare_times.append(time.process_time() - cpu)
            bare_wall = time.perf_counter() - wall
            agent = Agent(model)
            cpu, wall = time.process_time(), time.perf_counter()
            result = await agent.invoke_async("Go.")
            agent_times.append(time.process_time() - cpu)
            walls.append((time.perf_counter() - wall) / bare_wall)
            assert result.text == expected
            assert result.usage.output.value == chunks
    return bare_times, agent_times, walls


def main(chunks: int = 20_000, rounds: int = 9) -> float:
    """Print the figures; returns the ratio."""
    with running_server() as server:
        bare_times, agent_times, walls = asyncio.run(measure(server, chunks, rounds))
    ratios = [mine / bare_time for mine, bare_time in zip(agent_times, bare_times, strict=True)]
    ratio = statistics.median(ratios)
    print(f"{chunks:,} chunks of an OpenAI stream, {rounds} rounds")
    print(f"  bare client   {statistics.median(bare_times) / chunks * 1e6:6.1f} us per chunk")
    print(f"  agent turn    {statistics.median(agent_times) / chunks * 1e6:6.1f} us per chunk")
    print(
        f"  ratio         {ratio:6.2f} (CPU; {min(ratios):.2f} to {max(ratios):.2f}),"
        f" {statistics.median(walls):.2f} (wall)"
    )
    print(f"  limit         {LIMIT:6.2f} {'met' if ratio <= LIMIT else 'NOT MET'}")
    return ratio


if __name__ == "__main__":
    arguments = [int(each) for each in sys.argv[1:]]
    sys.exit(0 if main(*arguments) <= LIMIT else 1)
