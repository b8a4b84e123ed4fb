"""Sessions as JSON Lines: one line for the session, then one for each message, run, row of a journal and value.

An export has everything of the session except its lease, so that an import gives the same session.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ..conversation.validity import faults
from ..errors import SessionExists, SessionNotFound, StoreDamaged
from .journal.rows import Row, decode_messages, decode_row
from .records import RunBegin, RunEnd, RunRecord, Snapshot, StoredRunStatus, WriteBatch, holder
from .store import SessionStore

VERSION: Final = 1


class _Head(Struct, frozen=True, tag="session", tag_field="line"):
    version: int
    name: str
    created: float
    length: int
    lines: int | None = None
    """How many lines follow; None in exports of older versions."""


class _Message(Struct, frozen=True, tag="message", tag_field="line"):
    message: Raw


class _Run(Struct, frozen=True, tag="run", tag_field="line"):
    run: str
    agent: str
    started: float
    status: StoredRunStatus
    reason: str
    ended: float | None
    detail: Raw


class _Event(Struct, frozen=True, tag="event", tag_field="line", omit_defaults=True):
    run: str
    event: Raw
    number: int | None = None
    lengths: bytes = b""


class _Value(Struct, frozen=True, tag="value", tag_field="line"):
    key: str
    value: bytes


_Line = _Head | _Message | _Run | _Event | _Value


def export_session(store: SessionStore, name: str) -> Iterator[bytes]:
    """The lines of a session at one moment. Blocks; raises `SessionNotFound` or another `StoreError`."""
    snapshot, runs = _at_one_moment(store, name)
    lines = [_line(_Message(Raw(payload))) for payload in snapshot.messages]
    for run in runs:
        head = _Run(run.run_id, run.agent, run.started, run.status, run.reason, run.ended, Raw(run.detail))
        lines.append(_line(head))
        rows = store.rows(name, run.run_id, marks=True).result()
        if run.run_id in snapshot.unfinished:  # it may have gone on
            rows = rows[: len(snapshot.unfinished[run.run_id])]
        lines += [_line(_Event(run.run_id, Raw(row.payload), row.number, row.lengths)) for row in rows]
    lines += [_line(_Value(key, value)) for key, value in sorted(snapshot.values.items())]
    info = snapshot.info
    yield _line(_Head(VERSION, name, info.created, info.length, len(lines)))
    yield from lines


def _at_one_moment(store: SessionStore, name: str) -> tuple[Snapshot, list[RunRecord]]:
    """A session, and its runs as they were when it was read."""
    runs = store.runs(name).result()
    while True:
        snapshot, before = store.load(name).result(), runs
        runs = store.runs(name).result()
        if [run.run_id for run in runs] == [run.run_id for run in before]:
            return snapshot, [_as_in(snapshot, run) for run in runs]


def _as_in(snapshot: Snapshot, run: RunRecord) -> RunRecord:
    if run.run_id in snapshot.unfinished:
        return RunRecord(run.run_id, run.agent, run.started, "running")
    return run


def import_session(store: SessionStore, lines: Iterable[bytes], *, name: str | None = None) -> str:
    """Import an export into a store, under its own name or `name`; returns the name. All of it, or nothing.

    Blocks. Raises `SessionExists`, or `StoreDamaged` for lines that are not a whole export.
    """
    head, rest = _read(lines)
    name = name or head.name
    messages = [bytes(line.message) for line in rest if isinstance(line, _Message)]
    if len(messages) != head.length:
        raise StoreDamaged(f"The export has {len(messages)} of {head.length} messages.")
    if head.lines not in (None, len(rest)):
        raise StoreDamaged(f"The export has {len(rest)} of {head.lines} lines after the first.")
    conversation = decode_messages(messages)
    is_running = any(isinstance(line, _Run) and line.status == "running" for line in rest)
    wrong = () if is_running else faults(conversation)
    if wrong:
        raise StoreDamaged(f"The export is not a valid conversation: {'; '.join(wrong[:3])}.")
    _check_absent(store, name)
    lease = store.acquire(name, holder(uuid.uuid4().hex), seconds=60).result().lease
    if lease.revision:  # it was made a moment ago
        store.release(lease).result()
        raise _exists(name)
    try:
        batches = list(_batches(rest))
        batches[-1].messages = list(conversation)
        batches[-1].values = {line.key: line.value for line in rest if isinstance(line, _Value)}
        for batch in batches:
            store.write(lease, batch).result()
    except BaseException:
        store.release(lease).result()
        store.delete(name).result()
        raise
    store.release(lease).result()
    return name


def _check_absent(store: SessionStore, name: str) -> None:
    try:
        store.load(name).result()
    except SessionNotFound:
        return
    raise _exists(name)


def _exists(name: str) -> SessionExists:
    return SessionExists(f"There is a session {name!r} already.")


def _batches(lines: list[Any]) -> Iterator[WriteBatch]:
    """One batch for each run, and one at least."""
    runs = [line for line in lines if isinstance(line, _Run)]
    if not runs:
        yield WriteBatch("import")
    rows: dict[str, list[Row]] = {}
    for line in lines:
        if isinstance(line, _Event):
            decode_row(bytes(line.event))  # raises when it is not a row
            rows.setdefault(line.run, []).append(Row(bytes(line.event), line.number, line.lengths))
    for run in runs:
        batch = WriteBatch(run.run)
        batch.begin = RunBegin(run.agent, run.started)
        batch.take_rows(rows.get(run.run, []))
        if run.status != "running":
            batch.end = RunEnd(run.status, run.reason, run.ended or run.started, bytes(run.detail))
        yield batch


def _read(lines: Iterable[bytes]) -> tuple[_Head, list[Any]]:
    decoder = msgspec.json.Decoder(_Line)
    try:
        read = [decoder.decode(line) for line in lines if line.strip()]
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise StoreDamaged(f"This is not an export of a session: {error}.") from error
    if not read or not isinstance(read[0], _Head):
        raise StoreDamaged("This is not an export of a session: its first line is missing.")
    if read[0].version != VERSION:
        raise StoreDamaged(f"The export has version {read[0].version}; this Quiesce knows {VERSION}.")
    return read[0], read[1:]


def _line(line: Struct) -> bytes:
    return msgspec.json.encode(line) + b"\n"
