"""A worker that starts while the database is away tries again, for the time of its lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from quiesce.errors import StoreError, StoreUnavailable
from quiesce.fleet import Worker, WorkerSettings

from ..sessions.conftest import Postgres
from ..support.cut_proxy import CutProxy
from .agents import agent
from .conftest import FleetUnderTest, with_fleet

pytestmark = pytest.mark.promise("P9")


class OnWarning(logging.Handler):
    def __init__(self, function: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._function = function

    def emit(self, record: logging.LogRecord) -> None:
        if "cannot begin yet" in record.getMessage():
            self._function()


@contextmanager
def when_it_tries_again(function: Callable[[], None]) -> Iterator[None]:
    handler = OnWarning(function)
    logging.getLogger("quiesce.fleet").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("quiesce.fleet").removeHandler(handler)


@pytest.fixture
def away(fleet_postgres: Postgres) -> Iterator[CutProxy]:
    """The way to a database that is away."""
    with closing(CutProxy(fleet_postgres.socket)) as proxy:
        proxy.refuses = True
        yield proxy


def worker_at(proxy: CutProxy, database: str, lease: float = 30.0) -> Worker:
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{database}?sslmode=disable"
    return Worker(agent, store=url, settings=WorkerSettings(lease=lease, drain=5.0))


def test_it_takes_runs_when_the_database_is_back(fleet_url: str, away: CutProxy) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        run = await fleet.submit("work:0 the end")
        stop = asyncio.Event()
        worker = worker_at(away, fleet.url.partition("?")[0].rpartition("/")[2])
        with when_it_tries_again(lambda: setattr(away, "refuses", False)):
            task = asyncio.create_task(worker.run(stop))
            assert (await fleet.rest(run.id)).reason == "end_turn"
        stop.set()
        await task

    with_fleet(fleet_url, test)


def test_a_stop_ends_its_attempts(away: CutProxy) -> None:
    async def test() -> None:
        stop = asyncio.Event()
        with when_it_tries_again(stop.set):
            await worker_at(away, "none").run(stop)

    asyncio.run(test())


def test_it_gives_up_after_its_lease(away: CutProxy) -> None:
    with pytest.raises(StoreUnavailable):
        asyncio.run(worker_at(away, "none", lease=0.01).run(asyncio.Event()))


def test_an_error_that_does_not_pass_is_raised_at_once(away: CutProxy) -> None:
    away.refuses = False
    with pytest.raises(StoreError, match="does not exist"):
        asyncio.run(worker_at(away, "no_such_database").run(asyncio.Event()))
