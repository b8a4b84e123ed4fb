"""A token as a cancel scope: the stop wakes whatever is being awaited right now."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final, Self

from .._threads.loop_callback import call_in_loop, made_again
from .cause import Mode
from .token import CancellationToken, Unregister


class StopScope:
    """A part of a task that a token cuts, from whichever thread. Only for a task of asyncio itself.

    `mode` is the most patient mode that closes it. The task inside it may change that, and calls `react()` then if a
    stop was asked for. Nothing polls and nothing watches: the token calls, and the scope's own loop closes it. As
    with `asyncio.timeout()`, an outside cancellation goes on through the scope.
    """

    __slots__ = ("_cancelled", "_cancelling", "_forget", "_task", "_token", "mode")

    def __init__(self, token: CancellationToken, mode: Mode = Mode.NOW) -> None:
        self._token: Final = token
        self.mode = mode
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._cancelled = False
        self._forget: Unregister | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        try:
            self._forget = self._token.watch(self._on_request)
            return self
        except BaseException:  # Ctrl-C: a scope that is left open would cancel the task later
            self._leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task = self._task
        try:
            self._leave()
        except KeyboardInterrupt:
            self._leave()
            raise
        # A cancellation from outside may have come as well: then it is raised on.
        return (
            self._cancelled
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        )

    def _leave(self) -> None:
        if self._forget is not None:
            self._forget()
        self._task = None

    def react(self) -> bool:
        """Close the scope if a stop was asked for that is as urgent as its mode now is; whether it is closed."""
        wanted = self._token.wants(self.mode)
        if wanted:
            self.close()
        return wanted

    def close(self) -> None:
        """Close the scope, for a stop or for another reason: cancel the task as soon as it waits. In its own loop."""
        task = self._task
        if task is None or self._cancelled:
            return
        waiter: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)  # what it awaits right now
        if task is asyncio.current_task() or (waiter is not None and waiter.done()):
            # What it has waited for is there: that is not lost. A signal handler may be in the middle of its step, too.
            task.get_loop().call_soon(made_again(self.close))
        else:
            task.cancel()
            self._cancelled = True

    def _on_request(self, mode: Mode) -> None:
        task = self._task
        if task is not None and mode >= self.mode:
            try:  # noqa: SIM105  (this is cheaper)
                call_in_loop(task.get_loop(), made_again(self.close))
            except RuntimeError:  # the loop has closed, and with it everything in this scope
                pass
