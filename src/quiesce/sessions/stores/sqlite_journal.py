"""The journals of the runs of a session, and what they made of its conversation, in SQLite.

Each function is called inside a transaction; who may write is settled before.
"""

from __future__ import annotations

import sqlite3

from ..journal.rows import A_MARK, LATE_ROWS, Row
from ..records import WriteBatch


def is_written(db: sqlite3.Connection, session_id: str, batch: WriteBatch) -> bool:
    """Whether a batch is there already. There may be others after it by now, which it must not undo."""
    run = (session_id, batch.run_id)
    if batch.rows():
        found = db.execute("SELECT 1 FROM journal WHERE session = ? AND run = ? AND seq = ?", (*run, batch.first_row))
    else:  # one that only says how a run ended is there when that run has ended
        found = db.execute("SELECT 1 FROM runs WHERE session = ? AND run = ? AND status <> 'running'", run)
    return (bool(batch.rows()) or batch.end is not None) and found.fetchone() is not None


def write_batch(db: sqlite3.Connection, session_id: str, batch: WriteBatch) -> None:
    """Write what a run brings."""
    run = (session_id, batch.run_id)
    if batch.begin is not None:
        db.execute(
            "INSERT OR IGNORE INTO runs (session, run, agent, started) VALUES (?, ?, ?, ?)",
            (*run, batch.begin.agent, batch.begin.started),
        )
    rows = batch.rows()
    if rows:
        db.executemany(
            "INSERT INTO journal (session, run, seq, payload, number, lengths) VALUES (?, ?, ?, ?, ?, ?)",
            [(*run, batch.first_row + n, *row) for n, row in enumerate(rows)],
        )
    if batch.rewrites:
        _write_messages(db, session_id, batch)
    for key, value in batch.values.items():
        db.execute(
            "INSERT OR REPLACE INTO session_values (session, key, value) VALUES (?, ?, ?)", (session_id, key, value)
        )
    if batch.end is not None:
        end = batch.end
        db.execute(
            "UPDATE runs SET status = ?, reason = ?, ended = ?, detail = ? WHERE session = ? AND run = ?",
            (end.status, end.reason, end.ended, end.detail, *run),
        )


def _write_messages(db: sqlite3.Connection, session_id: str, batch: WriteBatch) -> None:
    """From the batch's first message on, the conversation is what it brings and nothing else."""
    first = batch.first_message
    db.execute("DELETE FROM messages WHERE session = ? AND position >= ?", (session_id, first))
    db.executemany(
        "INSERT INTO messages (session, position, run, payload) VALUES (?, ?, ?, ?)",
        [(session_id, first + n, batch.run_id, payload) for n, payload in enumerate(batch.payloads())],
    )


def add_late(db: sqlite3.Connection, session_id: str, run_id: str, payload: bytes) -> bool:
    """Add a row after a run's end, unless it is there. False when the run is not."""
    run = (session_id, run_id)
    if db.execute("SELECT 1 FROM runs WHERE session = ? AND run = ?", run).fetchone() is None:
        return False
    db.execute(
        "INSERT INTO journal (session, run, seq, payload, number)"
        " SELECT ?, ?, max(coalesce(max(seq), 0), ?) + 1, ?, ? FROM journal WHERE session = ? AND run = ?"
        " HAVING coalesce(sum(payload = ?), 0) = 0",
        (*run, LATE_ROWS, payload, A_MARK, *run, payload),
    )
    return True


def payloads_of(db: sqlite3.Connection, session_id: str, run_id: str) -> list[bytes]:
    """The whole journal of a run, in order."""
    found = db.execute("SELECT payload FROM journal WHERE session = ? AND run = ? ORDER BY seq", (session_id, run_id))
    return [row[0] for row in found]


def rows_after(
    db: sqlite3.Connection, session_id: str, run_id: str, after: int, most: int | None, *, marks: bool
) -> list[Row]:
    """The rows of a run's journal from the one on that holds event `after + 1`; see `Store.rows`."""
    run = (session_id, run_id)
    first = db.execute(
        "SELECT seq FROM journal WHERE session = ? AND run = ? AND number BETWEEN 1 AND ? ORDER BY seq DESC LIMIT 1",
        (*run, after + 1),
    ).fetchone()
    found = db.execute(
        "SELECT payload, number, lengths FROM journal WHERE session = ? AND run = ? AND seq >= ?"
        " AND (? OR number IS NOT ?) ORDER BY seq LIMIT ?",
        (*run, 0 if first is None or not after else first[0], marks, A_MARK, -1 if most is None else most + 1),
    )
    return [Row(*row) for row in found]
