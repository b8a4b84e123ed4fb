"""Five hundred runs at once, fifty chunks each: CPU time, and memory per run, beside two bare clients.

The server sends half of each answer, waits until all runs have theirs, and sends the rest: in between, all runs are
under way, and the memory is read. Each client is a fresh process in each round. The server is one too.

    python -m bench.runs_at_once [runs] [rounds]
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import httpx2

from ._openai import bare
from ._server import TOGETHER_CHUNKS as CHUNKS
from ._server import running_server

RUNS = 500
LIMIT, MEMORY_LIMIT = 1.2, 40.0
BODY = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Go."}], "stream": True}


class Taken(NamedTuple):
    """Seconds of CPU, seconds, and kilobytes per run."""

    cpu: float
    wall: float
    memory: float


# --- The clients ----------------------------------------------------------------------------------------------------


async def _lines(library: str, url: str, runs: int) -> list[str]:
    module = importlib.import_module(library)

    async def one() -> str:
        text = ""
        async with client.stream("POST", f"{url}/chat/completions", json=BODY) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    for choice in json.loads(line[6:])["choices"]:
                        text += choice["delta"].get("content") or ""
        return text

    limits = module.Limits(max_connections=None, max_keepalive_connections=None)
    async with module.AsyncClient(limits=limits, timeout=600) as client:
        return await asyncio.gather(*(one() for _ in range(runs)))


async def _bytes(url: str, runs: int) -> list[str]:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(limits=limits, timeout=600) as client:
        return await asyncio.gather(*(bare(client, url, BODY) for _ in range(runs)))


async def _agents(url: str, runs: int) -> list[str]:
    from quiesce import Agent
    from quiesce.models.providers.openai_chat import OpenAIChat

    agent = Agent(OpenAIChat("bench", base_url=url, api_key="none"))
    results = await asyncio.gather(*(agent.invoke_async("Go.", conversation=None) for _ in range(runs)))
    return [result.text for result in results]


CLIENTS: dict[str, Callable[[str, int], Awaitable[list[str]]]] = {
    "httpx lines, json": lambda url, runs: _lines("httpx", url, runs),
    "httpx2 lines, json": lambda url, runs: _lines("httpx2", url, runs),
    "httpx2 bytes, msgspec": _bytes,
    "quiesce": _agents,
}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def _client(name: str, url: str, runs: int) -> None:
    """One round in this process; prints what it took."""
    await CLIENTS[name](f"{url}/together-1/v1", 1)  # what is imported and connected first does not count
    peak, before = 0, _resident()
    cpu, wall = time.process_time(), time.perf_counter()
    under_way = asyncio.ensure_future(CLIENTS[name](f"{url}/together-{runs}/v1", runs))
    while not under_way.done():
        await asyncio.wait((under_way,), timeout=0.1)
        peak = max(peak, _resident())
    texts = under_way.result()
    assert [len(text.split()) for text in texts] == [CHUNKS] * runs
    print(time.process_time() - cpu, time.perf_counter() - wall, (peak - before) / runs / 1024)


def _round(name: str, url: str, runs: int) -> Taken:
    command = [sys.executable, "-m", "bench.runs_at_once", "client", name, url, str(runs)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Taken(*(float(word) for word in ran.stdout.split()))


def measure(runs: int, rounds: int) -> dict[str, list[Taken]]:
    """What each client took in each round."""
    with running_server() as url:
        names = [name for name in CLIENTS if importlib.util.find_spec(name.split()[0])]
        taken: dict[str, list[Taken]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                taken[name].append(_round(name, url, runs))
    return taken


def main(runs: int = RUNS, rounds: int = 5) -> None:
    """Print the figures."""
    taken = measure(runs, rounds)
    lines = next(iter(taken.values()))
    print(f"{runs} runs at once, {CHUNKS} chunks each, {rounds} rounds; least and median")
    for name, rows in taken.items():
        cpu, _, memory = zip(*rows, strict=True)
        ratio = statistics.median(mine.cpu / theirs.cpu for mine, theirs in zip(rows, lines, strict=True))
        print(
            f"  {name:22} {min(cpu):5.2f} {statistics.median(cpu):5.2f} s CPU {ratio:5.2f} of the first"
            f"   {min(memory):6.1f} {statistics.median(memory):6.1f} KB each"
        )
    print(f"  wanted: {LIMIT} of the first, {MEMORY_LIMIT:.0f} KB each")


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        asyncio.run(_client(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    else:
        main(*(int(each) for each in sys.argv[1:]))
