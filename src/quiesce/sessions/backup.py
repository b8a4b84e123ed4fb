"""A copy of a store, made while runs go on: everything that was saved when the copy began."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from contextlib import closing
from pathlib import Path

from ..errors import ConfigurationError, StoreDamaged, StoreError
from .store import SessionStore


def back_up(store: SessionStore, target: Path) -> Path:
    """Copy an SQLite store to a new file, or to a file in this folder; returns the file. Runs are not held up.

    The copy has no leases and no queued prompts: a run that was going on counts as crashed there. Blocks. Raises
    `ConfigurationError` for another kind of store or a file that exists, or a `StoreError`.
    """
    from .stores.sqlite import SQLiteStore

    if not isinstance(store, SQLiteStore):
        raise ConfigurationError(
            f"{store.url} is not an SQLite store.", todo="Use the tool of its database, such as pg_dump for Postgres."
        )
    if not store.path.exists():
        raise ConfigurationError(f"There is no store at {store.path}.")
    if target.is_dir():
        target /= f"{store.path.stem}-{time.strftime('%Y%m%d-%H%M%S')}{store.path.suffix}"
    draft = target.with_name(f"{target.name}.partial-{uuid.uuid4().hex[:8]}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            _copy(store.path, draft)
            os.link(draft, target)  # the whole copy, or none; never over a file that exists
        finally:
            draft.unlink()
    except FileExistsError:
        raise ConfigurationError(f"{target} exists already.", todo="Name a new file, or a folder.") from None
    except OSError as error:
        raise StoreError(f"The copy cannot be written to {target}: {error.strerror}.") from error
    except sqlite3.Error as error:
        raise StoreError(f"{store.path} cannot be copied: {error}.") from error
    return target


def _copy(source: Path, target: Path) -> None:
    """Copy a database in one step, which reads one moment of it and keeps no writer waiting."""
    reading = sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)
    with closing(reading), closing(sqlite3.connect(target, isolation_level=None)) as written:
        reading.backup(written)
        written.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        written.execute("UPDATE sessions SET holder = NULL, expires = 0")
        if written.execute("SELECT 1 FROM sqlite_master WHERE name = 'letters'").fetchone():  # not in old files
            written.execute("DELETE FROM letters")
        (found,) = written.execute("PRAGMA quick_check").fetchone()
    if found != "ok":
        raise StoreDamaged(f"{source} is damaged: {found}.", todo="Restore an earlier copy, or export its sessions.")
