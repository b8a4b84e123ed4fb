"""Deploys: the schema migrates under running workers of the version before, and both versions share the runs."""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from quiesce.conversation.validity import faults, user_message
from quiesce.fleet.engine import Engine
from quiesce.fleet.schema import MIGRATIONS
from quiesce.messages import Outcome, ToolMessage
from quiesce.sessions import Session
from quiesce.sessions.journal.rows import encode

from ..docs.pages import ROOT
from ..sessions.conftest import Postgres
from .agents import agent
from .conftest import FleetUnderTest, with_fleet
from .processes import WorkerProcess, counted

pytestmark = pytest.mark.promise("P4", "P9")

# The last commit whose fleet had the first schema.
EARLIER = "783c4df"
LEASE = 6.0


async def schema_of(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval("SELECT max(version) FROM quiesce_fleet_schema")
    finally:
        await connection.close()


async def make_first_tables(url: str) -> None:
    """The tables as the first version made them, with a queued run, and one whose worker is lost."""
    connection, engine = await asyncpg.connect(url), Engine()
    await connection.execute("CREATE TABLE quiesce_fleet_schema (version INTEGER NOT NULL)")
    for statement in MIGRATIONS[0]:
        await connection.execute(statement)
    await connection.execute("INSERT INTO quiesce_fleet_schema VALUES (1)")
    await engine.install(connection)
    given = encode(user_message("work:0 the end"))
    for run_id, state, worker in (("queued0", "queued", ""), ("running0", "running", "gone")):
        job = await engine.add(connection, "agent", run_id, 0)
        await connection.execute(
            "INSERT INTO quiesce_fleet_runs (id, owner, agent, session, kind, given, state, created, job, worker,"
            " attempt, on_worker_loss) VALUES ($1, 'ann', 'agent', 'ann/' || $1, 'prompt', $2, $3, 1, $4, $5, $6,"
            " 'continue')",
            run_id, given, state, job, worker, int(state == "running"),
        )  # fmt: skip
    await connection.close()


def test_runs_of_the_first_schema_go_on_after_the_migration(fleet_postgres: Postgres) -> None:
    url = fleet_postgres.new_database()
    asyncio.run(make_first_tables(url))

    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(agent, lease=1.0):
            for run_id in ("queued0", "running0"):
                assert (await fleet.rest(run_id)).reason == "end_turn"

    with_fleet(url, test)
    assert asyncio.run(schema_of(url)) == len(MIGRATIONS)


@pytest.fixture
def earlier(tmp_path: Path) -> str:
    """The source of the earlier version, in a folder; gives the folder."""
    made = subprocess.run(["git", "archive", EARLIER, "src"], cwd=ROOT, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"the commit {EARLIER} is not in this clone: {made.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(tmp_path / "earlier", filter="data")
    return str(tmp_path / "earlier" / "src")


@pytest.mark.proof
@pytest.mark.timeout(240)
def test_a_worker_of_the_version_before_goes_on_while_the_schema_migrates(
    fleet_postgres: Postgres, tmp_path: Path, earlier: str
) -> None:
    url, witness = fleet_postgres.new_database(), tmp_path / "witness"

    def worker() -> WorkerProcess:
        return WorkerProcess(url, witness, lease=LEASE, drain=20.0, source=earlier)

    with closing(worker()) as old:
        asyncio.run(until_schema(url, 1))
        with_fleet(url, lambda fleet: share_runs(fleet, old))
    with closing(worker()) as late:
        with_fleet(url, lambda fleet: lose_worker(fleet, late))
    assert asyncio.run(schema_of(url)) == len(MIGRATIONS)
    assert counted(witness, "done") == {"call_0_0": 3}  # the first call of three conversations, once each


async def until_schema(url: str, version: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                if await schema_of(url) == version:
                    return
            except asyncpg.PostgresError:
                pass  # there are no tables yet
            await asyncio.sleep(0.05)


async def share_runs(fleet: FleetUnderTest, old: WorkerProcess) -> None:
    """The client is of this version: its first call migrates."""
    stopped = await fleet.submit("stall", session="ann/stopped")
    handed = await fleet.submit("work:3 the end", session="ann/handed")
    await fleet.until(stopped.id, "text")
    await fleet.until(handed.id, "tool_started")
    state = await fleet.fleet.stop(stopped.id, "enough", wait=30)
    assert state is not None
    assert (state.delivered, state.run.receipt and state.run.receipt.stop_reason) == (True, "cancelled")
    (before,) = await fleet.fleet.workers()
    assert (before.pid, before.versions, before.is_lost) == (old.process.pid, (), False)

    assert await asyncio.to_thread(old.terminate) == 0
    drained = await fleet.rest(handed.id)
    assert (drained.reason, bool(drained.restarted_as)) == ("cancelled", True)
    async with fleet.worker(agent, lease=LEASE):
        assert (await fleet.rest(drained.restarted_as)).reason == "end_turn"
    assert await outcomes(fleet, "ann/handed") == [Outcome.COMPLETED]


async def lose_worker(fleet: FleetUnderTest, late: WorkerProcess) -> None:
    """A worker of the version before starts again when the tables are those of this one; then it is killed."""
    run = await fleet.submit("work:0 the end", session="ann/late")
    assert (await fleet.rest(run.id)).reason == "end_turn"
    lost = await fleet.submit("work:0 work:600 the end", session="ann/lost")
    first = await fleet.until(lost.id, "tool_started")
    await fleet.until(lost.id, "tool_started", first)
    late.kill()
    async with fleet.worker(agent, lease=LEASE):
        crashed = await fleet.rest(lost.id)
        assert (await fleet.rest(crashed.restarted_as)).reason == "end_turn"
    assert await outcomes(fleet, "ann/lost") == [Outcome.COMPLETED, Outcome.UNKNOWN]


async def outcomes(fleet: FleetUnderTest, session: str) -> list[Any]:
    messages = await Session(session, fleet.fleet.store).load()
    assert not faults(messages)
    return [each.outcome for message in messages if isinstance(message, ToolMessage) for each in message.results]
