"""A fleet on a real Postgres: workers in this loop or in processes of their own, and a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quiesce import Agent
from quiesce.conversation.validity import user_message
from quiesce.fleet import Fleet, FleetRun, RunRequest, Worker, WorkerSettings
from quiesce.sessions.journal.rows import encode
from quiesce.sessions.stores.postgres import PostgresStore

from ..sessions.conftest import Databases, Postgres


@pytest.fixture(scope="session")
def fleet_postgres() -> Iterator[Postgres]:
    server = Postgres(connections=150)
    yield server
    server.close()


@pytest.fixture(scope="session")
def fleet_databases(fleet_postgres: Postgres) -> Databases:
    return Databases(fleet_postgres)


@pytest.fixture
def fleet_url(fleet_databases: Databases) -> Iterator[str]:
    """A database without runs."""
    with fleet_databases.one() as url:
        yield url


class FleetUnderTest:
    """A client, and workers in the same loop, each with a store of its own as in another process."""

    def __init__(self, url: str, fleet: Fleet) -> None:
        self.url = url
        self.fleet = fleet

    @asynccontextmanager
    async def worker(self, *agents: Agent, hurry: bool = False, **settings: Any) -> AsyncIterator[Worker]:
        """A worker for the block. With `hurry` its drain stops the runs at once, and waits for them."""
        settings.setdefault("lease", 2.0)
        settings.setdefault("drain", 30.0 if hurry else 1.0)
        worker = Worker(*agents, store=self.url, settings=WorkerSettings(**settings))
        worker.store = PostgresStore(self.url)  # type: ignore[misc]
        stop, hurried = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(worker.run(stop, hurried))
        try:
            yield worker
        finally:
            if hurry:
                hurried.set()
            stop.set()
            await task

    async def submit(self, prompt: str = "Hello", *, session: str = "ann/s", **options: Any) -> FleetRun:
        request = RunRequest(
            "ann", options.pop("agent", "agent"), session, "prompt", encode(user_message(prompt)), **options
        )
        return (await self.fleet.submit(request))[0]

    async def rest(self, run_id: str) -> FleetRun:
        async with asyncio.timeout(60):
            run = await self.fleet.rest(run_id)
        assert run is not None
        return run

    async def until(self, run_id: str, kind: str, after: int = 0) -> int:
        """Read the run's events until one of this kind; its number."""
        async with asyncio.timeout(60):
            async for number, event in self.fleet.events(run_id, after):
                if event.__struct_config__.tag == kind:
                    return number
        raise AssertionError(f"no {kind}")


def with_fleet(url: str, test: Callable[[FleetUnderTest], Awaitable[None]]) -> None:
    """Run a test with a fleet of its own in a database."""

    async def main() -> None:
        store = PostgresStore(url)
        try:
            async with Fleet(url, store) as fleet:
                await test(FleetUnderTest(url, fleet))
        finally:
            await asyncio.wrap_future(store.close())

    asyncio.run(main())


@pytest.fixture
def run_fleet(fleet_url: str) -> Callable[[Callable[[FleetUnderTest], Awaitable[None]]], None]:
    return lambda test: with_fleet(fleet_url, test)
