"""Notifications of Postgres: between jobs, the store's thread runs its event loop and receives them."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final

from ...errors import StoreError
from ..queue.subscribers import Subscribers
from .dialect import CHANNEL
from .store_thread import Job, Jobs

# Seconds between attempts to reach a database that is away.
_TRY_AGAIN: Final = 1.0


class PostgresListener:
    """Waits for jobs and for notifications, on the store's own connection."""

    def __init__(
        self,
        subscribers: Subscribers,
        loop: Callable[[], asyncio.AbstractEventLoop],
        connection: Callable[[], AbstractAsyncContextManager[Any]],
    ) -> None:
        self._subscribers: Final = subscribers
        self._get_loop: Final = loop
        self._connection: Final = connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._listening_on: Any = None

    @property
    def wanted(self) -> bool:
        """Whether a session has subscribers."""
        return bool(self._subscribers)

    @property
    def is_listening(self) -> bool:
        """Whether notifications come, on a connection that is still open."""
        return self._listening_on is not None and not self._listening_on.is_closed()

    def wake(self) -> None:
        """There is a job, or no subscriber is left."""
        loop, woken = self._loop, self._woken
        if loop is not None and woken is not None:
            with suppress(RuntimeError):  # it was closed just now
                loop.call_soon_threadsafe(woken.set)

    def wait(self, jobs: Jobs) -> Job | None:
        """Wait for a job, and pass notifications on meanwhile."""
        loop = self._get_loop()
        if loop is not self._loop:
            self._loop, self._woken = loop, asyncio.Event()
        with suppress(queue.Empty):  # it came before the event was there to be set
            return jobs.get_nowait()
        loop.run_until_complete(self._listen())
        with suppress(queue.Empty):
            return jobs.get_nowait()
        return None

    async def _listen(self) -> None:
        assert self._woken is not None
        timeout = None
        try:
            await self._begin()
        except StoreError:
            timeout = _TRY_AGAIN
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), timeout)
        self._woken.clear()

    def listen(self) -> None:
        """Listen on the current connection. Raises a `StoreError`."""
        self._get_loop().run_until_complete(self._begin())

    async def _begin(self) -> None:
        async with self._connection() as connection:
            if connection is self._listening_on:
                return
            await connection.add_listener(CHANNEL, self._on_notification)
            connection.add_termination_listener(self._on_termination)
        is_another, self._listening_on = self._listening_on is not None, connection
        if is_another:
            self._subscribers.tell_all()  # notifications in between were missed

    def _on_termination(self, _connection: object) -> None:
        self.wake()

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._subscribers.tell(str(payload))
