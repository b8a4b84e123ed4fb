"""A freeze stops the runs of an agent, and no run of it starts until it is released, whoever comes first."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from quiesce import Agent
from quiesce.cli import main
from quiesce.conversation.validity import user_message
from quiesce.errors import AgentFrozen, ConfigurationError
from quiesce.fleet import Fleet, RunRequest, freeze_table, run_table
from quiesce.fleet.taking import ServedAgent, take
from quiesce.models.scripted import Say, ScriptedModel, Stall
from quiesce.sessions.journal.rows import encode

from ..server.support import start
from ..sessions.conftest import Postgres
from .conftest import FleetUnderTest
from .test_replicas import replicas

pytestmark = pytest.mark.promise("P1", "P8")


def endless(**options: Any) -> Agent:
    return Agent(ScriptedModel(then=[Say("It was a dark night. "), Stall()]), **options)


def request(agent: str = "agent", session: str = "ann/new") -> RunRequest:
    return RunRequest("ann", agent, session, "prompt", encode(user_message("Hello")))


async def waits_for_lock(fleet: Fleet) -> None:
    """Return when a transaction waits for the lock of freezes."""
    async with asyncio.timeout(20), fleet._database.connection() as db:
        while not await db.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            await asyncio.sleep(0)


def test_a_freeze_stops_what_runs_and_what_is_queued_and_refuses_new_runs(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.worker(endless(), capacity=1):
            running = await fleet.submit()
            await fleet.until(running.id, "text")
            queued = await fleet.submit(session="ann/two")
            other = await fleet.submit(session="ann/three", agent="another")
            made, stopped = await fleet.fleet.freezes.freeze("agent", by="ann", reason="it deletes files")
            assert set(stopped) == {running.id, queued.id}
            for each in stopped:
                ended = await fleet.rest(each)
                assert ended.receipt is not None
                assert ended.receipt.cause is not None
                assert ended.receipt.cause.reason == "The agent 'agent' is frozen by ann: it deletes files"
                assert (ended.reason, ended.restarted_as) == ("cancelled", "")
            with pytest.raises(AgentFrozen, match="frozen by ann: it deletes files"):
                await fleet.submit(session="ann/four")
            left = await fleet.fleet.find(other.id)
            assert left is not None
            assert left.state == "queued"

            again, more = await fleet.fleet.freezes.freeze("agent", by="bob", reason="me too")
            assert (again, more) == (made, [])
            with pytest.raises(ConfigurationError):
                await fleet.fleet.freezes.release("agent", by=" ")
            released = await fleet.fleet.freezes.release("agent", by="bob", reason="mended")
            assert released is not None
            assert (released.frozen_by, released.released_by, released.release_reason) == ("ann", "bob", "mended")
            assert await fleet.fleet.freezes.release("agent", by="bob") is None
            assert await fleet.fleet.freezes.list() == [released]
            assert await fleet.fleet.freezes.list(active_only=True) == []
            after = await fleet.submit(session="ann/four")
            await fleet.until(after.id, "text")

    run_fleet(test)


def test_a_start_that_commits_before_the_freeze_is_stopped_by_it(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        database = fleet.fleet._database
        async with database.transaction() as db:  # a start that has seen no freeze
            await freeze_table.hold(db)
            await freeze_table.check(db, "agent")
            freezing = asyncio.create_task(fleet.fleet.freezes.freeze(by="ann", reason="stop it"))
            await waits_for_lock(fleet.fleet)
            run = await run_table.insert(db, database.engine, request())
        made, stopped = await freezing
        assert (made.agent, stopped) == ("", [run.id])
        assert (await fleet.rest(run.id)).reason == "cancelled"

    run_fleet(test)


def test_a_start_that_waits_for_the_freeze_is_refused(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        async with fleet.fleet._database.transaction() as db:
            await freeze_table.insert(db, "", "ann", "stop it")
            starting = asyncio.create_task(fleet.submit())
            await waits_for_lock(fleet.fleet)
        with pytest.raises(AgentFrozen, match="All agents are frozen by ann: stop it"):
            await starting
        assert await fleet.fleet.runs() == []

    run_fleet(test)


def test_a_run_that_is_taken_before_the_freeze_gets_its_stop(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        run = await fleet.submit()
        database = fleet.fleet._database
        async with database.transaction() as db:
            (taken,) = await take(db, database.engine, {"agent": ServedAgent()}, 1, uuid.uuid4(), lease=1.0)
            freezing = asyncio.create_task(fleet.fleet.freezes.freeze("agent", by="ann", reason="stop it"))
            await waits_for_lock(fleet.fleet)
        _, stopped = await freezing
        assert (taken.id, stopped) == (run.id, [run.id])
        found = await fleet.fleet.find(run.id)
        assert found is not None
        assert (found.state, found.stop) == ("running", "now")

    run_fleet(test)


def test_a_queued_run_of_a_frozen_agent_does_not_start_and_a_drained_one_does_not_go_on(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        database = fleet.fleet._database
        async with fleet.worker(endless()):
            drained = await fleet.submit()
            await fleet.until(drained.id, "text")
            async with database.transaction() as db:  # the row alone: no stop reaches the run
                await freeze_table.insert(db, "agent", "ann", "stop it")
        assert (await fleet.rest(drained.id)).restarted_as == ""
        async with database.transaction() as db:  # as a replica of an older version does
            run = await run_table.insert(db, database.engine, request())
        model = ScriptedModel(then="Good morning.")
        async with fleet.worker(Agent(model)):
            ended = await fleet.rest(run.id)
        assert (ended.reason, ended.attempt, model.requests) == ("cancelled", 0, [])

    run_fleet(test)


def test_every_replica_refuses_and_says_who_and_why(
    fleet_postgres: Postgres, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fleet_postgres.new_database()
    monkeypatch.setenv("QUIESCE_STORE", url)
    with replicas(url, endless()) as (one, other), one.client() as here, other.client() as there:
        waiting = start(here, "Later")
        assert here.get("/fleet").json()["queues"] == [{"agent": "agent", "queued": 1, "running": 0}]
        assert main(["freeze", "--agent", "agent", "--reason", "it deletes files", "--by", "ann"]) == 0
        assert capsys.readouterr().out == (
            "The agent 'agent' is frozen by ann: it deletes files.\nThe stop is accepted for 1 run.\n"
        )
        for client in (here, there):
            refused = client.post("/runs", json={"prompt": "Hello"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (423, "frozen")
            assert refused.json()["error"]["message"] == "The agent 'agent' is frozen by ann: it deletes files."
            assert client.get(f"/runs/{waiting}").json()["run"]["state"] == "ended"
            assert client.post(f"/runs/{waiting}/continue").status_code == 409
            (shown,) = client.get("/fleet").json()["freezes"]
            assert (shown["agent"], shown["frozen_by"], shown["released_at"]) == ("agent", "ann", None)
        for command in (["ps"], ["workers"]):
            assert main(command) == 0
            assert "The agent 'agent' is frozen by ann: it deletes files." in capsys.readouterr().out
        assert main(["unfreeze", "--all"]) == 1
        assert "There is no such freeze." in capsys.readouterr().out
        assert main(["unfreeze", "--agent", "agent", "--by", "bob"]) == 0
        assert capsys.readouterr().out == "The agent 'agent' is released.\n"
        assert there.post("/runs", json={"prompt": "Hello"}).status_code == 201
        assert main(["freeze", "--list"]) == 0
        assert "frozen by ann (it deletes files); released" in capsys.readouterr().out
        assert main(["freeze", "--list", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["released_by"] == "bob"
        with pytest.raises(SystemExit):
            main(["freeze"])
