"""A token as a cancel scope: the stop wakes whatever is being awaited right now."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import anyio

from .._threads.loop_callback import call_soon_anywhere, made_again
from .cause import Mode
from .token import CancellationToken, Unregister


class StopScope:
    """An anyio cancel scope that a token closes, from whichever thread.

    `mode` is the most patient mode that closes it. The task inside it may change that, and calls `react()` then if a
    stop was asked for. Nothing polls and nothing watches: the token calls, and the scope's own loop closes it.
    """

    __slots__ = ("_forget", "_loop", "_scope", "_token", "mode")

    def __init__(self, token: CancellationToken, mode: Mode = Mode.NOW) -> None:
        self._token: Final = token
        self.mode = mode
        self._scope: Final = anyio.CancelScope()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forget: Unregister | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._scope.__enter__()
        try:
            self._forget = self._token.watch(self._on_request)
            return self
        except BaseException as error:  # Ctrl-C: a scope that is left open would cancel the task for ever
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            if self._forget is not None:
                self._forget()
            self._loop = None
            return bool(self._scope.__exit__(kind, error, trace))
        except KeyboardInterrupt:
            with suppress(RuntimeError):  # it was left before the Ctrl-C
                self._scope.__exit__(kind, error, trace)
            raise

    def react(self) -> bool:
        """Close the scope if a stop was asked for that is as urgent as its mode now is; whether it is closed."""
        wanted = self._token.wants(self.mode)
        if wanted:
            self._scope.cancel()
        return wanted

    def close(self) -> None:
        """Close the scope for another reason than a stop. In its own loop."""
        self._close()

    def _on_request(self, mode: Mode) -> None:
        # Always in a later step of the loop, even from its own thread: a signal handler runs there too, between any
        # two lines of the task that it would cancel.
        loop = self._loop
        if loop is not None and mode >= self.mode:
            try:
                call_soon_anywhere(loop, made_again(self._close))
            except RuntimeError:  # the loop has closed, and with it everything in this scope
                return

    def _close(self) -> None:
        if self._loop is not None:
            self._scope.cancel()
