"""Versions of agents: a run goes on with the agent that it was started with, or ends with an error.

A run that goes on after a drain or a loss waits in the queue of its agent's version, and only workers with that version
take it. When there is none any more, a worker with another version ends it, or takes it if it is told to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..agent import AnyAgent
from ..cancellation import Cause
from ..tools.approval import fingerprint
from .engine import Engine
from .records import FleetRun, fleet_run
from .run_table import ALL, end_unbegun, insert_job, unbegun_receipt
from .schema import NOW

# Seconds that a run waits for a worker with its version: one that is restarted comes back in that time.
PATIENCE: Final = 60.0


def agent_version(agent: AnyAgent) -> str:
    """What tells one definition of an agent from another: the model's name, the instructions, and the tools.

    For instructions that are functions, the name counts; for tools, the name, description, schema and defaults.
    """
    config = agent.config
    texts = [
        each if isinstance(each, str) else getattr(each, "__qualname__", repr(type(each)))
        for each in config.instructions
    ]
    definition = [config.model.name, texts, sorted(fingerprint(tool) for tool in config.tools.values())]
    return hashlib.sha256(msgspec.json.encode(definition)).hexdigest()[:12]


async def resettle(db: Any, engine: Engine, versions: Mapping[str, str], *, accept_changed: bool) -> list[str]:
    """End the queued runs of these agents whose version no worker has any more; gives their ids.

    With `accept_changed` they go into the queue of the agent instead, for any of its versions.
    """
    found = await db.fetch(
        f"SELECT {ALL} FROM quiesce_fleet_runs r WHERE state = 'queued' AND version <> '' AND agent = ANY($1)"
        f" AND created < {NOW} - $2 AND NOT EXISTS (SELECT 1 FROM quiesce_fleet_workers w"
        f" WHERE r.agent || '@' || r.version = ANY(w.versions) AND NOT w.draining AND w.heartbeat > {NOW} - w.lease)"
        " ORDER BY id FOR UPDATE SKIP LOCKED",
        list(versions), PATIENCE,
    )  # fmt: skip
    runs = [fleet_run(row) for row in found]
    for run in runs:
        if accept_changed:
            await engine.finish(db, [run.job])
            job = await insert_job(db, engine, run.agent, "", run.id, follows=True)
            await db.execute("UPDATE quiesce_fleet_runs SET version = '', job = $2 WHERE id = $1", run.id, job)
        else:
            await _end(db, engine, run, versions[run.agent])
    return [run.id for run in runs]


async def _end(db: Any, engine: Engine, run: FleetRun, version: str) -> None:
    what = (
        f"The agent {run.agent!r} has changed since the run began (version {run.version}, now {version}), and no worker"
        " has the earlier version. The conversation is complete up to here: send a prompt to go on with the new agent"
    )
    receipt = unbegun_receipt(run.id, Cause("shutdown", what), "error")
    await end_unbegun(db, engine, run, receipt)
