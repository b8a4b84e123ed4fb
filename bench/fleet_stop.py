"""Stops across processes, through Postgres: latency beside a bare NOTIFY, taking over after kill -9, and a stop of all.

The worker is a process of its own, as `quiesce worker` starts it; the client is this process, in the part of another
replica. Both read the same clock. The provider is in this process too, and notes when the worker hangs up.
`QUIESCE_BENCH_STOPS` sets the number of stops of each kind (default: 500), `QUIESCE_BENCH_TAKEOVERS` that of the kills.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bench._loopback import PROVIDER, Provider
from quiesce.conversation.validity import user_message
from quiesce.fleet import Fleet, FleetRun, RunRequest
from quiesce.sessions.journal.rows import encode

STOPS = int(os.environ.get("QUIESCE_BENCH_STOPS", "500"))
TAKEOVERS = int(os.environ.get("QUIESCE_BENCH_TAKEOVERS", "10"))
QUEUED, RUNNING = 2000, 200
ROOT = Path(__file__).parents[1]


class Bench:
    def __init__(self, url: str, fleet: Fleet, provider: Provider) -> None:
        self.url, self.fleet, self.provider = url, fleet, provider
        self._number = 0

    async def submit(self, prompt: str) -> FleetRun:
        self._number += 1
        prompt = f"{prompt}-{self._number}"
        request = RunRequest("bench", "fleet", f"bench/{prompt}", "prompt", encode(user_message(prompt)))
        return (await self.fleet.submit(request))[0]

    async def until(self, run: FleetRun, kind: str) -> None:
        async for _, event in self.fleet.events(run.id):
            if event.__struct_config__.tag == kind:
                return

    def worker(self, port: int, *, lease: float = 15.0, capacity: int = 20) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "quiesce.cli", "worker", "bench._fleet_agent:agent", "--store", self.url]
        options = ["--lease", str(lease), "--capacity", str(capacity), "--log-level", "error"]
        return subprocess.Popen(
            [*command, *options], cwd=ROOT, env={**os.environ, PROVIDER: f"http://127.0.0.1:{port}"}
        )


def percentiles(seconds: list[float]) -> tuple[float, float]:
    """The median and the p99, in milliseconds."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return statistics.median(ordered) * 1000, p99 * 1000


class Stops:
    """The stops of one kind, and a bare NOTIFY before each of them: both meet the same load."""

    def __init__(self, what: str, here: Any, there: Any) -> None:
        self._what, self._here, self._there = what, here, there
        self._bare: list[float] = []
        self._measured: dict[str, list[float]] = {}

    @classmethod
    @asynccontextmanager
    async def of(cls, what: str, url: str) -> AsyncIterator[Stops]:
        """Measure for the block, and print at its end."""
        import asyncpg

        stops = cls(what, await asyncpg.connect(url), await asyncpg.connect(url))
        try:
            yield stops
        finally:
            for connection in (stops._here, stops._there):
                await connection.close()
        stops._print()

    async def round(self) -> None:
        """From a NOTIFY to the callback of a LISTEN, on two connections."""
        heard: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        def on_notification(*_: object) -> None:
            heard.set_result(time.perf_counter())

        await self._there.add_listener("bench", on_notification)
        asked = time.perf_counter()
        await self._here.execute("SELECT pg_notify('bench', 'x')")
        self._bare.append(await heard - asked)
        await self._there.remove_listener("bench", on_notification)

    def add(self, until: str, seconds: float) -> None:
        """A stop, from asked until something was true."""
        self._measured.setdefault(until, []).append(seconds)

    def _print(self) -> None:
        bare, bare_p99 = percentiles(self._bare)
        print(f"{self._what:<16} {'bare NOTIFY':<26} median {bare:7.2f} ms   p99 {bare_p99:7.2f} ms", flush=True)
        for until, seconds in self._measured.items():
            median, p99 = percentiles(seconds)
            limit = 2 * bare + 5
            verdict = f"{'under' if median < limit else 'NOT UNDER'} 2 x + 5 ms = {limit:.2f} ms"
            ratio = f"{median / bare:4.1f} x NOTIFY, {verdict}"
            print(f"{self._what:<16} {until:<26} median {median:7.2f} ms   p99 {p99:7.2f} ms   {ratio}", flush=True)


