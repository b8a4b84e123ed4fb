"""How many runs and event streams there may be; while the server drains, no new runs."""

from __future__ import annotations

from typing import Final

from .problems import Problem
from .registry import RunRegistry
from .settings import Settings

_RETRY_AFTER: Final = {"Retry-After": "1"}


class Quotas:
    """Refuses runs and streams above the limits of the settings. Only for the server's own loop."""

    def __init__(self, settings: Settings, runs: RunRegistry) -> None:
        self.draining = False
        self._settings: Final = settings
        self._runs: Final = runs
        self._streams: Final[dict[str, int]] = {}

    # --- Runs ---------------------------------------------------------------------------------------------------

    def check_not_draining(self) -> None:
        """Raise `Problem` while the server drains."""
        if self.draining:
            message = "The server is shutting down and accepts no new runs."
            headers = {"Retry-After": str(max(1, round(self._settings.drain)))}
            todo = "Try again in a moment; another server may answer."
            raise Problem(503, "draining", message, todo=todo, headers=headers)

    def check_new_run(self, owner: str) -> None:
        """Raise `Problem` when the owner may not start a run now."""
        self.check_not_draining()
        own, total = self._runs.active_of(owner), len(self._runs.active)
        if own >= self._settings.max_runs_per_key or total >= self._settings.max_runs:
            message = f"Too many runs are active: {own} of this key, {total} in total."
            todo = "Wait until one has ended, or stop one."
            raise Problem(429, "too_many_runs", message, todo=todo, headers=_RETRY_AFTER)

    # --- Streams ------------------------------------------------------------------------------------------------

    @property
    def open_streams(self) -> int:
        """The number of open event streams of all owners."""
        return sum(self._streams.values())

    def stream_opened(self, owner: str) -> None:
        """Count a stream in. Raises `Problem` when there are too many."""
        own = self._streams.get(owner, 0)
        if own >= self._settings.max_streams_per_key or self.open_streams >= self._settings.max_streams:
            message = f"Too many event streams are open: {own} of this key, {self.open_streams} in total."
            todo = "Close one, or poll GET /runs/{id} instead."
            raise Problem(429, "too_many_streams", message, todo=todo, headers=_RETRY_AFTER)
        self._streams[owner] = own + 1

    def stream_closed(self, owner: str) -> None:
        """Count a stream out."""
        self._streams[owner] -= 1
        if not self._streams[owner]:
            del self._streams[owner]
