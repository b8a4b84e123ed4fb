"""From the HTTP cancel call to the provider's connection closed, seen at the provider.

Three parties: `quiesce serve` in a process of its own; a provider that streams a word every 20 ms; and a client that
reads the run's events and then posts the stop. Provider and client share a process, and so a clock. The time of a bare
request to the same server is given beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Self

from bench._loopback import EVERY, PROVIDER, Provider

STOPS = 200


class Wire:
    """One keep-alive connection to the server: a client that costs next to nothing, so that the server is measured."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        kind = "Content-Type: application/json\r\n" if body else ""
        self._writer.write(f"{head}{kind}\r\n".encode() + body)

    async def answer(self) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return await self._reader.readexactly(int(length.split(b":")[1]))

    async def until(self, event: bytes) -> None:
        await self._reader.readuntil(b"event: " + event + b"\n")


async def measure(port: int, provider: Provider) -> dict[str, list[float]]:
    """The times, in milliseconds."""
    times: dict[str, list[float]] = {"stop": [], "at rest": [], "bare request": []}
    async with Wire(port) as wire:
        for number in range(STOPS):
            name = f"run-{number}"
            wire.send("POST", "/runs", b'{"prompt":"%s"}' % name.encode())
            run_id = json.loads(await wire.answer())["run"]["id"]
            async with Wire(port) as events:
                events.send("GET", f"/runs/{run_id}/events")
                await events.until(b"text")
                begun = time.perf_counter()
                wire.send("POST", f"/runs/{run_id}/cancel", b'{"reason":"bench"}')
                times["stop"].append(((await provider.closed[name]) - begun) * 1000)
                await events.until(b"run_ended")
                times["at rest"].append((time.perf_counter() - begun) * 1000)
                await wire.answer()
            begun = time.perf_counter()
            wire.send("GET", "/healthz")
            await wire.answer()
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
