"""Repair of a damaged session: the undamaged part stays. The rest is given to the caller, then deleted."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from ..conversation.conversation import TASK
from ..task import Task
from .damage import PENDING, read_rows, read_undamaged, unread_values
from .journal.buffer import WRITER
from .journal.recovery import Crash
from .journal.rows import encode
from .records import Lease, RunEnd, Snapshot, WriteBatch, holder
from .state import STATE
from .store import SessionStore

# What a value is set to that cannot be read.
_EMPTY: Final = {PENDING: b"null", STATE: b"{}", TASK: encode(Task("", 0.0))}


class Repair(NamedTuple):
    """The damage of a session, how many of its messages stay, and what was deleted, one JSON value each."""

    damage: str
    kept: int
    cut: list[bytes]


def repair_session(store: SessionStore, name: str, keep: Callable[[list[bytes]], None]) -> Repair | None:
    """Repair a damaged session; None when it is not damaged.

    `keep` is called with what will be deleted, before it is. Runs that never ended count as crashed, and their journals
    stay. Blocks. Raises `SessionNotFound`, `SessionBusy` or another `StoreError`.
    """
    store.load(name).result()  # so that a session that does not exist is not created
    acquired = store.acquire(name, holder(uuid.uuid4().hex), seconds=60).result()
    try:
        assert acquired.snapshot is not None
        return _repair(store, acquired.lease, acquired.snapshot, keep)
    finally:
        store.release(acquired.lease).result()


def _repair(
    store: SessionStore, lease: Lease, snapshot: Snapshot, keep: Callable[[list[bytes]], None]
) -> Repair | None:
    (messages, pending), damage = read_undamaged(snapshot)
    if not damage:
        unread = (read_rows(rows)[1] for rows in snapshot.unfinished.values())
        damage = next((what for what in unread if what), "")
    if not damage:
        return None
    kept = len(messages)
    cut = [_as_json(payload) for payload in snapshot.messages[kept:]]
    reset = set(unread_values(snapshot.values))
    if pending is None or snapshot.unfinished:
        reset.add(PENDING)
    cut += [_as_json(found) for found in map(snapshot.values.get, sorted(reset)) if found not in (None, b"null")]
    if cut:
        keep(cut)
    runs = store.runs(lease.session).result()
    for run_id in snapshot.unfinished:
        ending = WriteBatch(run_id)
        ending.end = RunEnd("crashed", "crashed", runs[-1].started, encode(Crash(run_id)))
        store.write(lease, ending).result()
    cutting = WriteBatch(runs[-1].run_id if runs else "repair")
    cutting.first_message, cutting.cuts = kept, True
    cutting.values = {key: _EMPTY[key] for key in reset} | {WRITER: f"repair-{uuid.uuid4().hex}".encode()}
    store.write(lease, cutting).result()
    return Repair(damage, kept, cut)


def _as_json(payload: bytes) -> bytes:
    """A stored value as it is, or in base64 when it is not JSON."""
    try:
        msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeError):
        return msgspec.json.encode({"base64": base64.b64encode(payload).decode()})
    return payload
