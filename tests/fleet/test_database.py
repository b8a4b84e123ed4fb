"""The connections of a fleet: a call that is cancelled, or does not answer, gives its connection up at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quiesce.errors import StoreUnavailable
from quiesce.fleet import database
from quiesce.fleet.database import FleetDatabase

pytestmark = pytest.mark.promise("P7")


def test_a_transaction_that_is_cancelled_is_rolled_back_and_the_cancellation_is_not_swallowed(fleet_url: str) -> None:
    async def test() -> None:
        opened = FleetDatabase(fleet_url)
        begun = asyncio.Event()

        async def change() -> None:
            async with opened.transaction() as db:
                await db.execute("INSERT INTO quiesce_fleet_caps VALUES ('ann', 'agent', 1)")
                begun.set()
                await db.execute("SELECT pg_sleep(30)")

        task = asyncio.create_task(change())
        await begun.wait()
        task.cancel()
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.CancelledError):
                await task
        async with opened.transaction() as db:
            # The server itself would notice only at the end of the statement.
            await db.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%'"
            )
        async with opened.transaction() as db:
            assert await db.fetchval("SELECT count(*) FROM quiesce_fleet_caps") == 0
        await opened.close()

    asyncio.run(test())


def test_a_statement_without_an_answer_costs_its_timeout_once(fleet_url: str, monkeypatch: Any) -> None:
    """The server is not asked again on the same connection: with a link that is cut, that would wait as long again."""
    monkeypatch.setattr(database, "STATEMENT_TIMEOUT", 0.5)

    async def test() -> None:
        opened = FleetDatabase(fleet_url)
        async with opened.transaction() as db:
            before = await db.fetchval("SELECT pg_backend_pid()")
        with pytest.raises(StoreUnavailable):
            async with opened.transaction() as db:
                await db.execute("SELECT pg_sleep(3)")
        async with opened.transaction() as db:
            assert await db.fetchval("SELECT pg_backend_pid()") != before
        await opened.close()

    asyncio.run(test())
