"""From the HTTP cancel call to the provider's connection closed, seen at the provider.

Three parties: `quiesce serve` in a process of its own; a provider that streams a word every 20 ms; and a client that
reads the run's events and then posts the stop. Provider and client share a process, and so a clock. Beside it stand the
time of `GET /healthz` at the same server, and of a request to a bare one in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
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


async def _answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    writer.close()


def _serve_bare(port: Connection) -> None:
    async def serve() -> None:
        async with await asyncio.start_server(_answer_ok, "127.0.0.1", 0) as listening:
            port.send(listening.sockets[0].getsockname()[1])
            await listening.serve_forever()

    asyncio.run(serve())


def _run_bare() -> tuple[SpawnProcess, int]:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve_bare, args=(there,), daemon=True)
    server.start()
    return server, here.recv()


async def _timed(wire: Wire, path: str) -> float:
    begun = time.perf_counter()
    wire.send("GET", path)
    await wire.answer()
    return (time.perf_counter() - begun) * 1000


async def measure(port: int, bare_port: int, provider: Provider, stops: int = STOPS) -> dict[str, list[float]]:
    """The times, in milliseconds."""
    times: dict[str, list[float]] = {"stop": [], "at rest": [], "health": [], "bare": []}
    async with Wire(port) as wire, Wire(bare_port) as bare:
        for number in range(stops):
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
            times["health"].append(await _timed(wire, "/healthz"))
            times["bare"].append(await _timed(bare, "/"))
    return times


async def run(stops: int = STOPS) -> dict[str, list[float]]:
    """Start the server, stop runs over HTTP; returns the times in milliseconds."""
    provider = Provider()
    bare, bare_port = _run_bare()
    async with await asyncio.start_server(provider, "127.0.0.1", 0) as listening:
        address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "quiesce.cli", "serve", "bench._loopback:agent", "--port", str(port)]
        child = subprocess.Popen(command, env={**os.environ, PROVIDER: address}, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220
        try:
            assert child.stderr is not None
            await asyncio.to_thread(lambda: next(line for line in child.stderr if "running on" in line))  # pyright: ignore
            return await measure(port, bare_port, provider, stops)
        finally:
            child.terminate()
            child.communicate()
            bare.terminate()
            bare.join()


def main() -> None:
    print(f"{STOPS} stops over HTTP of a run whose provider streams a word every {EVERY * 1000:.0f} ms\n")
    print(f"{'from the cancel call to':<40} {'median':>9} {'p99':>9}")
    names = {
        "stop": "the provider's connection closed",
        "at rest": "run_ended read from the event stream",
        "health": "(GET /healthz, for comparison)",
        "bare": "(a request to a bare server)",
    }
    for key, values in asyncio.run(run()).items():
        p99 = statistics.quantiles(values, n=100)[98]
        print(f"{names[key]:<40} {statistics.median(values):>6.2f} ms {p99:>6.2f} ms")


if __name__ == "__main__":
    main()
