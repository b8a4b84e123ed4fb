"""Postgres crashes while processes with leases live on: a commit that it did not wait for is lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack

import asyncpg
import pytest

from quiesce.errors import LeaseLost, SessionBusy, StoreUnavailable
from quiesce.messages import Text, UserMessage
from quiesce.sessions.records import AcquiredSession, WriteBatch, holder
from quiesce.sessions.stores.postgres import PostgresStore

from .conftest import Postgres

pytestmark = pytest.mark.promise("P9", "P3")


async def write_no_log_ahead(url: str) -> None:
    """Let the server write its log for commits that wait for it, and otherwise every ten seconds."""
    connection = await asyncpg.connect(url)
    await connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.execute("SELECT pg_sleep(0.5)")  # the writer of the log reads it when it wakes
    await connection.close()


def acquired(store: PostgresStore, who: str) -> AcquiredSession:
    """The session, as soon as it can be had."""
    end = time.monotonic() + 30
    while True:
        try:
            return store.acquire("s", holder(who), seconds=0.2).result()
        except (SessionBusy, StoreUnavailable):
            assert time.monotonic() < end
            time.sleep(0.01)


def test_the_fence_of_a_lease_is_not_given_twice() -> None:
    """Found by the adversary: two runs had the same fence, and one deleted the saved answer of the other."""
    server = Postgres()  # of its own, because it crashes
    with ExitStack() as stack:
        stack.callback(server.close)
        url = server.new_database()
        store = PostgresStore(url)
        stack.callback(lambda: store.close().result())
        store.release(acquired(store, "earlier").lease).result()
        asyncio.run(write_no_log_ahead(url))  # and, by committing, what was before
        before = acquired(store, "before").lease
        server.stop("immediate")
        server.start()
        after = acquired(store, "after").lease
        assert after.fence > before.fence
        batch = WriteBatch("run")
        batch.messages.append(UserMessage((Text("This is too late."),)))
        with pytest.raises(LeaseLost):
            store.write(before, batch).result()
