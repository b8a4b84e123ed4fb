"""A worker's contact with the store: how long ago its lease was renewed, and whether it is about to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# The part of a lease without a renewal after which the runs are stopped. The rest is the time in which they end.
_GIVE_UP: Final = 0.75
# Seconds that an attempt to renew has at least. Where processors are busy, it may begin late.
LEAST_ATTEMPT: Final = 1.0


class StoreContact:
    """Calls `on_lost` when the lease was not renewed for so long that others may soon take the runs over.

    A timer, so that a call to the store which hangs does not delay it. Only for one loop.
    """

    def __init__(self, lease: float, on_lost: Callable[[], None]) -> None:
        self._lease: Final = lease
        self._on_lost: Final = on_lost
        self._renewed_at = 0.0
        self._trying_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def trying(self) -> float:
        """Note that a renewal is about to be sent; gives the loop's time."""
        now = asyncio.get_running_loop().time()
        if self._trying_since is None:
            self._trying_since = now
        return now

    def renewed(self, at: float) -> None:
        """Note a renewal that was sent at this time."""
        self._renewed_at, self._trying_since = at, None
        self._wait_until(at + _GIVE_UP * self._lease)

    @property
    def since_renewal(self) -> float:
        """Seconds since the last renewal."""
        return asyncio.get_running_loop().time() - self._renewed_at

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait_until(self, time: float) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_at(time, self._on_timer)

    def _on_timer(self) -> None:
        assert self._timer is not None
        now = asyncio.get_running_loop().time()
        if self._trying_since is None or now - self._timer.when() > LEAST_ATTEMPT:
            self._trying_since = now  # the process was suspended, or got no processor: a renewal is tried first
        tried_for = now - self._trying_since
        if tried_for < LEAST_ATTEMPT:
            self._wait_until(now + LEAST_ATTEMPT - tried_for)
        else:
            self._on_lost()
