"""A token as a cancel scope: the stop wakes whatever is being awaited right now."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import anyio

from .._threads.loop_callback import call_in_loop, made_again
from .cause import Mode
from .token import CancellationToken, Unregister


class StopScope:
    """An anyio cancel scope that a token closes, from whichever thread.

    `mode` is the most patient mode that closes it. The task inside it may change that, and calls `react()` then if a
    stop was asked for. Nothing polls and nothing watches: the token calls, and the scope's own loop closes it.
    """

    __slots__ = ("_forget", "_scope", "_task", "_token", "mode")

    def __init__(self, token: CancellationToken, mode: Mode = Mode.NOW) -> None:
        self._token: Final = token
        self.mode = mode
        self._scope: Final = anyio.CancelScope()
        self._task: asyncio.Task[Any] | None = None
        self._forget: Unregister | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
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
            self._task = None
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
        """Close the scope, for a stop or for another reason. In its own loop."""
        task = self._task
        if task is not None and task is asyncio.current_task():
            # A signal handler runs in a step of the task too, between any two lines of it.
            task.get_loop().call_soon(made_again(self.close))
        elif task is not None:
            self._scope.cancel()

    def _on_request(self, mode: Mode) -> None:
        task = self._task
        if task is not None and mode >= self.mode:
            with suppress(RuntimeError):  # the loop has closed, and with it everything in this scope
                call_in_loop(task.get_loop(), made_again(self.close))
