"""Waiting that an outside cancellation may not break: named, bounded, and never silent about what it held back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

from .._threads.loop_callback import made_again


class BoundedShield:
    """Waits for futures although the waiting task is cancelled.

    anyio's shield holds off anyio's cancellation but not `Task.cancel()`, which an event loop that shuts down and
    `asyncio.timeout()` use. So each wait here takes the `CancelledError`, goes on waiting, and remembers: the
    shield's owner reads `interrupted` at the end and raises `CancelledError` then. Every wait has a limit.
    `on_interrupt` is called at once.
    """

    __slots__ = ("_on_interrupt", "interrupted", "name")

    def __init__(self, name: str, on_interrupt: Callable[[], object] = lambda: None) -> None:
        self.name: Final = name
        self._on_interrupt: Final = on_interrupt
        self.interrupted = False

    async def wait(
        self, futures: Collection[asyncio.Future[Any]], *, seconds: float, unless: asyncio.Future[None] | None = None
    ) -> None:
        """Wait until all `futures` are done, `seconds` have passed, or `unless` is done."""
        waiting = {future for future in futures if not future.done()}
        if not waiting or (unless is not None and unless.done()):
            return
        loop = asyncio.get_running_loop()
        ended, woken = False, loop.create_future()

        @made_again
        def end(done: Any = None) -> None:
            nonlocal ended
            waiting.discard(done)
            if waiting and done is not None and done is not unless:
                return
            ended = True
            if not woken.done():
                woken.set_result(None)

        for future in tuple(waiting):
            future.add_done_callback(end)
        timer = loop.call_later(seconds, end)
        if unless is not None:
            unless.add_done_callback(end)
        try:
            while not ended:
                try:
                    await woken
                except asyncio.CancelledError:  # which has cancelled the future, too
                    woken = loop.create_future()
                    self.interrupted = True
                    self._on_interrupt()
        finally:
            timer.cancel()
            for future in tuple(waiting):
                future.remove_done_callback(end)
            if unless is not None:
                unless.remove_done_callback(end)
