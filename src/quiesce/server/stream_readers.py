"""The clients that read a run's events; with `on_disconnect="cancel"` the run is stopped when there are none."""

from __future__ import annotations

import asyncio
from typing import Final

from ..run.handle import Run
from .run_metadata import RunMetadata


class StreamReaders:
    """Counts the open event streams of one run; `run` is None for a run that has ended. Only for the run's own loop.

    A client that has not connected within the grace period after the start counts as disconnected.
    """

    def __init__(self, run: Run | None, info: RunMetadata) -> None:
        self.count = 0
        self._run = run
        self._info: Final = info
        self._timer: asyncio.TimerHandle | None = None
        self._start_timer()

    def connected(self) -> None:
        """Count a reader in."""
        self.count += 1
        self._cancel_timer()

    def disconnected(self) -> None:
        """Count a reader out; after the last one the grace period begins."""
        self.count -= 1
        self._start_timer()

    def close(self) -> None:
        """Stop watching: the run has ended."""
        self._run = None
        self._cancel_timer()

    def _start_timer(self) -> None:
        may_cancel = self._info.on_disconnect == "cancel" and self._run is not None
        if may_cancel and self.count == 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._info.disconnect_grace, self._cancel_run)

    def _cancel_run(self) -> None:
        self._timer = None
        if self._run is not None and self.count == 0:
            reason = f"no client has read this run's events for {self._info.disconnect_grace:g} s"
            self._run.cancel(reason, mode=self._info.mode, source="disconnect")

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
