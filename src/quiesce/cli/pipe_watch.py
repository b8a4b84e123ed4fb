"""Detects that the reader of a pipe has closed it, without a write."""

from __future__ import annotations

import os
import select
import stat
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self


class PipeWatch:
    """Calls `on_close`, from a thread of its own, when the other end of a pipe or socket is closed.

    For anything else, such as a file or a terminal, and where the system cannot detect it, this does nothing.
    """

    def __init__(self, descriptor: int, on_close: Callable[[], object]) -> None:
        self._descriptor: Final = descriptor
        self._on_close: Final = on_close
        self._thread: threading.Thread | None = None
        self._wake = -1

    def __enter__(self) -> Self:
        if _can_be_watched(self._descriptor):
            woken, self._wake = os.pipe()
            self._thread = threading.Thread(target=self._watch, args=(woken,), name="quiesce-pipe-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            os.close(self._wake)
            self._thread.join()

    def _watch(self, woken: int) -> None:
        try:
            poll = select.poll()
            poll.register(self._descriptor, 0)  # errors and hang-ups are always reported
            poll.register(woken, 0)
            if any(number == self._descriptor for number, _ in poll.poll()):
                self._on_close()
        finally:
            os.close(woken)


def _can_be_watched(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return hasattr(select, "poll") and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
