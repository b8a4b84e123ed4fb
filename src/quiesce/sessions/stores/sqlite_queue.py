"""The line for a session, in SQLite. Each function is called inside a transaction."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable

import msgspec

from ..journal.rows import encode
from ..queue.prompts import QueuedPrompt, QueueRequest
from ..records import Holder, SentElsewhere, SessionInfo


def prompts_of(db: sqlite3.Connection, session_id: str) -> list[QueuedPrompt]:
    """The line, in order."""
    now = time.time()
    found = db.execute(
        "SELECT place, kind, sender, fence, expires, body, said_in FROM letters WHERE session = ? ORDER BY place",
        (session_id,),
    )
    return [
        QueuedPrompt(position, kind, msgspec.json.decode(sender, type=Holder), fence, expires - now, body, sent_in)
        for position, kind, sender, fence, expires, body, sent_in in found
    ]


def add_prompt(db: sqlite3.Connection, info: SessionInfo, request: QueueRequest) -> int:
    """Get in line. Gives the place."""
    sender, expires = encode(request.sender), time.time() + request.seconds
    db.execute(
        "INSERT OR IGNORE INTO letters (session, kind, sender, fence, expires, body, key) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (info.id, request.kind, sender, info.fence, expires, request.body, request.key),
    )
    return db.execute("SELECT place FROM letters WHERE key = ?", (request.key,)).fetchone()[0]


def remove_prompt(db: sqlite3.Connection, position: int) -> None:
    """Throw a letter away."""
    db.execute("DELETE FROM letters WHERE place = ?", (position,))


def withdraw(db: sqlite3.Connection, position: int) -> SentElsewhere | None:
    """Give a place up. The letter stays for a while, so that asking twice gives the same answer."""
    row = db.execute("UPDATE letters SET expires = 0 WHERE place = ? RETURNING taken_by", (position,)).fetchone()
    return SentElsewhere(row[0]) if row is not None and row[0] else None


def take_prompt(db: sqlite3.Connection, session_id: str, position: int, run_id: str) -> bool:
    """Take the words of a letter, to be said. False when its sender has left."""
    taken = db.execute(
        "UPDATE letters SET taken_by = ? WHERE place = ? AND session = ? AND expires > 0 RETURNING place",
        (run_id, position, session_id),
    )
    return taken.fetchone() is not None


def return_prompts(db: sqlite3.Connection, session_id: str, positions: Iterable[int]) -> list[int]:
    """Give back what was taken from these places; gives those whose sender has left."""
    gone: list[int] = []
    for position in positions:
        returned = db.execute(
            "UPDATE letters SET taken_by = '' WHERE place = ? AND session = ? AND expires > 0 RETURNING place",
            (position, session_id),
        )
        if returned.fetchone() is None:
            gone.append(position)
    return gone


def renew_position(db: sqlite3.Connection, position: int, seconds: float) -> None:
    """Say that the sender is still there."""
    db.execute("UPDATE letters SET expires = ? WHERE place = ?", (time.time() + seconds, position))


def mark_sent(db: sqlite3.Connection, session_id: str, sent_prompts: dict[int, str]) -> None:
    """The words of these letters are said."""
    for position, run_id in sent_prompts.items():
        db.execute("UPDATE letters SET said_in = ? WHERE place = ? AND session = ?", (run_id, position, session_id))


def queue_version(db: sqlite3.Connection, session: str) -> tuple[object, ...] | None:
    """Something that is another when the session has changed hands, or its line has changed."""
    return db.execute(
        "SELECT id, fence, holder IS NULL,"
        " (SELECT count(*) || ' ' || max(place) || ' ' || sum(said_in <> '') || ' ' || sum(expires > 0)"
        " FROM letters WHERE session = id)"
        " FROM sessions WHERE name = ?",
        (session,),
    ).fetchone()
