"""Short runs through the queue of a fleet: how many per second with 1, 2 and 4 workers, and what the database does.

A run is one prompt and one short answer, in a session of its own. `QUIESCE_BENCH_RUNS` sets the number (default: 400).
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from bench.fleet_stop import Provider, opened

RUNS = int(os.environ.get("QUIESCE_BENCH_RUNS", "400"))


async def counted(url: str) -> tuple[int, int]:
    """The transactions of the database so far, and the rows that were written."""
    import asyncpg

    await asyncio.sleep(1.2)  # the statistics of a connection are sent once a second
    connection = await asyncpg.connect(url)
    row = await connection.fetchrow(
        "SELECT xact_commit, tup_inserted + tup_updated + tup_deleted FROM pg_stat_database"
        " WHERE datname = current_database()"
    )
    await connection.close()
    return row[0], row[1]


async def measured(postgres: Any) -> None:
    for count in (1, 2, 4):
        async with opened(postgres, Provider()) as bench:
            for _ in range(RUNS):
                await bench.submit("done")
            before = await counted(bench.url)
            begun = time.perf_counter()
            workers = [bench.worker(0) for _ in range(count)]
            while len(await bench.fleet.runs(states=("ended",), limit=1)) < 1:
                await asyncio.sleep(0.02)
            started = time.perf_counter()
            while active := await bench.fleet.runs(states=("queued", "running"), limit=1):
                await bench.fleet.rest(active[0].id)
            ended = time.perf_counter()
            after = await counted(bench.url)
            for worker in workers:
                worker.terminate()
                worker.wait()
            print(
                f"{count} workers: {RUNS / (ended - started):6.1f} runs/s (first one after {started - begun:.1f} s),"
                f" per run {(after[0] - before[0]) / RUNS:.1f} transactions,"
                f" {(after[1] - before[1]) / RUNS:.1f} rows written",
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
