"""A database that is read-only for a moment, as during a failover: workers go on, and callers get a clear error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from quiesce.errors import StoreReadOnly
from quiesce.fleet.database import FleetDatabase
from quiesce.server.problems import problem_of

from .agents import agent
from .conftest import FleetUnderTest

pytestmark = pytest.mark.promise("P9")


@asynccontextmanager
async def read_only(url: str) -> AsyncIterator[None]:
    """Every connection to the database is cut; those that are made in the block may not write, until they end."""
    connection = await asyncpg.connect(url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await connection.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    try:
        yield
    finally:
        await connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await connection.close()


def test_a_call_says_that_the_database_is_read_only_and_the_next_one_uses_another_connection(fleet_url: str) -> None:
    async def test() -> None:
        opened = FleetDatabase(fleet_url)

        async def write(runs: int) -> None:
            async with opened.transaction() as db:
                await db.execute("INSERT INTO quiesce_fleet_caps VALUES ('ann', 'agent', $1)", runs)

        await write(1)
        async with read_only(fleet_url):
            async with opened.connection() as one, opened.connection() as other:  # both stay in the pool
                await one.execute("SELECT 1")
                await other.execute("SELECT 1")
            with pytest.raises(StoreReadOnly, match="standby") as refused:
                await write(2)
            assert refused.value.retryable
            assert problem_of(refused.value).status == 503
        for _ in range(3):
            await opened.ask(lambda db: db.execute("UPDATE quiesce_fleet_caps SET runs = runs + 1"))
        await opened.close()

    asyncio.run(test())


def test_a_run_and_its_worker_go_on_when_the_database_may_be_written_again(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(agent, lease=8.0):
            run = await fleet.submit("again:1 the end")
            await fleet.until(run.id, "tool_started")
            async with read_only(fleet.url):
                await asyncio.sleep(2)
                with pytest.raises(StoreReadOnly):
                    await fleet.submit("too soon", session="ann/later")
            ended = await fleet.rest(run.id)
            assert (ended.state, ended.reason) == ("ended", "end_turn")
            later = await fleet.rest((await fleet.submit("hello", session="ann/later")).id)
            assert (later.state, later.reason) == ("ended", "end_turn")

    run_fleet(test)


def test_a_worker_that_starts_meanwhile_waits(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        run = await fleet.submit("hello")
        async with read_only(fleet.url):
            joining = fleet.worker(agent, lease=8.0)
            await joining.__aenter__()
            await asyncio.sleep(1)
        ended = await fleet.rest(run.id)
        assert (ended.state, ended.reason) == ("ended", "end_turn")
        await joining.__aexit__(None, None, None)

    run_fleet(test)
