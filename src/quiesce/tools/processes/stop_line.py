"""The run's token as a worker process sees it.

The host writes the cause into a socket, once. The worker looks when the tool asks, and blocks when the tool waits; only
a tool that wants to be called back costs a thread. The other way, the worker writes a mark before each call's function
is begun: of a worker that has died, the host can then tell whether the call may be made again.
"""

from __future__ import annotations

import os
import pickle
import select
import threading
from collections.abc import Callable
from typing import Final

from ...cancellation import CancellationToken, Cause, TokenView
from ...cancellation.token import Unregister


class StopLine:
    """The worker's end of the socket, and the token that it closes."""

    def __init__(self, handle: int) -> None:
        self._handle: Final = handle
        self._lock: Final = threading.Lock()
        self._watching = False
        self.token: Final = CancellationToken()

    def mark_begun(self) -> None:
        """From here on, the call has had an effect for all that anybody knows."""
        os.write(self._handle, b"!")

    def look(self, timeout: float | None = 0.0) -> None:
        """Take what the host has written, waiting for it up to `timeout` seconds."""
        if self.token.cancelled:
            return
        readable, _, _ = select.select((self._handle,), (), (), timeout)
        if readable:
            self._take()

    def _take(self) -> None:
        with self._lock:
            if self.token.cancelled:
                return
            data = os.read(self._handle, 65536)
            if data:
                cause: Cause = pickle.loads(data)
                self.token.cancel(cause.reason, mode=cause.mode, source=cause.source)

    def watch(self) -> None:
        """Have a thread wait for the stop, so that the token's callbacks are called."""
        with self._lock:
            if self._watching:
                return
            self._watching = True
        threading.Thread(target=self.look, args=(None,), name="quiesce-stop-line", daemon=True).start()


class LineView(TokenView):
    """What a tool in a worker process is given as its token."""

    __slots__ = ("_line",)

    def __init__(self, line: StopLine) -> None:
        super().__init__(line.token)
        self._line: Final = line

    @property
    def cancelled(self) -> bool:
        """Whether a stop was asked for, in whatever mode."""
        self._line.look()
        return super().cancelled

    @property
    def cause(self) -> Cause | None:
        """The first cause, or None."""
        self._line.look()
        return super().cause

    def raise_if_cancelled(self) -> None:
        """Raises `Cancelled` once a stop was asked for."""
        self._line.look()
        super().raise_if_cancelled()

    def wait_sync(self, timeout: float | None = None) -> bool:
        """Block this thread until a stop is asked for, or for `timeout` seconds. Whether it was."""
        self._line.look(timeout)
        return super().cancelled

    async def wait(self) -> Cause:
        """Wait until a stop is asked for; returns the first cause."""
        self._line.watch()
        return await super().wait()

    def on_cancel(self, callback: Callable[[Cause], object]) -> Unregister:
        """Call `callback(cause)` once when a stop is asked for."""
        self._line.watch()
        return super().on_cancel(callback)

    def child(self) -> CancellationToken:
        """A token that is cancelled with this one, and can be cancelled alone."""
        self._line.watch()
        return super().child()
