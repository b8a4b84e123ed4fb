"""A run that waits before its next step."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from .._threads.loop_callback import made_again
from ..cancellation import CancellationToken
from ..cancellation.cause import Mode


class PauseSwitch:
    """Whether a run is to wait, and the waiting. `pause()` and `resume()` are for any thread."""

    __slots__ = ("_loop", "_waiting", "wanted")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._waiting: asyncio.Future[None] | None = None
        self.wanted = False

    def pause(self) -> None:
        """Wait before the next step."""
        self.wanted = True

    def resume(self) -> None:
        """Go on."""
        self.wanted = False
        self._wake_soon()

    async def wait(self, token: CancellationToken) -> None:
        """Wait until `resume()`, or until a stop of any mode is asked for."""
        forget = token.watch(self._on_request)
        try:
            while self.wanted and not token.cancelled:
                self._waiting = self._loop.create_future()
                await asyncio.wait((self._waiting,))
        finally:
            self._waiting = None
            forget()

    def _on_request(self, _: Mode) -> None:
        self._wake_soon()

    def _wake_soon(self) -> None:
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(made_again(self._wake))

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
