"""Waits for changes that other processes make to runs: by notification, and by slow polling in case one is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from .database import FleetDatabase
from .listener import Listener
from .run_table import CHANGED

# Seconds after which a run is read again although no notification has come.
SLOW_PACE: Final = 5.0


class ChangeSubscription:
    """Whether a run may have changed since it was last read. Only for one task."""

    def __init__(self) -> None:
        self._event: Final = asyncio.Event()
        self.run_ids: set[str] = set()
        """The runs that have changed, for a subscription to all; empty when any may have."""

    def note(self, run_id: str = "") -> None:
        """Note a change."""
        if run_id:
            self.run_ids.add(run_id)
        self._event.set()

    async def wait(self, seconds: float = SLOW_PACE) -> bool:
        """Wait for a change, at most so long. Whether one was notified."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True

    async def wait_for(self, until: asyncio.Event, seconds: float = SLOW_PACE) -> bool:
        """Wait for a change, at most so long, or until an event is set. Whether that is not set."""
        if until.is_set():
            return False
        loop = asyncio.get_running_loop()
        waits = [loop.create_task(each.wait()) for each in (self._event, until)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        self._event.clear()
        return not until.is_set()

    def take(self) -> set[str]:
        """The runs that have changed since this was last asked."""
        taken, self.run_ids = self.run_ids, set()
        return taken


class Watcher:
    """Hands notifications to the subscriptions of this process. Only for one event loop."""

    def __init__(self, database: FleetDatabase) -> None:
        self._changes: Final[dict[str, set[ChangeSubscription]]] = {}
        self._listener: Final = Listener(database, (CHANGED,), self._on_notify, self._on_gap)

    @property
    def is_listening(self) -> bool:
        """Whether the database answers: the connection for notifications is probed every few seconds."""
        return self._listener.listening.is_set()

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        """Listen while the block goes on."""
        task = asyncio.get_running_loop().create_task(self._listener.run(), name="fleet watcher")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))

    @contextmanager
    def subscription(self, run_id: str = "") -> Generator[ChangeSubscription]:
        """The changes of one run, or of all."""
        change = ChangeSubscription()
        self._changes.setdefault(run_id, set()).add(change)
        try:
            yield change
        finally:
            self._changes[run_id].discard(change)
            if not self._changes[run_id]:
                del self._changes[run_id]

    def _on_notify(self, _channel: str, payload: str) -> None:
        for run_id in payload.split():
            for change in self._changes.get(run_id, ()):
                change.note()
            for change in self._changes.get("", ()):
                change.note(run_id)

    def _on_gap(self) -> None:
        for changes in self._changes.values():
            for change in changes:
                change.note()
