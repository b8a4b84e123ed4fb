"""The metrics of a worker, through OpenTelemetry: queue time, stop latency, lost workers and their runs."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from quiesce import Agent
from quiesce.errors import ConfigurationError
from quiesce.fleet import Worker, WorkerInfo, WorkerSettings, run_table
from quiesce.fleet.taking import ServedAgent, take
from quiesce.models.scripted import Say, ScriptedModel, Stall
from quiesce.sessions.stores.postgres import PostgresStore
from quiesce.telemetry import Telemetry
from quiesce.telemetry.prometheus import metrics_page, parse_address

from .conftest import FleetUnderTest

pytestmark = pytest.mark.promise("P1", "P4")


def counted(reader: InMemoryMetricReader) -> dict[str, float]:
    """How often each instrument was used."""
    found: dict[str, float] = {}
    data: Any = reader.get_metrics_data()
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = metric.data.data_points
                found[metric.name] = sum(getattr(point, "count", None) or point.value for point in points)
    return found


def test_a_worker_measures_the_queue_the_stops_and_what_was_lost(run_fleet: Any) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    telemetry = Telemetry(meter_provider=provider)

    async def test(fleet: FleetUnderTest) -> None:
        database, gone = fleet.fleet._database, uuid.uuid4()
        lost = await fleet.submit(session="ann/lost")
        async with database.transaction() as db:
            await run_table.register(db, WorkerInfo(gone.hex, "host", 1, ("agent",), 1, 0, 0.0, 0.0, 0.0, False))
            await take(db, database.engine, {"agent": ServedAgent()}, 1, gone, lease=60.0)
        agent = Agent(ScriptedModel(then=[Say("It was a dark night. "), Stall()]))
        worker = Worker(agent, store=fleet.url, settings=WorkerSettings(lease=0.5, drain=1.0), telemetry=telemetry)
        worker.store = PostgresStore(fleet.url)  # type: ignore[misc]
        stop = asyncio.Event()
        task = asyncio.create_task(worker.run(stop))
        await fleet.until(lost.id, "text")
        run = await fleet.submit()
        await fleet.until(run.id, "text")
        await fleet.fleet.stop(run.id, wait=30)
        async with asyncio.timeout(30):
            while "quiesce.fleet.workers.lost" not in counted(reader):
                await asyncio.sleep(0.05)
        stop.set()
        await task

    run_fleet(test)
    assert counted(reader) == {
        "quiesce.fleet.queue.time": 1,
        "quiesce.fleet.stop.delivered": 1,
        "quiesce.fleet.stop.at_rest": 1,
        "quiesce.fleet.workers.lost": 1,
        "quiesce.fleet.runs.lost": 1,
    }
    provider.shutdown()


@pytest.mark.feature
def test_the_address_of_the_page() -> None:
    assert parse_address("9464") == ("127.0.0.1", 9464)
    assert parse_address("0.0.0.0:9464") == ("0.0.0.0", 9464)
    assert parse_address("[::]:9464") == ("::", 9464)
    for wrong in ("", "host:", "host:99999", "x", "9²", "a..b:0"):
        with pytest.raises(ConfigurationError), metrics_page(wrong):
            pass
