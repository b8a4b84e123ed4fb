"""Listening to Postgres between jobs: the store's thread sits in its event loop, and the database speaks up."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from ...errors import StoreError
from ..queue.subscribers import Subscribers
from .postgres_queue import CHANNEL
from .worker_thread import Job, Jobs

# How long to leave a database alone that could not be reached.
_TRY_AGAIN: Final = 1.0


class PostgresListener:
    """Waits for jobs and for what the database says, on the store's own connection."""

    def __init__(
        self,
        watchers: Subscribers,
        loop: Callable[[], asyncio.AbstractEventLoop],
        connected: Callable[[], Awaitable[Any]],
    ) -> None:
        self._watchers: Final = watchers
        self._the_loop: Final = loop
        self._connected: Final = connected
        self._loop: asyncio.AbstractEventLoop | None = None
        self._poked: asyncio.Event | None = None
        self._listening_on: Any = None

    @property
    def wanted(self) -> bool:
        """Whether somebody watches a session."""
        return bool(self._watchers)

    @property
    def listens(self) -> bool:
        """Whether the database has been asked to speak up, on a connection that is still there."""
        return self._listening_on is not None and not self._listening_on.is_closed()

    def poke(self) -> None:
        """There is a job, or nobody watches any more."""
        loop, poked = self._loop, self._poked
        if loop is not None and poked is not None:
            with suppress(RuntimeError):  # it was closed just now
                loop.call_soon_threadsafe(poked.set)

    def wait(self, jobs: Jobs) -> Job | None:
        """Wait for a job, and hear what the database says."""
        loop = self._the_loop()
        if loop is not self._loop:
            self._loop, self._poked = loop, asyncio.Event()
        with suppress(queue.Empty):  # it came when there was nothing yet to poke
            return jobs.get_nowait()
        loop.run_until_complete(self._listen())
        with suppress(queue.Empty):
            return jobs.get_nowait()
        return None

    async def _listen(self) -> None:
        assert self._poked is not None
        patience = None
        try:
            await self.begin()
        except StoreError:
            patience = _TRY_AGAIN
        with suppress(TimeoutError):
            await asyncio.wait_for(self._poked.wait(), patience)
        self._poked.clear()

    async def begin(self) -> None:
        """Listen on the current connection. Raises a `StoreError`."""
        connection = await self._connected()
        if connection is not self._listening_on:
            await connection.add_listener(CHANNEL, self._hear)
            connection.add_termination_listener(self._on_termination)
            again, self._listening_on = self._listening_on is not None, connection
            if again:
                self._watchers.tell_all()  # what was said in between was missed

    def _on_termination(self, _connection: object) -> None:
        self.poke()

    def _hear(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._watchers.tell(str(payload))
