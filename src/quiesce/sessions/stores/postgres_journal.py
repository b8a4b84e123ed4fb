"""The journals of the runs of a session, and what they made of its conversation, in Postgres.

Each function is called inside a transaction; who may write is settled before.
"""

from __future__ import annotations

from typing import Any

from ..journal.rows import A_MARK, LATE_ROWS, Row
from ..records import WriteBatch


async def is_written(db: Any, session_id: str, batch: WriteBatch) -> bool:
    """Whether a batch is there already. There may be others after it by now, which it must not undo."""
    run = (session_id, batch.run_id)
    if batch.rows():
        query = "SELECT EXISTS (SELECT FROM quiesce_journal WHERE session = $1 AND run = $2 AND seq = $3)"
        return await db.fetchval(query, *run, batch.first_row)
    # One that only says how a run ended is there when that run has ended.
    query = "SELECT EXISTS (SELECT FROM quiesce_runs WHERE session = $1 AND run = $2 AND status <> 'running')"
    return batch.end is not None and await db.fetchval(query, *run)


async def write_batch(db: Any, session_id: str, batch: WriteBatch) -> None:
    """Write what a run brings."""
    run = (session_id, batch.run_id)
    if batch.begin is not None:
        await db.execute(
            "INSERT INTO quiesce_runs (session, run, agent, started) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            *(*run, batch.begin.agent, batch.begin.started),
        )
    rows = batch.rows()
    if rows:
        await db.executemany(
            "INSERT INTO quiesce_journal (session, run, seq, payload, number, lengths) VALUES ($1, $2, $3, $4, $5, $6)",
            [(*run, batch.first_row + n, *row) for n, row in enumerate(rows)],
        )
    if batch.rewrites:
        await _write_messages(db, session_id, batch)
    for key, value in batch.values.items():
        await db.execute(
            "INSERT INTO quiesce_session_values (session, key, value) VALUES ($1, $2, $3)"
            " ON CONFLICT (session, key) DO UPDATE SET value = excluded.value",
            *(session_id, key, value),
        )
    if batch.end is not None:
        end = batch.end
        await db.execute(
            "UPDATE quiesce_runs SET status = $3, reason = $4, ended = $5, detail = $6 WHERE session = $1 AND run = $2",
            *(*run, end.status, end.reason, end.ended, end.detail),
        )


async def _write_messages(db: Any, session_id: str, batch: WriteBatch) -> None:
    """From the batch's first message on, the conversation is what it brings and nothing else."""
    first = batch.first_message
    await db.execute("DELETE FROM quiesce_messages WHERE session = $1 AND position >= $2", session_id, first)
    await db.executemany(
        "INSERT INTO quiesce_messages (session, position, run, payload) VALUES ($1, $2, $3, $4)",
        [(session_id, first + n, batch.run_id, payload) for n, payload in enumerate(batch.payloads())],
    )


async def add_late(db: Any, session_id: str, run_id: str, payload: bytes) -> bool:
    """Add a row after a run's end, unless it is there. False when the run is not."""
    run = (session_id, run_id)
    # Locked, or two of them would be given the same number.
    found = await db.fetchval("SELECT 1 FROM quiesce_runs WHERE session = $1 AND run = $2 FOR UPDATE", *run)
    if found is None:
        return False
    await db.execute(
        "INSERT INTO quiesce_journal (session, run, seq, payload, number)"
        " SELECT $1, $2, greatest(max(seq), $5) + 1, $3, $4 FROM quiesce_journal"
        " WHERE session = $1 AND run = $2 HAVING count(*) FILTER (WHERE payload = $3) = 0",
        *(*run, payload, A_MARK, LATE_ROWS),
    )
    return True


async def payloads_of(db: Any, session_id: str, run_id: str) -> list[bytes]:
    """The whole journal of a run, in order."""
    found = await db.fetch(
        "SELECT payload FROM quiesce_journal WHERE session = $1 AND run = $2 ORDER BY seq", session_id, run_id
    )
    return [row["payload"] for row in found]


async def rows_after(db: Any, session_id: str, run_id: str, after: int, most: int | None, *, marks: bool) -> list[Row]:
    """The rows of a run's journal from the one on that holds event `after + 1`; see `Store.rows`."""
    run = (session_id, run_id)
    first = await db.fetchval(
        "SELECT seq FROM quiesce_journal WHERE session = $1 AND run = $2 AND number BETWEEN 1 AND $3"
        " ORDER BY seq DESC LIMIT 1",
        *(*run, after + 1),
    )
    found = await db.fetch(
        "SELECT payload, number, lengths FROM quiesce_journal WHERE session = $1 AND run = $2 AND seq >= $3"
        " AND ($4::boolean OR number IS DISTINCT FROM $5) ORDER BY seq LIMIT $6",
        *(*run, first or 0 if after else 0, marks, A_MARK, None if most is None else most + 1),
    )
    return [Row(*row) for row in found]
