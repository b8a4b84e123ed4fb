"""From `run.cancel()` to an idle server: a real llama.cpp server with SmolLM2, stopped again and again.

The server is asked whether it is idle until it says so, so the figure includes the asking.

    python -m bench.local_stops [stops] [tokens]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

import httpx2

from quiesce import Agent
from quiesce.errors import QuiesceError
from quiesce.events import AnswerStart, TextDelta
from quiesce.models.providers.local import Local, address_of_server, close_local_servers


class Server:
    """What the llama.cpp server says of itself."""

    def __init__(self, client: httpx2.AsyncClient, address: str) -> None:
        self._client = client
        self._address = address

    async def idle(self) -> None:
        """Ask until it is."""
        while any(slot["is_processing"] for slot in (await self._client.get(f"{self._address}/slots")).json()):
            pass

    async def written(self) -> int:
        """All tokens that it has ever written, those of requests that were cut included."""
        lines = (await self._client.get(f"{self._address}/metrics")).text.splitlines()
        return int(float(next(each.split()[1] for each in lines if each.startswith("llamacpp:tokens_predicted_total"))))


async def in_answers(model: Local, server: Server, stops: int, tokens: int) -> None:
    """Stop answers after so many pieces: how soon is the server idle, and what does the ledger say?"""
    waits: list[float] = []
    off: list[int] = []
    counted = written = held = 0
    for number in range(stops):
        before = await server.written()
        run = Agent(model, settings={"temperature": 0}).start("Write a very long story about a king.")
        pieces = 0
        async for event in run.events():
            pieces += isinstance(event, TextDelta)
            if pieces == tokens + number % 7:
                break
        asked = time.perf_counter()
        run.cancel()
        receipt = await run.stopped()
        await server.idle()
        waits.append((time.perf_counter() - asked) * 1000)
        output, truth = receipt.usage.output, await server.written() - before
        held += output.holds(truth)
        off.append((output.value or 0) - truth)
        counted += output.value or 0
        written += truth
    within = sum(wait <= 100 for wait in waits)
    print(f"{stops} stops after about {tokens} tokens: idle after {statistics.median(waits):.0f} ms (median),", end=" ")
    print(f"{max(waits):.0f} ms (worst); {within} of {stops} within 100 ms")
    print(f"output tokens: {counted} in the ledger, {written} by the server ({(counted / written - 1) * 100:+.1f} %);")
    print(f"  each off by {min(off):+} to {max(off):+}; {held} of {stops} intervals hold what the server says")


async def in_prompts(server: Server, stops: int) -> None:
    """Stop while the server reads a prompt, when it has nothing to say for a while."""
    model = Local(extra_body={"cache_prompt": False})
    waits: list[float] = []
    for number in range(stops):
        run = Agent(model).start(f"{number}. " + "The king said that the river was deep. " * 100)
        async for event in run.events():
            if isinstance(event, AnswerStart):
                break
        asked = time.perf_counter()
        run.cancel()
        await run.stopped()
        await server.idle()
        waits.append((time.perf_counter() - asked) * 1000)
    print(f"{stops} stops inside a prompt: idle after {statistics.median(waits):.0f} ms (median),", end=" ")
    print(f"{max(waits):.0f} ms (worst)")


async def measure(stops: int, tokens: int) -> None:
    model = Local()
    async with httpx2.AsyncClient(timeout=60) as client:
        server = Server(client, await address_of_server(model.weights))
        await in_answers(model, server, stops, tokens)
        await in_prompts(server, max(1, stops // 10))


def main(stops: int = 30, tokens: int = 40) -> None:
    """Print the figures."""
    try:
        asyncio.run(measure(stops, tokens))
    except QuiesceError as error:
        print(f"not measured: {error}")
    finally:
        close_local_servers()


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
