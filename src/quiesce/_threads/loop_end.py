"""The end of an event loop that its tasks do not see: the loop is closed around them, or the process is forked.

Nothing in asyncio tells a task that its loop was closed. But a loop that closes lets go of its timers: an object that
only a timer holds is freed in that moment, in the thread that closes the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import os
import sys
from collections.abc import Callable
from typing import Final

from msgspec import Struct

_log: Final = logging.getLogger("quiesce")
_keys: Final = itertools.count()

# A timer that never fires, for every practical purpose: thirty years.
NEVER: Final = 1e9


class _Watcher(Struct, frozen=True):
    on_close: Callable[[], None]
    on_fork: Callable[[], None]


class _Sentinel:
    """The callback of a timer that never fires. It is freed when its loop is closed, and calls the watchers then."""

    __slots__ = ("__weakref__", "_loop", "_watchers")

    def __init__(self, loop: int) -> None:
        self._loop: Final = loop
        self._watchers: Final = _watched.setdefault(loop, {})

    def __call__(self) -> None:
        """Nothing: the timer never fires."""

    def __del__(self) -> None:
        if not sys.is_finalizing() and _watched.get(self._loop) is self._watchers:  # not in a forked child
            del _watched[self._loop]
            for watcher in _latest_first(self._watchers):
                _guarded(watcher.on_close)


_watched: Final[dict[int, dict[int, _Watcher]]] = {}
"""The watchers of each loop that has a sentinel, by the id of the loop."""


def watch_loop(
    loop: asyncio.AbstractEventLoop, *, on_close: Callable[[], None], on_fork: Callable[[], None]
) -> Callable[[], None]:
    """Call `on_close` when the loop is closed, or `on_fork` in a child process that is forked. In the loop's thread.

    The latest watcher is called first. Returns the function that takes it off again.
    """
    watchers = _watched.get(id(loop))
    if watchers is None:
        # An empty context: this timer outlives the run that is the first to need it.
        loop.call_later(NEVER, _Sentinel(id(loop)), context=contextvars.Context())
        watchers = _watched[id(loop)]
    key = next(_keys)
    try:
        watchers[key] = _Watcher(on_close, on_fork)
        return lambda: watchers.pop(key, None) and None
    except BaseException:  # such as Ctrl-C: the caller has no function to remove it with
        watchers.pop(key, None)
        raise


def _latest_first(watchers: dict[int, _Watcher]) -> list[_Watcher]:
    return [watchers[key] for key in sorted(watchers, reverse=True)]


def _guarded(function: Callable[[], None]) -> None:
    try:
        function()
    except Exception:
        _log.exception("What watches the end of an event loop raised.")


def _after_fork() -> None:
    """In the child: the loops, and what runs in them, are the parent's."""
    watched = list(_watched.values())
    _watched.clear()
    for watchers in watched:
        for watcher in _latest_first(watchers):
            _guarded(watcher.on_fork)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
