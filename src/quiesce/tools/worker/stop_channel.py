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
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...cancellation import CancellationToken, Cause, Mode
    from ...cancellation.token import Unregister


class StopChannel:
    """The worker's end of the socket, and the token that it closes; the tool looks at both through a `TokenView`."""

    def __init__(self, handle: int) -> None:
        self._handle: Final = handle
        self._lock: Final = threading.RLock()
        self._watching = False
        self._stopped = False
        self._made: CancellationToken | None = None

    def mark_begun(self) -> None:
        """Note that the function begins: from here on, the call may have had an effect."""
        os.write(self._handle, b"!")

    @property
    def token(self) -> CancellationToken:
        """The token; made when something needs it, because most calls are never stopped and ask for nothing."""
        from ...cancellation import CancellationToken

        with self._lock:
            if self._made is None:
                self._made = CancellationToken()
            return self._made

    # --- What the host has written ------------------------------------------------------------------------------

    def look(self, timeout: float | None = 0.0) -> None:
        """Read a stop that the host has sent, if there is one; waits for it up to `timeout` seconds."""
        if self._stopped:
            return
        readable, _, _ = select.select((self._handle,), (), (), timeout)
        if readable:
            self._read_cause()

    def _read_cause(self) -> None:
        with self._lock:
            if self._stopped:
                return
            data = os.read(self._handle, 65536)
            if data:
                cause: Cause = pickle.loads(data)
                self.token.cancel(cause.reason, mode=cause.mode, source=cause.source)
                self._stopped = True

    def _watch(self) -> None:
        """Have a thread wait for the stop, so that the token's callbacks are called."""
        with self._lock:
            if self._watching:
                return
            self._watching = True
        threading.Thread(target=self.look, args=(None,), name="quiesce-stop-channel", daemon=True).start()

    # --- As a token ---------------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Whether a stop was asked for, in whatever mode."""
        self.look()
        return self._stopped

    @property
    def cause(self) -> Cause | None:
        """The first cause, or None."""
        return self.token.cause if self.cancelled else None

    @property
    def mode(self) -> Mode | None:
        """The most urgent mode asked for, or None."""
        return self.token.mode if self.cancelled else None

    def raise_if_cancelled(self) -> None:
        """Raises `Cancelled` once a stop was asked for."""
        if self.cancelled:
            self.token.raise_if_cancelled()

    def wait_sync(self, timeout: float | None = None) -> bool:
        """Block this thread until a stop is asked for, or for `timeout` seconds. Whether it was."""
        self.look(None if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX))
        return self._stopped

    async def wait(self) -> Cause:
        """Wait until a stop is asked for; returns the first cause."""
        self._watch()
        return await self.token.wait()

    def on_cancel(self, callback: Callable[[Cause], object]) -> Unregister:
        """Call `callback(cause)` once when a stop is asked for."""
        self._watch()
        return self.token.on_cancel(callback)

    def child(self) -> CancellationToken:
        """A token that is cancelled with this one, and can be cancelled alone."""
        self._watch()
        return self.token.child()

    def __repr__(self) -> str:
        return f"<stop channel, {'closed' if self._stopped else 'open'}>"
