"""The table of freezes, in SQL. While an agent is frozen, no run of it starts.

A transaction that queues or takes a run holds a shared lock from its beginning, and a freeze holds the same lock alone.
So a run is either committed before the freeze, which then stops it, or is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from ..cancellation import Mode
from ..errors import AgentFrozen
from .records import StopBody
from .schema import NOW

# The number of the lock. Any number that no other program uses will do.
_LOCK: Final = 7_164_200_528


class Freeze(Struct, frozen=True):
    """A freeze, as it is on record.

    agent       the agent whose runs may not start; empty for all agents
    frozen_by   who froze it, as that person or program has said
    released    when it ended, as a Unix time; None while it holds
    """

    id: int
    agent: str
    reason: str
    frozen_by: str
    created: float
    released: float | None = None
    released_by: str = ""
    release_reason: str = ""

    @property
    def words(self) -> str:
        """Who froze what, and why."""
        what = f"The agent {self.agent!r} is" if self.agent else "All agents are"
        why = f": {self.reason}" if self.reason else ""
        return f"{what} frozen by {self.frozen_by}{why}."


_ALL: Final = ", ".join(Freeze.__struct_fields__)


async def hold(db: Any) -> None:
    """Lock out new freezes until this transaction ends. Call it before the transaction takes any other lock."""
    await db.execute("SELECT pg_advisory_xact_lock_shared($1)", _LOCK)


async def find(db: Any, agent: str) -> Freeze | None:
    """The freeze that keeps runs of this agent from starting."""
    text = f"SELECT {_ALL} FROM quiesce_fleet_freezes WHERE released IS NULL AND agent IN ($1, '') ORDER BY id LIMIT 1"
    row = await db.fetchrow(text, agent)
    return None if row is None else Freeze(*row)


async def frozen_runs(db: Any, run_ids: Sequence[str]) -> list[tuple[str, Freeze]]:
    """Those of these runs that are in the queue although their agent is frozen."""
    columns = ", ".join(f"f.{name}" for name in Freeze.__struct_fields__)
    found = await db.fetch(
        f"SELECT r.id AS run, {columns} FROM quiesce_fleet_runs r JOIN quiesce_fleet_freezes f"
        " ON f.released IS NULL AND f.agent IN (r.agent, '') WHERE r.id = ANY($1) AND r.state = 'queued'",
        list(run_ids),
    )  # fmt: skip
    return [(run_id, Freeze(*rest)) for run_id, *rest in found]


async def check(db: Any, agent: str) -> None:
    """Raise `AgentFrozen` when runs of this agent may not start."""
    freeze = await find(db, agent)
    if freeze is not None:
        raise AgentFrozen(freeze.words)


def stop_of(freeze: Freeze, mode: Mode = Mode.NOW) -> StopBody:
    """The stop for runs of a frozen agent."""
    return StopBody(freeze.words.rstrip("."), mode)


async def insert(db: Any, agent: str, by: str, reason: str) -> Freeze:
    """Freeze an agent; gives the freeze, or the one that holds already. Waits until no transaction holds the lock."""
    await db.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    await db.execute(
        "INSERT INTO quiesce_fleet_freezes (agent, reason, frozen_by, created)"
        f" VALUES ($1, $2, $3, {NOW}) ON CONFLICT (agent) WHERE released IS NULL DO NOTHING",
        agent, reason, by,
    )  # fmt: skip
    text = f"SELECT {_ALL} FROM quiesce_fleet_freezes WHERE released IS NULL AND agent = $1"
    return Freeze(*await db.fetchrow(text, agent))


async def release(db: Any, agent: str, by: str, reason: str) -> Freeze | None:
    """Record that a freeze is released; None when there is none."""
    row = await db.fetchrow(
        f"UPDATE quiesce_fleet_freezes SET released = {NOW}, released_by = $2, release_reason = $3"
        f" WHERE agent = $1 AND released IS NULL RETURNING {_ALL}",
        agent, by, reason,
    )  # fmt: skip
    return None if row is None else Freeze(*row)


async def select(db: Any, *, active_only: bool, limit: int) -> list[Freeze]:
    """The freezes on record: those that hold first, then the newest."""
    found = await db.fetch(
        f"SELECT {_ALL} FROM quiesce_fleet_freezes WHERE released IS NULL OR NOT $1"
        " ORDER BY released IS NOT NULL, id DESC LIMIT $2",
        active_only, limit,
    )  # fmt: skip
    return [Freeze(*row) for row in found]
