"""Notifications: one connection of its own, opened again when it is lost. What is missed is read again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from .database import FleetDatabase

_log: Final = logging.getLogger("quiesce.fleet")
# Seconds between attempts to reach a database that is away.
_TRY_AGAIN: Final = 0.5
# Seconds after which a silent connection is probed: a link that is cut says nothing.
PROBE_INTERVAL: Final = 10.0
_PROBE_TIMEOUT: Final = 5.0


async def is_set_within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for an event, at most so long. Whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


class Listener:
    """Calls `on_notify(channel, payload)` for each notification, and `on_gap()` when some may have been missed."""

    def __init__(
        self,
        database: FleetDatabase,
        channels: tuple[str, ...],
        on_notify: Callable[[str, str], None],
        on_gap: Callable[[], None],
    ) -> None:
        self._database: Final = database
        self._channels: Final = channels
        self._on_notify: Final = on_notify
        self._on_gap: Final = on_gap
        self.listening: Final = asyncio.Event()

    async def run(self) -> None:
        """Listen until this is cancelled."""
        while True:
            try:
                await self._listen()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # a connection that breaks in the middle of a message can raise almost anything
                _log.warning("notifications of %s are interrupted: %s", self._database.url, error)
            self.listening.clear()
            await asyncio.sleep(_TRY_AGAIN)

    async def _listen(self) -> None:
        connection = await self._database.connect()
        try:
            lost = asyncio.Event()

            def on_termination(_: object) -> None:
                lost.set()

            connection.add_termination_listener(on_termination)
            for channel in self._channels:
                await connection.add_listener(channel, self._notified)
            self.listening.set()
            self._on_gap()
            while not await is_set_within(PROBE_INTERVAL, lost):
                async with asyncio.timeout(_PROBE_TIMEOUT):
                    await connection.execute("SELECT 1")
        finally:
            connection.terminate()

    def _notified(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        self._on_notify(channel, str(payload))
