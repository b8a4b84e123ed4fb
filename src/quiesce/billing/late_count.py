"""A count that waits for a vocabulary: the run has ended with an estimate, which the count supersedes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from .._threads.loop_callback import made_again
from .._threads.loop_end import watch_loop


class LateCount:
    """Calls `finish` once the vocabulary is loaded: in the loop of the run, as everything that writes its ledger.

    Where that loop has closed, nothing else writes there any more, and `finish` is called in the thread that has loaded
    the vocabulary, or that has closed the loop. It may be called twice. A forked child, which has no such thread, calls
    `give_up`.
    """

    def __init__(self, finish: Callable[[], None], give_up: Callable[[], None]) -> None:
        self._finish: Final = finish
        self._is_loaded = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: Callable[[], None] | None = None
        with suppress(RuntimeError):  # the run is settled after its loop has closed
            self._loop = asyncio.get_running_loop()
            self._leave = watch_loop(self._loop, on_close=self._closed, on_fork=give_up)

    def loaded(self) -> None:
        """The vocabulary is loaded, or cannot be. From any thread."""
        self._is_loaded = True
        try:
            if self._loop is None:
                self._count()
            else:
                self._loop.call_soon_threadsafe(made_again(self._count))
        except RuntimeError:  # the loop has closed
            self._count()

    def _closed(self) -> None:
        """The loop has closed, and will not call `_count` any more."""
        if self._is_loaded:
            self._count()

    def _count(self) -> None:
        if self._leave is not None:
            self._leave()
        self._finish()
