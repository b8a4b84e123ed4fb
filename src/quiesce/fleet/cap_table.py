"""The table of caps, in SQL: what all runs of a key, an agent or a day may use together.

The rows of the caps that apply are locked while runs are counted, so processes that start runs at the same time count
one after the other. A run reserves its share of the caps of the day when a worker takes it, and is limited to that;
when it ends, what it has used takes the place of the share. So the sum of all shares is never above the cap.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ..errors import CapReached
from ..receipt import Receipt
from ..usage.figure import Bounded
from .records import FleetRun
from .schema import NOW

EACH: Final = "*"
"""In place of an owner: each owner by itself."""
_SHARE: Final = 10
# The time that is left of the day, in seconds, and the day; days are those of UTC.
_DAY: Final = "(clock_timestamp() AT TIME ZONE 'UTC')::date"
_DAY_LEFT: Final = f"extract(epoch FROM ({_DAY} + 1) - (clock_timestamp() AT TIME ZONE 'UTC'))::float8"
# A run that is being taken has no start yet.
_STARTED_TODAY: Final = f"(to_timestamp(coalesce(started, {NOW})) AT TIME ZONE 'UTC')::date = {_DAY}"


class Cap(Struct, frozen=True):
    """What runs may use together. None switches a part off.

    owner        whose runs count: an owner; `*` for each owner by itself; empty for all owners together
    agent        the agent whose runs count; empty for all agents together
    runs         runs that are queued or running at once
    tokens       tokens of one day (UTC), in and out
    cost         money of one day (UTC)
    run_tokens   what a run reserves whose agent has no limit of its own; without, a tenth of `tokens`
    run_cost     the same for `cost`
    """

    owner: str = ""
    agent: str = ""
    runs: int | None = None
    tokens: int | None = None
    cost: Decimal | None = None
    run_tokens: int | None = None
    run_cost: Decimal | None = None

    @property
    def scope(self) -> str:
        """Whose runs count, in words."""
        whose = (
            "all keys together" if not self.owner else "each key" if self.owner == EACH else f"the key {self.owner!r}"
        )
        return f"{whose}, agent {self.agent!r}" if self.agent else whose


_ALL: Final = ", ".join(Cap.__struct_fields__)


class CapUse(NamedTuple):
    """What is used of a cap: runs that are active, and what was spent and is reserved today."""

    runs: int
    tokens: int
    cost: Decimal
    reserved_tokens: int
    reserved_cost: Decimal
    day_left: float


class Share(NamedTuple):
    """What a run may use of the caps of the day. None where there is none."""

    tokens: int | None = None
    cost: Decimal | None = None


async def lock(db: Any, owners: Iterable[str]) -> bool:
    """Lock the caps of these owners, and those of all, until the transaction has ended. Whether there are any.

    One statement for all runs of a transaction, in the order of the rows: one after the other would be a deadlock with
    a transaction that has the same runs in another order.
    """
    text = "SELECT 1 FROM quiesce_fleet_caps WHERE owner = ANY($1) ORDER BY owner, agent FOR UPDATE"
    return bool(await db.fetch(text, list({"", EACH, *owners})))


async def applying(db: Any, owner: str, agent: str) -> list[Cap]:
    """The caps that a run counts for. Where one names the owner, that for each owner does not apply."""
    text = f"SELECT {_ALL} FROM quiesce_fleet_caps WHERE owner IN ('', '{EACH}', $1) AND agent IN ('', $2)"
    found = await db.fetch(f"{text} ORDER BY owner, agent", owner, agent)
    caps = [Cap(*row) for row in found]
    named = {cap.agent for cap in caps if cap.owner not in ("", EACH)}
    return [cap for cap in caps if cap.owner != EACH or cap.agent not in named]


async def use(db: Any, cap: Cap, owner: str) -> CapUse:
    """What is used of a cap, by this owner where it is for each."""
    whose, agent = cap.owner and owner, cap.agent
    row = await db.fetchrow(
        "SELECT a.*, u.*,"
        f" {_DAY_LEFT} AS day_left FROM (SELECT count(*) AS runs,"
        f" coalesce(sum(reserved_tokens) FILTER (WHERE {_STARTED_TODAY}), 0)::bigint AS reserved_tokens,"
        f" coalesce(sum(reserved_cost) FILTER (WHERE {_STARTED_TODAY}), 0) AS reserved_cost FROM quiesce_fleet_runs"
        " WHERE state IN ('queued', 'running') AND ($1 = '' OR owner = $1) AND ($2 = '' OR agent = $2)) a,"
        " (SELECT coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(cost), 0) AS cost FROM quiesce_fleet_usage"
        f" WHERE day = {_DAY} AND ($1 = '' OR owner = $1) AND ($2 = '' OR agent = $2)) u",
        whose, agent,
    )  # fmt: skip
    return CapUse(*(row[name] for name in CapUse._fields))


async def check(db: Any, owner: str, agent: str, most_runs: int | None = None) -> None:
    """Raise `CapReached` when a run may not be queued. Others that ask wait until this transaction has ended.

    `most_runs` is a cap for each owner that the caller brings.
    """
    caps = await applying(db, owner, agent) if await lock(db, (owner,)) else []
    if most_runs is not None:
        await db.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 19))", owner)
        caps.append(Cap(EACH, runs=most_runs))
    for cap in caps:
        used = await use(db, cap, owner)
        if cap.runs is not None and used.runs >= cap.runs:
            what = f"{used.runs} runs are active, and the cap of {cap.scope} is {cap.runs}."
            raise CapReached(what, counts="runs", retry_after=1.0)
        spent = _spent(cap, used)
        if spent is not None:
            raise spent


def _spent(cap: Cap, used: CapUse) -> CapReached | None:
    """The error when a daily cap is used up until the next day; None while something is left."""
    hours = f"in {used.day_left / 3600:.1f} h, at 00:00 UTC"
    for name, most, amount in (("tokens", cap.tokens, used.tokens), ("cost", cap.cost, used.cost)):
        if most is not None and amount >= most:
            unit = " tokens" if name == "tokens" else " of money"
            what = (
                f"The cap of {cap.scope} is {most:,}{unit} a day, and {amount:,} are used. The next day begins {hours}."
            )
            return CapReached(what, counts=name, retry_after=used.day_left)
    return None


async def reserve(db: Any, run: FleetRun, wanted: Share) -> Share | CapReached | None:
    """Reserve the share of a queued run, at most what its agent allows it. The caps are locked.

    None when all that is left is reserved by runs that have not ended: it may be tried again. A `CapReached` when
    nothing is left today.
    """
    tokens, cost = list[int](), list[Decimal]()
    for cap in await applying(db, run.owner, run.agent):
        used = await use(db, cap, run.owner)
        spent = _spent(cap, used)
        if spent is not None:
            return spent
        if cap.tokens is not None:
            most = wanted.tokens or cap.run_tokens or max(1, cap.tokens // _SHARE)
            tokens.append(min(most, cap.tokens - used.tokens - used.reserved_tokens))
        if cap.cost is not None:
            most_money = wanted.cost or cap.run_cost or cap.cost / _SHARE
            cost.append(min(most_money, cap.cost - used.cost - used.reserved_cost))
    if any(left <= 0 for left in (*tokens, *cost)):
        return None
    share = Share(min(tokens, default=None), min(cost, default=None))
    if tokens or cost:
        await db.execute(
            "UPDATE quiesce_fleet_runs SET reserved_tokens = $2, reserved_cost = $3 WHERE id = $1",
            run.id, share.tokens, share.cost,
        )  # fmt: skip
    return share


async def settle(db: Any, run: FleetRun, receipt: Receipt) -> None:
    """Put what a run has used in the place of what it had reserved, on the day on which it was started."""
    tokens = sum(_counted(each, 0) for each in (receipt.usage.input, receipt.usage.output))
    if any(each.value is None and each.high is None for each in (receipt.usage.input, receipt.usage.output)):
        tokens = max(tokens, run.reserved_tokens or 0)
    nothing = Decimal(0)
    cost = nothing if receipt.usage.cost is None else _counted(receipt.usage.cost, run.reserved_cost or nothing)
    await db.execute(
        "INSERT INTO quiesce_fleet_usage AS u (day, owner, agent, runs, tokens, cost)"
        f" VALUES ((to_timestamp(coalesce($1::float8, {NOW})) AT TIME ZONE 'UTC')::date, $2, $3, 1, $4, $5)"
        " ON CONFLICT (day, owner, agent) DO UPDATE SET runs = u.runs + 1, tokens = u.tokens + excluded.tokens,"
        " cost = u.cost + excluded.cost",
        run.started, run.owner, run.agent, tokens, cost,
    )  # fmt: skip


def _counted(figure: Any, unknown: Any) -> Any:
    """What a figure counts for: the best guess, else the most that it can be, else a given amount."""
    bounded: Bounded[Any] = figure
    for known in (bounded.value, bounded.high):
        if known is not None:
            return known
    return max(bounded.low, unknown)


async def put(db: Any, cap: Cap) -> None:
    """Set a cap, in place of the one for the same owner and agent."""
    names = Cap.__struct_fields__
    await db.execute(
        f"INSERT INTO quiesce_fleet_caps ({_ALL}) VALUES ({', '.join(f'${n + 1}' for n in range(len(names)))})"
        f" ON CONFLICT (owner, agent) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names[2:])}",
        *(getattr(cap, name) for name in names),
    )


async def delete(db: Any, owner: str, agent: str) -> bool:
    """Remove a cap. False when there is none."""
    text = "DELETE FROM quiesce_fleet_caps WHERE owner = $1 AND agent = $2 RETURNING 1"
    return bool(await db.fetchval(text, owner, agent))


async def select(db: Any) -> list[Cap]:
    """All caps."""
    return [Cap(*row) for row in await db.fetch(f"SELECT {_ALL} FROM quiesce_fleet_caps ORDER BY owner, agent")]
