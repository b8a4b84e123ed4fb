"""The connections of a fleet: a call that is cancelled, or does not answer, gives its connection up at once."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from quiesce.errors import StoreDamaged, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from quiesce.fleet.database import FleetDatabase
from quiesce.sessions.stores import postgres_connection
from quiesce.sessions.stores.dialect import Statement
from quiesce.sessions.stores.postgres_database import PostgresDatabase

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
    monkeypatch.setattr(postgres_connection, "STATEMENT_TIMEOUT", 0.5)

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


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("53100", StoreFull),
        ("25006", StoreReadOnly),
        ("42501", StoreReadOnly),
        ("25P03", StoreUnavailable),
        ("40P01", StoreUnavailable),
        ("XX001", StoreDamaged),
        ("22012", StoreError),
    ],
)
def test_an_error_of_the_server_is_the_same_error_to_a_fleet_and_to_a_store(
    fleet_url: str, code: str, kind: type[StoreError]
) -> None:
    failing = f"DO $_$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $_$"

    def operation() -> Any:
        yield Statement(failing)

    async def in_fleet() -> None:
        opened = FleetDatabase(fleet_url)
        try:
            await opened.ask(lambda db: db.execute(failing))
        finally:
            await opened.close()

    database = PostgresDatabase(fleet_url)
    with pytest.raises(StoreError) as in_store:
        database.run("durable", operation)
    database.close()
    with pytest.raises(StoreError) as raised:
        asyncio.run(in_fleet())
    assert type(in_store.value) is type(raised.value) is kind
    assert str(in_store.value) == str(raised.value)
    assert in_store.value.retryable is raised.value.retryable is (kind is StoreUnavailable or code == "25006")


async def test_an_address_that_leads_to_no_postgres_is_a_store_that_is_away() -> None:
    """What the driver raised, here an `AttributeError`, ended the worker."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # it asks for TLS
        writer.write(b"N")
        await reader.readexactly(8)
        writer.write(struct.pack("!ci", b"R", 8) + bytes(4) + struct.pack("!ci", b"Z", 5) + b"I")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    database = FleetDatabase(f"postgresql://me:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}/x")
    with pytest.raises(StoreUnavailable, match="AttributeError") as raised:
        await database.ask(lambda db: db.execute("SELECT 1"))
    assert "secret" not in str(raised.value)
    server.close()
    await server.wait_closed()
