"""The tables of webhooks and of what is to be delivered to them, in SQL.

A delivery is written in the transaction that changes the run, so none is lost and none is made up. A process that sends
one postpones it first; when that process dies, the delivery is due again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec
from msgspec import Struct

from .records import FleetRun
from .schema import NOW

WebhookEvent: TypeAlias = Literal["run.waiting", "run.ended", "run.lost"]
EVENTS: Final[tuple[WebhookEvent, ...]] = get_args(WebhookEvent)
# The channel on which new deliveries are notified.
CHANNEL: Final = "quiesce_fleet_webhooks"
# Seconds for which a delivery belongs to the process that sends it. More than a sending may take.
CLAIM: Final = 60.0
# Seconds after which a delivery that was made or given up is deleted.
_KEPT: Final = 7 * 86_400


class Webhook(Struct, frozen=True):
    """An address that is told of runs.

    secret    signs what is sent, by the scheme of Standard Webhooks; `whsec_` and base64
    events    `run.waiting`: a run waits for a person; `run.ended`; `run.lost`: the run of a lost worker was sealed
    owner     only runs of this owner; empty for all
    agent     only runs of this agent; empty for all
    private   whether the host may have an address that is not public
    disabled  when the receiver answered that it is gone; None while it is in use
    """

    id: str
    url: str
    secret: str
    events: tuple[WebhookEvent, ...] = EVENTS
    owner: str = ""
    agent: str = ""
    private: bool = False
    created: float = 0.0
    disabled: float | None = None


_ALL: Final = ", ".join(Webhook.__struct_fields__)


class Delivery(NamedTuple):
    """A delivery that this process is to send; `attempts` includes this one."""

    id: str
    webhook: str
    url: str
    secret: str
    private: bool
    body: bytes
    attempts: int


class DeliveryCounts(NamedTuple):
    """What became of the deliveries of a webhook in the last days, and the last answer that was no success."""

    delivered: int
    waiting: int
    failed: int
    last_failure: str


async def put(db: Any, webhook: Webhook) -> None:
    """Add a webhook."""
    await db.execute(
        "INSERT INTO quiesce_fleet_webhooks (id, url, secret, events, owner, agent, private, created)"
        f" VALUES ($1, $2, $3, $4, $5, $6, $7, {NOW})",
        webhook.id, webhook.url, webhook.secret, list(webhook.events), webhook.owner, webhook.agent, webhook.private,
    )  # fmt: skip


async def delete(db: Any, webhook: str) -> bool:
    """Remove a webhook and what was to be delivered to it. False when there is none."""
    await db.execute("DELETE FROM quiesce_fleet_deliveries WHERE webhook = $1", webhook)
    return bool(await db.fetchval("DELETE FROM quiesce_fleet_webhooks WHERE id = $1 RETURNING 1", webhook))


async def select(db: Any) -> list[tuple[Webhook, DeliveryCounts]]:
    """All webhooks, in order of their making."""
    found = await db.fetch(f"SELECT {_ALL} FROM quiesce_fleet_webhooks ORDER BY created, id")
    hooks = msgspec.convert([dict(row) for row in found], list[Webhook])
    counted = await db.fetch(
        "SELECT webhook, count(delivered), count(*) FILTER (WHERE delivered IS NULL AND failed IS NULL), count(failed),"
        " coalesce((array_agg(answer ORDER BY created DESC) FILTER (WHERE answer <> ''))[1], '')"
        " FROM quiesce_fleet_deliveries GROUP BY webhook"
    )
    counts = {row[0]: DeliveryCounts(*row[1:]) for row in counted}
    return [(hook, counts.get(hook.id, DeliveryCounts(0, 0, 0, ""))) for hook in hooks]


# --- Deliveries -----------------------------------------------------------------------------------------------------


def event_of(run: FleetRun) -> WebhookEvent:
    """What a run at rest is reported as."""
    return "run.lost" if run.state == "crashed" else "run.waiting" if run.reason == "interrupt" else "run.ended"


def payload(run: FleetRun) -> bytes:
    """What is sent about a run: no text of its conversation, which `GET /runs/{id}` has."""
    receipt, at = run.receipt, datetime.fromtimestamp(run.ended or run.created, UTC)
    data = {
        "id": run.id,
        "owner": run.owner,
        "agent": run.agent,
        "session": run.label,
        "state": run.state,
        "stop_reason": run.reason,
        "cause": None if receipt is None or receipt.cause is None else msgspec.to_builtins(receipt.cause),
        "created_at": run.created,
        "ended_at": run.ended,
        "continued_from": run.continued_from,
        "restarted_as": run.restarted_as,
    }
    body = {"type": event_of(run), "timestamp": at.isoformat().replace("+00:00", "Z"), "data": data}
    return msgspec.json.encode(body)


async def record(db: Any, runs: Iterable[FleetRun]) -> None:
    """Write down what is to be delivered about runs that are at rest from this transaction on."""
    added, ended = 0, list(runs)
    is_used = bool(ended) and await db.fetchval("SELECT EXISTS (SELECT 1 FROM quiesce_fleet_webhooks)")
    for run in ended if is_used else ():
        added += await db.fetchval(
            "WITH added AS (INSERT INTO quiesce_fleet_deliveries (id, webhook, run, event, body, created, due)"
            f" SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), id, $1, $2, $3, {NOW}, {NOW}"
            " FROM quiesce_fleet_webhooks WHERE disabled IS NULL AND $2 = ANY(events)"
            " AND owner IN ('', $4) AND agent IN ('', $5) RETURNING 1) SELECT count(*) FROM added",
            run.id, event_of(run), payload(run), run.owner, run.agent,
        )  # fmt: skip
    if added:
        await db.execute("SELECT pg_notify($1, '')", CHANNEL)


async def claim(db: Any, most: int) -> list[Delivery]:
    """Deliveries that are due. They are this process's for a while, and due again after that."""
    found = await db.fetch(
        f"UPDATE quiesce_fleet_deliveries d SET due = {NOW} + $2, attempts = attempts + 1"
        " FROM quiesce_fleet_webhooks w WHERE w.id = d.webhook AND d.id IN (SELECT id FROM quiesce_fleet_deliveries"
        f" WHERE delivered IS NULL AND failed IS NULL AND due <= {NOW} ORDER BY due LIMIT $1 FOR UPDATE SKIP LOCKED)"
        " RETURNING d.id, w.id, w.url, w.secret, w.private, d.body, d.attempts",
        most, CLAIM,
    )  # fmt: skip
    return [Delivery(*row) for row in found]


