"""A thread that sees the signals which the main thread does not.

Python runs a signal's handler in the main thread, between two steps of Python code. A main thread that waits inside C
code, or was about to, does not run it: a signal that comes in the microseconds before a lock is waited for is handled
when that wait ends, which may be never. The interpreter also writes the number of each signal to a descriptor, and
that works at any moment. The thread reads it.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Collection
from typing import ClassVar, Final

HANDLER_TIME: Final = 0.2
"""The seconds that the main thread has to run the handler before the thread acts in its place."""


class SignalThread:
    """Calls `unhandled(n, number)` for the n-th of these signals when the main thread has had its time for it.

    It does nothing where an event loop reads the descriptor already: the loop then wakes the main thread itself.
    """

    _own: ClassVar[set[int]] = set()

    def __init__(self, numbers: Collection[int], unhandled: Callable[[int, int], None]) -> None:
        self._numbers: Final = frozenset(numbers)
        self._unhandled: Final = unhandled
        self._ended: Final = threading.Event()
        self._reader, self._writer = socket.socketpair()
        self._writer.settimeout(0)
        self._thread: Final = threading.Thread(target=self._read, name="quiesce signals", daemon=True)
        self._previous = -1

    def start(self) -> None:
        """Begin to read signals, unless an event loop reads them. In the main thread."""
        descriptor = self._writer.fileno()
        self._previous = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
        if self._previous != -1 and self._previous not in self._own:
            signal.set_wakeup_fd(self._previous)
            self._close()
            return
        self._own.add(descriptor)
        self._thread.start()

    def end(self) -> None:
        """Give the descriptor back and wait for the thread. In the main thread."""
        if self._thread.ident is None:
            return
        descriptor = self._writer.fileno()
        current = signal.set_wakeup_fd(self._previous, warn_on_full_buffer=False)
        if current not in (-1, descriptor):  # an event loop began to read signals in the meantime, and still does
            signal.set_wakeup_fd(current)
        self._own.discard(descriptor)
        self._ended.set()
        self._writer.close()
        self._thread.join()
        self._close()

    def _read(self) -> None:
        signals = 0
        while number := self._reader.recv(1):
            if number[0] not in self._numbers:
                continue
            signals += 1
            if not self._ended.wait(HANDLER_TIME):
                self._unhandled(signals, number[0])

    def _close(self) -> None:
        self._reader.close()
        self._writer.close()
