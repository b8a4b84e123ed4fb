"""The journals of a session's runs, and its conversation, in SQL. The lease is checked before these are called."""

from __future__ import annotations

from typing import Final

from ..journal.rows import A_MARK, LATE_ROWS, Row
from ..records import RunRecord, SessionInfo, Snapshot, WriteBatch, up_to_gap
from .dialect import Operation, Repeated, Statement

_NO_LIMIT: Final = 1 << 62


def is_written(session_id: str, batch: WriteBatch) -> Operation[bool]:
    """Whether a batch is stored already. To write it again would undo later ones."""
    run = (session_id, batch.run_id)
    if batch.rows():
        text = "SELECT 1 FROM {journal} WHERE session = $1 AND run = $2 AND seq = $3"
        return bool((yield Statement(text, (*run, batch.first_row))))
    if batch.end is None:
        return False
    # A batch that says only how a run ended is stored when that run has ended.
    text = "SELECT 1 FROM {runs} WHERE session = $1 AND run = $2 AND status <> 'running'"
    return bool((yield Statement(text, run)))


def write_batch(session_id: str, batch: WriteBatch) -> Operation[None]:
    """Write what a batch holds for the session's tables."""
    run = (session_id, batch.run_id)
    if batch.begin is not None:
        yield Statement(
            "INSERT INTO {runs} (session, run, agent, started) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            (*run, batch.begin.agent, batch.begin.started),
        )
    rows = batch.rows()
    if rows:
        yield Repeated(
            "INSERT INTO {journal} (session, run, seq, payload, number, lengths) VALUES ($1, $2, $3, $4, $5, $6)",
            [(*run, number, *row) for number, row in enumerate(rows, batch.first_row)],
        )
    if batch.rewrites:
        yield from _write_messages(session_id, batch)
    if batch.values:
        yield Repeated(
            "INSERT INTO {session_values} (session, key, value) VALUES ($1, $2, $3)"
            " ON CONFLICT (session, key) DO UPDATE SET value = excluded.value",
            [(session_id, key, value) for key, value in batch.values.items()],
        )
    end = batch.end
    if end is not None:
        yield Statement(
            "UPDATE {runs} SET status = $3, reason = $4, ended = $5, detail = $6 WHERE session = $1 AND run = $2",
            (*run, end.status, end.reason, end.ended, end.detail),
        )


def _write_messages(session_id: str, batch: WriteBatch) -> Operation[None]:
    """From the batch's first message on, the conversation is the batch's messages and nothing else."""
    first, payloads = batch.first_message, batch.payloads()
    yield Statement("UPDATE {sessions} SET length = $1 WHERE id = $2", (first + len(payloads), session_id))
    yield Statement("DELETE FROM {messages} WHERE session = $1 AND position >= $2", (session_id, first))
    yield Repeated(
        "INSERT INTO {messages} (session, position, run, payload) VALUES ($1, $2, $3, $4)",
        [(session_id, position, batch.run_id, payload) for position, payload in enumerate(payloads, first)],
    )


def add_late(session_id: str, run_id: str, payload: bytes) -> Operation[bool]:
    """See `SessionStore.add_late`. The run is locked, or two rows would be given the same number."""
    run = (session_id, run_id)
    if not (yield Statement("SELECT 1 FROM {runs} WHERE session = $1 AND run = $2{locked}", run)):
        return False
    yield Statement(
        "INSERT INTO {journal} (session, run, seq, payload, number)"
        " SELECT $1, $2, coalesce(max(seq) FILTER (WHERE seq > $5), $5) + 1, $3, $4 FROM {journal}"
        " WHERE session = $1 AND run = $2 HAVING count(*) FILTER (WHERE payload = $3) = 0",
        (*run, payload, A_MARK, LATE_ROWS),
    )
    return True


def payloads_of(session_id: str, run_id: str) -> Operation[list[bytes]]:
    """The whole journal of a run, in order."""
    text = "SELECT payload FROM {journal} WHERE session = $1 AND run = $2 ORDER BY seq"
    return [row[0] for row in (yield Statement(text, (session_id, run_id)))]


def rows_after(session_id: str, run_id: str, after: int, most: int | None, *, marks: bool) -> Operation[list[Row]]:
    """The rows of a run's journal from the one on that holds event `after + 1`; see `SessionStore.rows`."""
    run, first = (session_id, run_id), 0
    if after:
        found = yield Statement(
            "SELECT seq FROM {journal} WHERE session = $1 AND run = $2 AND number BETWEEN 1 AND $3"
            " ORDER BY seq DESC LIMIT 1",
            (*run, min(after + 1, _NO_LIMIT)),
        )
        first = found[0][0] if found else 0
    without_marks = "" if marks else f" AND coalesce(number, -1) <> {A_MARK}"
    found = yield Statement(
        "SELECT payload, number, lengths FROM {journal} WHERE session = $1 AND run = $2 AND seq >= $3"
        f"{without_marks} ORDER BY seq LIMIT $4",
        (*run, first, _NO_LIMIT if most is None else most + 1),
    )
    return [Row(*row) for row in found]


def runs_of(info: SessionInfo) -> Operation[list[RunRecord]]:
    """The runs of a session, in order."""
    found = yield Statement(
        "SELECT run, agent, started, status, reason, ended, detail FROM {runs} WHERE session = $1"
        " ORDER BY started, run",
        (info.id,),
    )
    return [RunRecord(*row) for row in found]


def find_run(run_id: str) -> Operation[list[str]]:
    """See `SessionStore.find_run`."""
    found = yield Statement(
        "SELECT name FROM {sessions} JOIN {runs} ON {sessions}.id = {runs}.session WHERE {runs}.run = $1", (run_id,)
    )
    return [row[0] for row in found]


def delete_run(session_id: str, run_id: str) -> Operation[None]:
    """See `SessionStore.delete_run`. The run goes first: its row says whether its journal may go."""
    run = (session_id, run_id)
    text = "DELETE FROM {runs} WHERE session = $1 AND run = $2 AND status <> 'running' RETURNING run"
    if (yield Statement(text, run)):
        yield Statement("DELETE FROM {journal} WHERE session = $1 AND run = $2", run)
        # A write of the run that lands late would bring it back: its lease is superseded.
        yield Statement("UPDATE {sessions} SET fence = fence + 1 WHERE id = $1 AND holder IS NULL", (session_id,))


def snapshot_of(info: SessionInfo) -> Operation[Snapshot]:
    """A session at this moment."""
    found = yield Statement("SELECT position, payload FROM {messages} WHERE session = $1 ORDER BY position", (info.id,))
    in_order, payloads = up_to_gap(found)
    running = yield Statement(
        "SELECT run FROM {runs} WHERE session = $1 AND status = 'running' ORDER BY started, run", (info.id,)
    )
    values = yield Statement("SELECT key, value FROM {session_values} WHERE session = $1", (info.id,))
    unfinished: dict[str, list[bytes]] = {}
    for (run_id,) in running:
        unfinished[run_id] = yield from payloads_of(info.id, run_id)
    return Snapshot(info, payloads, unfinished, dict(values), in_order)
