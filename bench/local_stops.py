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
from quiesce.events import TextDelta
from quiesce.models.local import Local, address_of_server, close_local_servers


async def measure(stops: int, tokens: int) -> None:
    model = Local()
    address = await address_of_server(model.weights)
    waits: list[float] = []
    counted = generated = 0
    async with httpx2.AsyncClient(timeout=60) as client:

        async def busy() -> bool:
            return any(slot["is_processing"] for slot in (await client.get(f"{address}/slots")).json())

        async def total() -> int:
            lines = (await client.get(f"{address}/metrics")).text.splitlines()
            return int(
                float(next(each.split()[1] for each in lines if each.startswith("llamacpp:tokens_predicted_total")))
            )

        for number in range(stops):
            before = await total()
            run = Agent(model, settings={"temperature": 0}).start("Write a very long story about a king.")
            pieces = 0
            async for event in run.events():
                pieces += isinstance(event, TextDelta)
                if pieces == tokens + number % 7:
                    break
            asked = time.perf_counter()
            run.cancel()
            receipt = await run.stopped()
            while await busy():
                pass
            waits.append((time.perf_counter() - asked) * 1000)
            counted += receipt.usage.output.value or 0
            generated += await total() - before
    waits.sort()
    within = sum(wait <= 100 for wait in waits)
    print(f"{stops} stops after about {tokens} tokens: idle after {statistics.median(waits):.0f} ms (median),", end=" ")
    print(f"{waits[-1]:.0f} ms (worst); {within} of {stops} within 100 ms")
    print(
        f"output tokens: {counted} in the ledger, {generated} by the server ({(counted / generated - 1) * 100:+.1f} %)"
    )


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
