"""Detects that the reader of a pipe has closed it, without a write."""

from __future__ import annotations

import os
import select
import stat
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def watch_pipe(descriptor: int, on_close: Callable[[], object]) -> Generator[None]:
    """Call `on_close`, from another thread, when the other end of a pipe or socket is closed while the block runs.

    For anything else, such as a file or a terminal, and where the system cannot detect it, this does nothing.
    """
    if not _can_be_watched(descriptor):
        yield
        return
    woken, wake = os.pipe()
    args = (descriptor, woken, on_close)
    thread = threading.Thread(target=_watch, args=args, name="quiesce-pipe-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(wake)
        thread.join()


def _watch(descriptor: int, woken: int, on_close: Callable[[], object]) -> None:
    try:
        poll = select.poll()
        poll.register(descriptor, 0)  # errors and hang-ups are always reported
        poll.register(woken, 0)
        if any(number == descriptor for number, _ in poll.poll()):
            on_close()
    finally:
        os.close(woken)


def _can_be_watched(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return hasattr(select, "poll") and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
