"""A stop as something to wait for, while a run settles or is steered."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from .._threads.loop_callback import call_soon_anywhere, made_again
from ..cancellation import Mode
from .state import RunState


class StopEvent:
    """Set once a stop at least as urgent as `mode` is asked for. Most stops wait for nothing: then it has no future."""

    __slots__ = ("_forget", "_future", "_mode", "_state")

    def __init__(self, state: RunState, mode: Mode) -> None:
        self._state: Final = state
        self._mode: Final = mode
        self._future: asyncio.Future[None] | None = None
        self._forget = _nothing

    def is_set(self) -> bool:
        """Whether such a stop was asked for."""
        token = self._state.token
        return token.stop_asked and token.wants(self._mode)

    @property
    def future(self) -> asyncio.Future[None]:
        """Done once it is set. `forget()` must follow."""
        future = self._future
        if future is None:
            future = self._future = self._state.progress.loop.create_future()
            if self.is_set():
                future.set_result(None)
            self._forget = self._state.token.watch(self._on_request)
        return future

    def forget(self) -> None:
        """Nothing waits for it any more."""
        self._forget()

    def _on_request(self, asked: Mode) -> None:
        if asked >= self._mode:
            with suppress(RuntimeError):  # the loop has closed
                call_soon_anywhere(self._state.progress.loop, made_again(self._resolve))

    def _resolve(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


def _nothing() -> None:
    """What `forget()` does while nothing watches the token."""
