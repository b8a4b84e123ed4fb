"""The tables of the stores. A migration, once released, is never changed: a new version is a new entry at the end.

Programs of an earlier version go on with the tables of a newer one as long as `READABLE_FROM` allows it.
"""

from __future__ import annotations

from typing import Final

from ...errors import StoreError

# The earliest version that can use the tables of the newest one. A migration that only adds tables, indexes, and
# columns with defaults leaves it as it is; any other sets it to its own number. Stored in the tables, under this key.
READABLE_FROM: Final = 4
READABLE_FROM_KEY: Final = "schema: readable from"

SQLITE_MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE sessions (
            name TEXT NOT NULL UNIQUE, id TEXT NOT NULL PRIMARY KEY, created REAL NOT NULL, updated REAL NOT NULL,
            length INTEGER NOT NULL DEFAULT 0, revision INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0,
            holder BLOB, expires REAL NOT NULL DEFAULT 0)""",
        """CREATE TABLE messages (
            session TEXT NOT NULL, position INTEGER NOT NULL, run TEXT NOT NULL, payload BLOB NOT NULL,
            PRIMARY KEY (session, position))""",
        """CREATE TABLE runs (
            session TEXT NOT NULL, run TEXT NOT NULL, agent TEXT NOT NULL, started REAL NOT NULL,
            status TEXT NOT NULL DEFAULT 'running', reason TEXT NOT NULL DEFAULT '', ended REAL,
            detail BLOB NOT NULL DEFAULT x'6e756c6c', PRIMARY KEY (session, run)) WITHOUT ROWID""",
        """CREATE TABLE journal (
            session TEXT NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, payload BLOB NOT NULL,
            PRIMARY KEY (session, run, seq))""",
        """CREATE TABLE session_values (
            session TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (session, key)) WITHOUT ROWID""",
        "CREATE TABLE store_values (key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    ),
    (
        "ALTER TABLE journal ADD COLUMN number INTEGER",
        "ALTER TABLE journal ADD COLUMN lengths BLOB NOT NULL DEFAULT x''",
    ),
    (
        """CREATE TABLE letters (
            place INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, kind TEXT NOT NULL, sender BLOB NOT NULL,
            fence INTEGER NOT NULL, expires REAL NOT NULL, body BLOB NOT NULL, taken_by TEXT NOT NULL DEFAULT '',
            said_in TEXT NOT NULL DEFAULT '', key TEXT NOT NULL UNIQUE)""",
        "CREATE INDEX letters_of_session ON letters (session, place)",
    ),
    ("CREATE INDEX runs_by_id ON runs (run)",),
)

POSTGRES_MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE quiesce_sessions (
            name TEXT NOT NULL UNIQUE, id TEXT NOT NULL PRIMARY KEY,
            created DOUBLE PRECISION NOT NULL, updated DOUBLE PRECISION NOT NULL,
            length BIGINT NOT NULL DEFAULT 0, revision BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0,
            holder BYTEA, expires DOUBLE PRECISION NOT NULL DEFAULT 0)""",
        """CREATE TABLE quiesce_messages (
            session TEXT NOT NULL, position BIGINT NOT NULL, run TEXT NOT NULL, payload BYTEA NOT NULL,
            PRIMARY KEY (session, position))""",
        """CREATE TABLE quiesce_runs (
            session TEXT NOT NULL, run TEXT NOT NULL, agent TEXT NOT NULL, started DOUBLE PRECISION NOT NULL,
            status TEXT NOT NULL DEFAULT 'running', reason TEXT NOT NULL DEFAULT '', ended DOUBLE PRECISION,
            detail BYTEA NOT NULL DEFAULT 'null'::bytea, PRIMARY KEY (session, run))""",
        """CREATE TABLE quiesce_journal (
            session TEXT NOT NULL, run TEXT NOT NULL, seq BIGINT NOT NULL, payload BYTEA NOT NULL,
            PRIMARY KEY (session, run, seq))""",
        """CREATE TABLE quiesce_session_values (
            session TEXT NOT NULL, key TEXT NOT NULL, value BYTEA NOT NULL, PRIMARY KEY (session, key))""",
        "CREATE TABLE quiesce_store_values (key TEXT NOT NULL PRIMARY KEY, value BYTEA NOT NULL)",
    ),
    (
        "ALTER TABLE quiesce_journal ADD COLUMN number BIGINT",
        "ALTER TABLE quiesce_journal ADD COLUMN lengths BYTEA NOT NULL DEFAULT ''::bytea",
    ),
    (
        """CREATE TABLE quiesce_letters (
            place BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session TEXT NOT NULL, kind TEXT NOT NULL,
            sender BYTEA NOT NULL, fence BIGINT NOT NULL, expires DOUBLE PRECISION NOT NULL, body BYTEA NOT NULL,
            taken_by TEXT NOT NULL DEFAULT '', said_in TEXT NOT NULL DEFAULT '', key TEXT NOT NULL UNIQUE)""",
        "CREATE INDEX quiesce_letters_of_session ON quiesce_letters (session, place)",
    ),
    ("CREATE INDEX quiesce_runs_by_id ON quiesce_runs (run)",),
)


def check_readable(version: int, newest: int, readable_from: bytes | None, where: str) -> None:
    """Raise a `StoreError` when tables of `version` cannot be used by a program whose newest version is an earlier one.

    `readable_from` is what the tables say about themselves; None when they say nothing.
    """
    if version > newest and (readable_from is None or int(readable_from) > newest):
        raise StoreError(
            f"The store was written by a newer Quiesce (schema {version}, this one knows {newest}).",
            detail=f"It is {where}.",
            kept="Nothing was changed.",
            todo="Update Quiesce.",
        )