async def next_due(db: Any) -> float | None:
    """Seconds until the next delivery is due; None when there is none."""
    text = f"SELECT min(due) - {NOW} FROM quiesce_fleet_deliveries WHERE delivered IS NULL AND failed IS NULL"
    return await db.fetchval(text)


async def mark(db: Any, delivery: Delivery, answer: str, retry_in: float | None) -> None:
    """Record how a sending went: an empty answer is a success; without another try it is given up."""
    await db.execute(
        f"UPDATE quiesce_fleet_deliveries SET answer = $2, delivered = CASE WHEN $2 = '' THEN {NOW} END,"
        f" failed = CASE WHEN $2 <> '' AND $3::float8 IS NULL THEN {NOW} END, due = {NOW} + coalesce($3, 0)"
        " WHERE id = $1 AND delivered IS NULL",
        delivery.id, answer, retry_in,
    )  # fmt: skip


async def disable(db: Any, webhook: str, answer: str) -> None:
    """Send nothing more to a webhook whose receiver is gone."""
    await db.execute(f"UPDATE quiesce_fleet_webhooks SET disabled = {NOW} WHERE id = $1", webhook)
    await db.execute(
        f"UPDATE quiesce_fleet_deliveries SET failed = {NOW}, answer = $2"
        " WHERE webhook = $1 AND delivered IS NULL AND failed IS NULL",
        webhook, answer,
    )  # fmt: skip


async def tidy(db: Any) -> None:
    """Delete old deliveries that are over."""
    text = f"DELETE FROM quiesce_fleet_deliveries WHERE coalesce(delivered, failed) < {NOW} - $1"
    await db.execute(text, float(_KEPT))


def checked_events(events: Sequence[str]) -> tuple[WebhookEvent, ...]:
    """The events of a webhook; all without any. Raises `ValueError` for one that does not exist."""
    unknown = [each for each in events if each not in EVENTS]
    if unknown:
        raise ValueError(f"There is no event {unknown[0]!r}. Use: {', '.join(EVENTS)}.")
    return tuple(each for each in EVENTS if each in events) or EVENTS
