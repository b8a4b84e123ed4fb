"""Taking runs from the queue: those that may start now, by the freezes and the caps of the fleet."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..cancellation import Cause
from ..errors import CapReached
from . import cap_table, freeze_table, run_table, webhook_table
from .cap_table import Share
from .engine import Engine
from .records import FleetRun, fleet_run
from .run_table import ALL, notify_changed, queue_name, unbegun_receipt
from .schema import NOW


class ServedAgent(NamedTuple):
    """An agent of a worker: its version, and what a run of it may use at most."""

    version: str = ""
    share: Share = Share()


class RowLocked(Exception):
    """A run that could be taken is locked by another transaction, for a moment."""


async def take(
    db: Any, engine: Engine, agents: Mapping[str, ServedAgent], most: int, worker: uuid.UUID, *, lease: float
) -> list[FleetRun]:
    """Take runs from the queue, and those whose worker does not renew them. The jobs of ended runs are deleted.

    A run stays in the queue while other runs have reserved all that is left of its cap; its job can be taken again
    after `lease` seconds. Raises `RowLocked` when a run is being stopped or ended.
    """
    await freeze_table.hold(db)
    queues = [queue_name(name, version) for name, served in agents.items() for version in ("", served.version)]
    jobs = {job.run_id: job for job in await engine.take(db, queues, most, worker, lease)}
    if not jobs:
        return []
    await _lock(db, list(jobs))
    for waiting in await _held_back(db, engine, list(jobs), agents):
        del jobs[waiting]
    taken = await db.fetch(
        f"UPDATE quiesce_fleet_runs SET state = 'running', worker = $1, attempt = attempt + 1,"
        f" started = coalesce(started, {NOW}), version = coalesce(nullif(version, ''), $3::json ->> agent)"
        f" WHERE id = ANY($2) AND state IN ('queued', 'running') RETURNING {ALL}",
        worker.hex, list(jobs), json.dumps({name: served.version for name, served in agents.items()}),
    )  # fmt: skip
    runs = [fleet_run(row) for row in taken]
    left = [job.id for run_id, job in jobs.items() if run_id not in {run.id for run in runs}]
    if left:
        await engine.finish(db, left)
    if runs:
        await notify_changed(db, *(run.id for run in runs))
    return runs


async def _lock(db: Any, run_ids: Sequence[str]) -> None:
    """Lock the rows of runs that may be taken. Raises `RowLocked` instead of waiting.

    A stop locks the run's row first and its job after it, so that waiting for the row here, with the job locked, would
    be a deadlock.
    """
    text = "SELECT id FROM quiesce_fleet_runs WHERE id = ANY($1) AND state IN ('queued', 'running')"
    locked = await db.fetch(f"{text} FOR UPDATE SKIP LOCKED", run_ids)
    if len(locked) < len(await db.fetch(text, run_ids)):
        raise RowLocked


async def _held_back(db: Any, engine: Engine, run_ids: Sequence[str], agents: Mapping[str, ServedAgent]) -> list[str]:
    """Those of these runs that wait for a share of a cap. Runs that may not start at all are ended."""
    for run_id, freeze in await freeze_table.frozen_runs(db, run_ids):  # queued by a replica of an older version
        ended = await run_table.stop_queued(db, engine, [run_id], freeze_table.stop_of(freeze))
        await webhook_table.record(db, ended)
    text = f"SELECT {ALL} FROM quiesce_fleet_runs WHERE id = ANY($1) AND state = 'queued' ORDER BY created, id"
    queued = [fleet_run(row) for row in await db.fetch(text, list(run_ids))]
    waiting: list[str] = []
    for run in queued if await cap_table.lock(db, (run.owner for run in queued)) else ():
        match await cap_table.reserve(db, run, agents[run.agent].share):
            case None:
                waiting.append(run.id)
            case CapReached() as reached:
                await _refuse(db, engine, run, reached)
            case _:
                pass
    return waiting


async def _refuse(db: Any, engine: Engine, run: FleetRun, reached: CapReached) -> None:
    """End a queued run whose cap is used up."""
    receipt = unbegun_receipt(run.id, Cause("budget", reached.what), "limit")
    await run_table.end_unbegun(db, engine, run, receipt)
