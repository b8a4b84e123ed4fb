"""The tables of runs, commands and workers, in SQL. A caller gives the connection, and with it the transaction.

A change of a run's row waits for a change that is under way. So a command either finds the worker that has the run, and
notifies it, or is found by the worker that takes the run.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ..cancellation import Cause, Mode
from ..phases import Phase
from ..receipt import Receipt, StopReason
from ..sessions.journal.rows import encode
from ..usage.ledger import summarise
from . import cap_table, freeze_table, webhook_table
from .engine import Engine
from .records import (
    COLUMNS,
    Command,
    CommandKind,
    FleetRun,
    FleetRunStatus,
    RunRequest,
    StopBody,
    WorkerInfo,
    fleet_run,
)
from .schema import NOW

# The channel on which changes of runs are notified; the payload is their ids. New events count as a change.
CHANGED: Final = "quiesce_fleet_runs"
ALL: Final = ", ".join(COLUMNS)
_MODES: Final = ["", *(mode.value for mode in Mode)]
# A notification of Postgres has at most 8,000 bytes.
_MOST_IDS: Final = 400
# A run that goes on after its worker was lost is taken before runs that have not begun.
_PRIORITY: Final = {True: 10, False: 0}


def worker_channel(worker: str) -> str:
    """The channel on which a worker is notified of commands."""
    return f"quiesce_worker_{worker}"


# --- Reading --------------------------------------------------------------------------------------------------------


async def find(db: Any, run_id: str) -> FleetRun | None:
    """The run with this id."""
    row = await db.fetchrow(f"SELECT {ALL} FROM quiesce_fleet_runs WHERE id = $1", run_id)
    return None if row is None else fleet_run(row)


async def find_by_key(db: Any, owner: str, idempotency_key: str) -> FleetRun | None:
    """The run that a request with this key has queued."""
    text = f"SELECT {ALL} FROM quiesce_fleet_runs WHERE owner = $1 AND idempotency_key = $2"
    row = await db.fetchrow(text, owner, idempotency_key)
    return None if row is None else fleet_run(row)


class Wanted(NamedTuple):
    """A filter for runs. A run matches when all given conditions hold."""

    owner: str | None = None
    states: Sequence[str] = ()
    agent: str | None = None
    session: str | None = None
    run_ids: Sequence[str] | None = None
    prefix: str = ""


async def select(db: Any, wanted: Wanted, limit: int) -> list[FleetRun]:
    """Some runs, the newest first."""
    owner, states, agent, session, run_ids, prefix = wanted
    found = await db.fetch(
        f"SELECT {ALL} FROM quiesce_fleet_runs WHERE ($1::text IS NULL OR owner = $1)"
        " AND (cardinality($2::text[]) = 0 OR state = ANY($2)) AND ($3::text IS NULL OR agent = $3)"
        " AND ($4::text IS NULL OR session = $4) AND starts_with(id, $5)"
        " AND ($7::text[] IS NULL OR id = ANY($7)) ORDER BY created DESC, id LIMIT $6",
        owner, list(states), agent, session, prefix, limit, None if run_ids is None else list(run_ids),
    )  # fmt: skip
    return [fleet_run(row) for row in found]


async def queues(db: Any) -> list[tuple[str, int, int]]:
    """Each agent that has active runs, with how many are queued, and how many are running."""
    found = await db.fetch(
        "SELECT agent, count(*) FILTER (WHERE state = 'queued'), count(*) FILTER (WHERE state = 'running')"
        " FROM quiesce_fleet_runs WHERE state IN ('queued', 'running') GROUP BY agent ORDER BY agent"
    )
    return [(agent, queued, running) for agent, queued, running in found]


async def owners(db: Any) -> list[str]:
    """The owners that have runs."""
    return [row[0] for row in await db.fetch("SELECT DISTINCT owner FROM quiesce_fleet_runs ORDER BY owner")]


async def sessions_of(db: Any, owner: str) -> list[str]:
    """The sessions of an owner, the last used first."""
    text = (
        "SELECT session FROM quiesce_fleet_runs WHERE owner = $1 GROUP BY session ORDER BY max(created) DESC LIMIT 1000"
    )
    return [row[0] for row in await db.fetch(text, owner)]


async def delete_runs(db: Any, owner: str, session: str) -> int:
    """Delete the runs of a session that are at rest, and their commands; gives how many there were."""
    text = "DELETE FROM quiesce_fleet_runs WHERE owner = $1 AND session = $2 AND state NOT IN ('queued', 'running')"
    deleted = await db.fetch(f"{text} RETURNING id", owner, session)
    await db.execute("DELETE FROM quiesce_fleet_commands WHERE run = ANY($1)", [row[0] for row in deleted])
    return len(deleted)


async def busy_run(db: Any, session: str) -> str | None:
    """The id of a run that is queued or running in a session. Others that ask wait until this transaction has ended."""
    await db.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 17))", session)
    text = "SELECT id FROM quiesce_fleet_runs WHERE session = $1 AND state IN ('queued', 'running') LIMIT 1"
    return await db.fetchval(text, session)


# --- The queue ------------------------------------------------------------------------------------------------------


async def insert(db: Any, engine: Engine, request: RunRequest, run_id: str | None = None) -> FleetRun:
    """Queue a run."""
    run_id = run_id or uuid.uuid4().hex[:12]
    job = await insert_job(db, engine, request.agent, request.version, run_id, follows=bool(request.continued_from))
    row = await db.fetchrow(
        "INSERT INTO quiesce_fleet_runs (id, owner, agent, session, label, kind, given, timeout, created, job,"
        " on_worker_loss, continued_from, losses, idempotency_key, fingerprint, version)"
        f" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, {NOW}, $9, $10, $11, $12, $13, $14, $15) RETURNING {ALL}",
        run_id, request.owner, request.agent, request.session, request.label, request.kind, request.given,
        request.timeout, job, request.on_worker_loss, request.continued_from, request.losses,
        request.idempotency_key, request.fingerprint, request.version,
    )  # fmt: skip
    await notify_changed(db, run_id)
    return fleet_run(row)


async def insert_job(db: Any, engine: Engine, agent: str, version: str, run_id: str, *, follows: bool) -> int:
    """Add the job of a run; gives its id. Workers with another version of the agent do not take one that names it."""
    return await engine.add(db, queue_name(agent, version), run_id, _PRIORITY[follows])


def queue_name(agent: str, version: str) -> str:
    """The queue of an agent, or of one version of it."""
    return f"{agent}@{version}" if version else agent


async def set_version(db: Any, run: FleetRun, version: str) -> None:
    """Record the version of the agent that a run is begun with."""
    text = "UPDATE quiesce_fleet_runs SET version = $4 WHERE id = $1 AND worker = $2 AND attempt = $3"
    await db.execute(text, run.id, run.worker, run.attempt, version)


async def is_mine(db: Any, run: FleetRun) -> bool:
    """Whether the worker that took this run still has it."""
    text = "SELECT 1 FROM quiesce_fleet_runs WHERE id = $1 AND worker = $2 AND attempt = $3 AND state = 'running'"
    return bool(await db.fetchval(text, run.id, run.worker, run.attempt))


async def end(
    db: Any,
    engine: Engine,
    run: FleetRun,
    receipt: Receipt,
    *,
    state: FleetRunStatus = "ended",
    followed_by: RunRequest | None = None,
) -> bool:
    """Record how a run ended, and queue the run that goes on with it. False when the worker has lost the run.

    No run goes on with one whose agent is frozen.
    """
    if followed_by is not None:
        await freeze_table.hold(db)
        if await freeze_table.find(db, run.agent) is not None:
            followed_by = None
    found = await db.fetchval(
        f"UPDATE quiesce_fleet_runs SET state = $4, reason = $5, detail = $6, ended = {NOW}"
        " WHERE id = $1 AND worker = $2 AND attempt = $3 AND state IN ('queued', 'running') RETURNING stop",
        run.id, run.worker, run.attempt, state, str(receipt.stop_reason), encode(receipt, halves=False),
    )  # fmt: skip
    if found is None:
        return False
    await cap_table.settle(db, run, receipt)
    await engine.finish(db, [run.job])
    if followed_by is not None and not found:  # a stop that came meanwhile is honoured
        following = await insert(db, engine, followed_by)
        await db.execute("UPDATE quiesce_fleet_runs SET restarted_as = $2 WHERE id = $1", run.id, following.id)
    ended = await find(db, run.id)
    await webhook_table.record(db, () if ended is None else (ended,))
    await db.execute(
        f"UPDATE quiesce_fleet_commands SET delivered = {NOW} WHERE run = $1 AND delivered IS NULL", run.id
    )
    await notify_changed(db, run.id)
    return True


async def notify_changed(db: Any, *run_ids: str) -> None:
    """When the transaction is committed, watchers of these runs are notified."""
    for first in range(0, len(run_ids), _MOST_IDS):
        await db.execute("SELECT pg_notify($1, $2)", CHANGED, " ".join(run_ids[first : first + _MOST_IDS]))


# --- Commands -------------------------------------------------------------------------------------------------------


async def add_command(db: Any, run: FleetRun, kind: CommandKind, body: bytes) -> int:
    """Store a command for a run whose row is locked, and notify its worker; gives the id of the command."""
    command = await db.fetchval(
        "INSERT INTO quiesce_fleet_commands (run, kind, body, created)"
        f" VALUES ($1, $2, $3, {NOW}) RETURNING id",
        run.id, kind, body,
    )  # fmt: skip
    await db.execute("SELECT pg_notify($1, $2)", worker_channel(run.worker), run.id)
    return command


async def lock(db: Any, run_id: str) -> FleetRun | None:
    """A run, whose row stays as it is until the transaction has ended."""
    row = await db.fetchrow(f"SELECT {ALL} FROM quiesce_fleet_runs WHERE id = $1 FOR UPDATE", run_id)
    return None if row is None else fleet_run(row)


def _locked(state: FleetRunStatus) -> str:
    return f"SELECT id FROM quiesce_fleet_runs WHERE id = ANY($1) AND state = '{state}' ORDER BY id FOR UPDATE"


async def stop_running(db: Any, run_ids: Sequence[str], stop: StopBody) -> dict[str, int]:
    """Store a stop for each of these runs that a worker has, and notify the workers; gives the ids of the commands.

    One statement, so that a stop costs one round. Rows are locked in the order of their ids, here and below: two
    clients that stop the same runs do not wait for each other.
    """
    found = await db.fetch(
        "WITH chosen AS (UPDATE quiesce_fleet_runs SET stop ="
        " CASE WHEN array_position($3::text[], stop) < array_position($3, $4) THEN $4 ELSE stop END"
        f" WHERE id IN ({_locked('running')}) RETURNING id, worker),"
        " added AS (INSERT INTO quiesce_fleet_commands (run, kind, body, created)"
        f" SELECT id, 'stop', $2, {NOW} FROM chosen RETURNING id, run),"
        f" notified AS (SELECT pg_notify('{worker_channel('')}' || worker, '')"
        " FROM (SELECT DISTINCT worker FROM chosen) AS workers)"
        " SELECT id, run, (SELECT count(*) FROM notified) FROM added",
        list(run_ids), msgspec.json.encode(stop), _MODES, stop.mode.value,
    )  # fmt: skip
    return {row["run"]: row["id"] for row in found}


async def stop_queued(db: Any, engine: Engine, run_ids: Sequence[str], stop: StopBody) -> list[FleetRun]:
    """End those of these runs that are in the queue, before they start; gives them."""
    placeholder = uuid.uuid4().hex  # of the id of the run, in a receipt that is made for all at once
    receipt = unbegun_receipt(placeholder, Cause(stop.source, stop.reason, stop.mode))
    found = await db.fetch(
        f"UPDATE quiesce_fleet_runs SET state = 'ended', reason = 'cancelled', stop = $2, ended = {NOW},"
        f" detail = convert_to(replace($3, $4, id), 'UTF8') WHERE id IN ({_locked('queued')}) RETURNING {ALL}",
        list(run_ids), stop.mode.value, encode(receipt, halves=False).decode(), placeholder,
    )  # fmt: skip
    if found:
        await engine.finish(db, [row["job"] for row in found])
        await notify_changed(db, *(row["id"] for row in found))
    return [fleet_run(row) for row in found]


async def end_unbegun(db: Any, engine: Engine, run: FleetRun, receipt: Receipt) -> None:
    """End a run that is in the queue, and may not start any more."""
    ended = await db.fetch(
        f"UPDATE quiesce_fleet_runs SET state = 'ended', reason = $2, detail = $3, ended = {NOW}"
        f" WHERE id = $1 AND state = 'queued' RETURNING {ALL}",
        run.id, receipt.stop_reason, encode(receipt, halves=False),
    )  # fmt: skip
    await webhook_table.record(db, map(fleet_run, ended))
    await engine.finish(db, [run.job])
    await notify_changed(db, run.id)


def unbegun_receipt(run_id: str, cause: Cause, stop_reason: StopReason = "cancelled") -> Receipt:
    """The receipt of a run that was stopped before it began: nothing was sent, and nothing is in the conversation."""
    return Receipt(
        run_id=run_id,
        stop_reason=stop_reason,
        cause=cause,
        mode=cause.mode,
        phase=Phase.WAITING,
        latency=0.0,
        calls=(),
        still_running=(),
        usage=summarise(()),
        asked_during=Phase.WAITING,
    )


async def undelivered(db: Any, run_ids: Sequence[str]) -> list[Command]:
    """The commands for these runs that were not delivered, in order."""
    text = (
        f"SELECT id, run, kind, body, {NOW} - created FROM quiesce_fleet_commands"
        " WHERE run = ANY($1) AND delivered IS NULL ORDER BY id"
    )
    return [Command(*row) for row in await db.fetch(text, list(run_ids))]


async def mark_delivered(db: Any, took: dict[int, bool], run_ids: Sequence[str]) -> None:
    """Record that commands were given to their runs, and whether that changed anything."""
    await db.executemany(
        f"UPDATE quiesce_fleet_commands SET delivered = {NOW}, took = $2 WHERE id = $1 AND delivered IS NULL",
        list(took.items()),
    )
    await notify_changed(db, *run_ids)


async def command_state(db: Any, command: int) -> tuple[bool, bool]:
    """Whether a command was delivered, and whether it changed anything."""
    row = await db.fetchrow("SELECT delivered IS NOT NULL, took FROM quiesce_fleet_commands WHERE id = $1", command)
    return (False, False) if row is None else (row[0], row[1])


# --- Workers --------------------------------------------------------------------------------------------------------


async def register(db: Any, info: WorkerInfo) -> None:
    """Record a heartbeat of a worker; the first one registers it."""
    await db.execute(
        "INSERT INTO quiesce_fleet_workers (id, host, pid, agents, capacity, started, heartbeat, lease, draining,"
        f" versions) VALUES ($1, $2, $3, $4, $5, {NOW}, {NOW}, $6, $7, $8)"
        f" ON CONFLICT (id) DO UPDATE SET heartbeat = {NOW}, draining = excluded.draining, lost = false",
        info.id, info.host, info.pid, list(info.agents), info.capacity, info.lease, info.draining,
        list(info.versions),
    )  # fmt: skip


async def count_lost(db: Any) -> int:
    """How many workers are lost that were not counted yet, by any worker."""
    found = await db.fetch(
        f"UPDATE quiesce_fleet_workers SET lost = true WHERE id IN (SELECT id FROM quiesce_fleet_workers"
        f" WHERE NOT lost AND heartbeat < {NOW} - lease FOR UPDATE SKIP LOCKED) RETURNING 1"
    )
    return len(found)


async def forget_worker(db: Any, worker: str) -> None:
    """Delete a worker that has ended, and those that were lost an hour ago."""
    await db.execute(f"DELETE FROM quiesce_fleet_workers WHERE id = $1 OR heartbeat < {NOW} - 3600", worker)


async def workers(db: Any) -> list[WorkerInfo]:
    """All workers, in order of their start."""
    found = await db.fetch(
        "SELECT w.id, w.host, w.pid, w.agents, w.capacity, count(r.id) AS running, w.started,"
        f" {NOW} - w.heartbeat AS age, w.lease, w.draining, w.versions FROM quiesce_fleet_workers w"
        " LEFT JOIN quiesce_fleet_runs r ON r.worker = w.id AND r.state = 'running' GROUP BY w.id ORDER BY w.started"
    )
    return msgspec.convert([dict(row) for row in found], list[WorkerInfo])
