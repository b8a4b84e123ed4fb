"""Notifications about runs of this worker: one statement for all that have changed since the last one."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ..errors import StoreError
from . import run_table
from .database import FleetDatabase

_log: Final = logging.getLogger("quiesce.fleet")
# Seconds between two notifications: readers see text in steps of this, and the database has a bounded number of them.
INTERVAL: Final = 0.02


class ChangeNotifier:
    """Collects the ids of runs that have changed. Only for the worker's loop."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database: Final = database
        self._changed: dict[str, None] = {}
        self._noted: Final = asyncio.Event()

    def note(self, run_id: str) -> None:
        """Note that a run has changed. Called for each event, so it does little."""
        self._changed[run_id] = None
        self._noted.set()

    async def run(self) -> None:
        """Notify until this is cancelled."""
        while True:
            await self._noted.wait()
            try:
                await self.flush()
            except StoreError as error:  # watchers read again at a slow pace
                _log.warning("changes cannot be notified: %s", error)
            await asyncio.sleep(INTERVAL)

    async def flush(self) -> None:
        """Notify what was noted. Raises a `StoreError`."""
        self._noted.clear()
        chosen, self._changed = self._changed, {}
        if chosen:
            await self._database.ask(run_table.notify_changed, *chosen)
