"""Short runs through the queue of a fleet: how many per second with 1, 2 and 4 workers, and what the database does.

A run is one prompt and one short answer, in a session of its own. `QUIESCE_BENCH_RUNS` sets the number (default: 400).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.fleet_stop import Provider, opened

RUNS = int(os.environ.get("QUIESCE_BENCH_RUNS", "400"))


class Load(NamedTuple):
    """What the database and the workers have done so far. Times are those of processors, in seconds."""

    transactions: float
    rows: float
    wal: float
    database: float
    workers: float

    def per_run(self, before: Load) -> Load:
        return Load(*((now - then) / RUNS for now, then in zip(self, before, strict=True)))


def processor_seconds(pid: int) -> float:
    """What a process has used, and its children, those that have ended too."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has just ended: its parent has its time
        return 0.0
    used = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return used + sum(processor_seconds(int(each)) for each in children)


async def load_of(url: str, database: int, workers: list[int]) -> Load:
    import asyncpg

    await asyncio.sleep(11)  # a connection that is idle sends its statistics after ten seconds
    connection = await asyncpg.connect(url)
    row = await connection.fetchrow(
        "SELECT xact_commit, tup_inserted + tup_updated + tup_deleted, (SELECT wal_bytes FROM pg_stat_wal)"
        " FROM pg_stat_database WHERE datname = current_database()"
    )
    await connection.close()
    return Load(row[0], row[1], float(row[2]), processor_seconds(database), sum(map(processor_seconds, workers)))


async def measured(postgres: Any) -> None:
    for count in (1, 2, 4):
        async with opened(postgres, Provider()) as bench:
            workers = [bench.worker(0, lease=120.0) for _ in range(count)]
            while len(await bench.fleet.workers()) < count:
                await asyncio.sleep(0.05)
            pids = [worker.pid for worker in workers]
            for pid in pids:  # they begin together, when the queue is full
                os.kill(pid, signal.SIGSTOP)
            for _ in range(RUNS):
                await bench.submit("done")
            before = await load_of(bench.url, postgres.pid, pids)
            begun = time.perf_counter()
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            while active := await bench.fleet.runs(states=("queued", "running"), limit=1):
                await bench.fleet.rest(active[0].id)
            seconds = time.perf_counter() - begun
            load = (await load_of(bench.url, postgres.pid, pids)).per_run(before)
            for worker in workers:
                worker.terminate()
                worker.wait()
            print(
                f"{count} workers: {RUNS / seconds:6.1f} runs/s; per run {load.transactions:.1f} transactions,"
                f" {load.rows:.1f} rows written, {load.wal / 1024:.1f} KiB of WAL; processor time"
                f" {load.database * 1000:.1f} ms in the database, {load.workers * 1000:.1f} ms in workers",
                flush=True,
            )


def main() -> None:
    from tests.sessions.conftest import Postgres

    postgres = Postgres(connections=100)
    try:
        asyncio.run(measured(postgres))
    finally:
        postgres.close()


if __name__ == "__main__":
    main()