async def latencies(bench: Bench) -> None:
    async def measure(what: str, prompt: str, seen: str) -> None:
        async with Stops.of(what, bench.url) as stops:
            for _ in range(STOPS):
                run = await bench.submit(prompt)
                await bench.until(run, seen)
                name = run.session.partition("/")[2]
                while prompt != "tool" and name not in bench.provider.closed:
                    await asyncio.sleep(0.005)
                closed = bench.provider.closed.get(name)
                await stops.round()
                asked = time.perf_counter()
                state = await bench.fleet.stop(run.id, wait=30)
                assert state is not None
                assert state.run.receipt is not None
                assert state.run.receipt.cause is not None
                stops.add("asked to token", state.run.receipt.cause.clock - asked)
                if closed is not None:
                    stops.add("asked to provider closed", await closed - asked)

    await measure("model streaming", "stream", "text")
    await measure("model stalled", "stall", "model_call_started")
    await measure("in a tool", "tool", "tool_started")


async def queued(bench: Bench) -> None:
    async with Stops.of("queued", bench.url) as stops:
        for _ in range(STOPS):
            run = await bench.submit("stream")
            await stops.round()
            asked = time.perf_counter()
            state = await bench.fleet.stop(run.id)
            assert state is not None
            assert state.at_rest
            stops.add("asked to at rest", time.perf_counter() - asked)


async def takeovers(bench: Bench, port: int) -> None:
    lease = 3.0
    spare = bench.worker(port, lease=lease)
    seconds: list[float] = []
    for _ in range(TAKEOVERS):
        victim = bench.worker(port, lease=lease)
        while len([each for each in await bench.fleet.workers() if not each.is_lost]) < 2:
            await asyncio.sleep(0.05)
        while True:
            run = await bench.submit("tool")
            await bench.until(run, "tool_started")
            taken = await bench.fleet.find(run.id)
            pids = {each.id: each.pid for each in await bench.fleet.workers()}
            if taken is not None and pids[taken.worker] == victim.pid:
                break
            await bench.fleet.stop(run.id, wait=30)
        victim.kill()
        killed = time.perf_counter()
        victim.wait()
        ended = await bench.fleet.rest(run.id)
        assert ended is not None
        following = await bench.fleet.find(ended.restarted_as)
        assert following is not None
        await bench.until(following, "run_started")
        seconds.append(time.perf_counter() - killed)
        await bench.fleet.stop(following.id, wait=30)
    spare.terminate()
    spare.wait()
    print(
        f"taking over after kill -9, lease {lease:g} s: from the kill to the run that goes on:"
        f" median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s",
        flush=True,
    )


async def stop_all(bench: Bench, port: int) -> None:
    workers = [bench.worker(port, capacity=RUNNING // 4) for _ in range(4)]
    for _ in range(QUEUED + RUNNING):
        await bench.submit("stall")
    while len(await bench.fleet.runs(states=("running",), limit=RUNNING)) < RUNNING:
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    asked = time.perf_counter()
    stopped = await bench.fleet.stop_all("all of it")
    accepted = time.perf_counter() - asked
    while active := await bench.fleet.runs(states=("queued", "running"), limit=1):
        await bench.fleet.rest(active[0].id)
    print(
        f"stop --all, {QUEUED} queued and {RUNNING} running ({len(stopped)} runs):"
        f" accepted after {accepted:.2f} s, at rest after {time.perf_counter() - asked:.2f} s",
        flush=True,
    )
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.wait()


@asynccontextmanager
async def opened(postgres: Any, provider: Provider) -> Any:
    from quiesce.sessions.stores.postgres import PostgresStore

    url = postgres.new_database()
    store = PostgresStore(url)
    async with Fleet(url, store) as fleet:
        yield Bench(url, fleet, provider)
    await asyncio.wrap_future(store.close())


async def measured(postgres: Any) -> None:
    provider = Provider("stream")
    server = await asyncio.start_server(provider, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with opened(postgres, provider) as bench:
        worker = bench.worker(port)
        await latencies(bench)
        worker.terminate()
        worker.wait()
        await queued(bench)
    async with opened(postgres, provider) as bench:
        await takeovers(bench, port)
    async with opened(postgres, provider) as bench:
        await stop_all(bench, port)
    server.close()


def main() -> None:
    from tests.sessions.conftest import Postgres

    postgres = Postgres(connections=100)
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(measured(postgres))
    finally:
        postgres.close()


if __name__ == "__main__":
    main()
