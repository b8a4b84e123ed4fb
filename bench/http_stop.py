"""From the HTTP cancel call to the provider's connection closed, seen at the provider.

Three parties: `quiesce serve` in a process of its own; a provider that streams a word every 5 ms; and a client that
reads the run's events and then posts the stop. Provider and client share a process, and so a clock. The time of a bare
request to the same server is given beside it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress

import httpx2

from bench._loopback import PROVIDER

STOPS = 200
EVERY = 0.005


class Provider:
    """Streams words to whoever connects, and notes when each connection was closed by the other side."""

    def __init__(self) -> None:
        self.closed: dict[str, asyncio.Future[float]] = {}

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        name = head.split(b" ", 2)[1].decode().strip("/")
        closed = self.closed.setdefault(name, asyncio.get_running_loop().create_future())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        speaking = asyncio.create_task(self._speak(writer))
        with suppress(ConnectionError):
            await reader.read()  # returns when the other side hangs up
        closed.set_result(time.perf_counter())
        speaking.cancel()
        writer.close()

    async def _speak(self, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"5\r\nword\n\r\n")
            await asyncio.sleep(EVERY)


async def measure(port: int, provider: Provider) -> dict[str, list[float]]:
    """The times, in milliseconds."""
    times: dict[str, list[float]] = {"stop": [], "at rest": [], "bare request": []}
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
        for number in range(STOPS):
            name = f"run-{number}"
            run_id = (await client.post("/runs", json={"prompt": name})).json()["run"]["id"]
            async with client.stream("GET", f"/runs/{run_id}/events") as events:
                lines = events.aiter_lines()
                async for line in lines:
                    if line == "event: text":
                        break
                begun = time.perf_counter()
                stopping = asyncio.create_task(client.post(f"/runs/{run_id}/cancel", json={"reason": "bench"}))
                times["stop"].append(((await provider.closed[name]) - begun) * 1000)
                async for line in lines:
                    if line == "event: run_ended":
                        break
                times["at rest"].append((time.perf_counter() - begun) * 1000)
                await stopping
            begun = time.perf_counter()
            await client.get("/healthz")
            times["bare request"].append((time.perf_counter() - begun) * 1000)
    return times


async def run() -> dict[str, list[float]]:
    provider = Provider()
    async with await asyncio.start_server(provider, "127.0.0.1", 0) as listening:
        address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "quiesce.cli", "serve", "bench._loopback:agent", "--port", str(port)]
        child = subprocess.Popen(command, env={**os.environ, PROVIDER: address}, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220
        try:
            assert child.stderr is not None
            await asyncio.to_thread(lambda: next(line for line in child.stderr if "running on" in line))  # pyright: ignore
            return await measure(port, provider)
        finally:
            child.terminate()
            child.communicate()


def main() -> None:
    print(f"{STOPS} stops over HTTP of a run whose provider streams a word every {EVERY * 1000:.0f} ms\n")
    print(f"{'from the cancel call to':<40} {'median':>9} {'p99':>9}")
    names = {
        "stop": "the provider's connection closed",
        "at rest": "run_ended read from the event stream",
        "bare request": "(a bare GET /healthz, for comparison)",
    }
    for key, values in asyncio.run(run()).items():
        p99 = statistics.quantiles(values, n=100)[98]
        print(f"{names[key]:<40} {statistics.median(values):>6.2f} ms {p99:>6.2f} ms")


if __name__ == "__main__":
    main()
