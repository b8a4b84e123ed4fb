"""Sessions and their leases, in SQL. Each new lease has a higher fence; older leases are refused."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from ...errors import LeaseLost, SessionBusy
from ..journal.rows import encode
from ..queue.prompts import QueueRequest, decide_lease
from ..records import AcquiredSession, AcquireRequest, Holder, Lease, SentElsewhere, SessionInfo, WriteBatch
from .dialect import Notify, Operation, Statement
from .sql_journal import is_written, snapshot_of, write_batch
from .sql_queue import (
    add_prompt,
    mark_sent,
    prompts_of,
    remove_prompts,
    renew_position,
    set_taken_by,
    withdraw_prompt,
)

_COLUMNS: Final = "name, id, created, updated, length, revision, fence, holder, expires - {now}"


def _info(row: Sequence[Any]) -> SessionInfo:
    *plain, holder, expires_in = row
    by = None if holder is None else msgspec.json.decode(holder, type=Holder)
    return SessionInfo(*plain, holder=by, expires_in=max(0.0, expires_in))


def list_sessions() -> Operation[list[SessionInfo]]:
    """All sessions, the one that was written last first."""
    found = yield Statement(f"SELECT {_COLUMNS} FROM {{sessions}} ORDER BY updated DESC, name")
    return [_info(row) for row in found]


def find_session(session: str, *, locked: bool = False) -> Operation[SessionInfo | None]:
    """A session by its name. When `locked`, other transactions that lock it wait for this one."""
    lock = "{locked}" if locked else ""
    found = yield Statement(f"SELECT {_COLUMNS} FROM {{sessions}} WHERE name = $1{lock}", (session,))
    return _info(found[0]) if found else None


def _ensure_session(session: str) -> Operation[SessionInfo]:
    while True:
        yield Statement(
            "INSERT INTO {sessions} (name, id, created, updated) VALUES ($1, $2, {now}, {now})"
            " ON CONFLICT (name) DO NOTHING",
            (session, uuid.uuid4().hex),
        )
        info = yield from find_session(session, locked=True)
        if info is not None:  # else another process has deleted it in between
            return info


def delete_session(info: SessionInfo) -> Operation[None]:
    """Delete a session and its rows in all tables. Raises `SessionBusy`.

    Its runs go first: a late outcome that is being added locks its run, and adds to the journal.
    """
    busy = decide_lease(info, (), None, None).busy
    if busy is not None:
        raise busy
    for table in ("runs", "messages", "journal", "session_values", "letters"):
        yield Statement(f"DELETE FROM {{{table}}} WHERE session = $1", (info.id,))
    yield Statement("DELETE FROM {sessions} WHERE id = $1", (info.id,))


# --- Leases ---------------------------------------------------------------------------------------------------------


def acquire(session: str, request: AcquireRequest) -> Operation[AcquiredSession | SentElsewhere | SessionBusy]:
    """Acquire the session, with a position in its queue or without one.

    `SessionBusy` is returned, not raised: the renewed position is to be committed.
    """
    position = request.position
    info = yield from _ensure_session(session)
    queued_prompts = yield from prompts_of(info.id)
    busy, sent_in, orphaned, since = decide_lease(info, queued_prompts, request.holder, position)
    yield from remove_prompts(orphaned)
    if busy is not None:
        if position is not None:
            yield from renew_position(position, request.seconds)
        return busy
    if sent_in:  # the row stays until the process that queued it has read this, and withdraws it
        return SentElsewhere(sent_in)
    if position is not None:
        yield from remove_prompts((position,))
    yield Statement(
        "UPDATE {sessions} SET fence = fence + 1, holder = $1, expires = {now} + $2 WHERE id = $3",
        (encode(request.holder), request.seconds, info.id),
    )
    lease = Lease(session, info.id, info.fence + 1, info.revision, request.seconds, request.holder.owner, since)
    known = info.revision == request.known
    return AcquiredSession(lease, None if known else (yield from snapshot_of(info)))


def _update_held(lease: Lease, change: str, *values: Any) -> Operation[int]:
    """Change the session's row, with `$3` ... for the values. Returns the revision.

    Raises `LeaseLost` when there is a newer lease.
    """
    found = yield Statement(
        f"UPDATE {{sessions}} SET {change} WHERE id = $1 AND fence = $2 RETURNING revision",
        (lease.session_id, lease.fence, *values),
    )
    if not found:
        raise LeaseLost(f"Another process writes session {lease.session!r} now.")
    return found[0][0]


def renew(lease: Lease) -> Operation[None]:
    """See `Coordination.renew`."""
    yield from _update_held(lease, "expires = {now} + $3", lease.seconds)


def release(lease: Lease) -> Operation[None]:
    """See `Coordination.release`."""
    with suppress(LeaseLost):
        yield from _update_held(lease, "holder = NULL, expires = 0")
    yield Notify(lease.session)


def write(lease: Lease, batch: WriteBatch) -> Operation[int]:
    """See `SessionStore.write`. The session's row is locked first: a repeated batch waits for the first one here."""
    change = "revision = revision + 1, updated = {now}, "
    if batch.release:
        revision = yield from _update_held(lease, change + "holder = NULL, expires = 0")
    else:
        revision = yield from _update_held(lease, change + "expires = {now} + $3", lease.seconds)
    if not (yield from is_written(lease.session_id, batch)):
        yield from write_batch(lease.session_id, batch)
        yield from mark_sent(lease.session_id, batch.sent_prompts)
    if batch.release or batch.sent_prompts:
        yield Notify(lease.session)
    return revision


# --- The queue ------------------------------------------------------------------------------------------------------


def enqueue(session: str, request: QueueRequest) -> Operation[int]:
    """See `Coordination.enqueue`. The session is locked, so that positions are given in the order that counts."""
    info = yield from _ensure_session(session)
    yield Notify(session)
    return (yield from add_prompt(info, request))


def withdraw(session: str, position: int) -> Operation[SentElsewhere | None]:
    """See `Coordination.withdraw`."""
    yield Notify(session)
    return (yield from withdraw_prompt(position))


def take_prompt(lease: Lease, position: int, run_id: str) -> Operation[bool]:
    """See `Coordination.take_prompt`."""
    yield from _update_held(lease, "fence = fence")
    return (yield from set_taken_by(lease.session_id, position, run_id))
