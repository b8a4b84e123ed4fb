"""The stores of the soak, and what happens to them while runs go on."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.sqlite import SQLiteStore

from ..sessions.conftest import Postgres


class Stores:
    """A file, and a Postgres if there is one. `generation` counts the file's stores: one is closed, the next opened."""

    def __init__(self, folder: Path, postgres: Postgres | None) -> None:
        self._file = folder / "soak.db"
        self._postgres = postgres
        self.generation = 0
        self.sqlite: SessionStore = SQLiteStore(self._file)
        self.shared: SessionStore | None = None
        if postgres is not None:
            from quiesce.sessions.stores.postgres import PostgresStore

            self.shared = PostgresStore(postgres.new_database())
        self.done: Counter[str] = Counter()

    async def disturb(self, dice: random.Random) -> str:
        """One restart, or one outage; returns which."""
        kinds = ["close", "replace", "lock"]
        if self._postgres is not None:
            kinds += ["fast", "immediate"]
        kind = dice.choice(kinds)
        self.done[kind] += 1
        match kind:
            case "close":
                await asyncio.wrap_future(self.sqlite.close())
            case "replace":
                old, self.sqlite = self.sqlite, SQLiteStore(self._file)
                self.generation += 1
                await asyncio.wrap_future(old.close())
            case "lock":
                try:
                    await asyncio.to_thread(self._lock, dice.uniform(0.1, 3.0))
                except sqlite3.OperationalError:  # the other program did not get its turn
                    self.done["lock refused"] += 1
            case _:
                await asyncio.to_thread(self._restart, kind)
        return kind

    def _lock(self, seconds: float) -> None:
        """Another program writes to the file, and takes its time."""
        other = sqlite3.connect(self._file, timeout=20, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            other.execute("ROLLBACK")
        finally:
            other.close()

    def _restart(self, how: str) -> None:
        assert self._postgres is not None
        self._postgres.stop(how)
        self._postgres.start()

    async def close(self) -> None:
        """Close them."""
        for store in (self.sqlite, self.shared):
            if store is not None:
                await asyncio.wrap_future(store.close())

    def size(self) -> dict[str, Any]:
        """How big the file is, in MB."""
        return {"db MB": round(self._file.stat().st_size / 1e6, 1)}
