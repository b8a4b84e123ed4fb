"""The runs that the server knows, by owner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from .live_run import LiveRun
from .problems import no_such_run
from .stored_runs import StoredRun

ServedRun: TypeAlias = LiveRun | StoredRun


class RunRegistry:
    """The runs of all owners, in order of their start. Only for the server's own loop."""

    def __init__(self) -> None:
        self._by_owner: Final[dict[str, dict[str, ServedRun]]] = {}
        self._active: Final[dict[str, LiveRun]] = {}

    def add(self, run: LiveRun) -> None:
        """Register a run that has just been started."""
        self._by_owner.setdefault(run.info.owner, {})[run.id] = run
        self._active[run.id] = run

    def restore(self, runs: Iterable[StoredRun]) -> None:
        """Register runs of earlier processes."""
        for run in runs:
            self._by_owner.setdefault(run.info.owner, {})[run.id] = run

    def mark_ended(self, run: LiveRun) -> None:
        """Take a run off the active ones."""
        self._active.pop(run.id, None)

    def remove(self, run: ServedRun) -> bool:
        """Delete a run. False when it was deleted before."""
        return self._by_owner[run.info.owner].pop(run.id, None) is not None

    # --- Lookup -------------------------------------------------------------------------------------------------

    def get(self, owner: str, run_id: str) -> ServedRun:
        """One run of an owner. Raises `Problem` when there is none with that id."""
        run = self.of(owner).get(run_id)
        if run is None:
            raise no_such_run()
        return run

    def of(self, owner: str) -> dict[str, ServedRun]:
        """The table of one owner's runs by id, the newest last. Only to read."""
        return self._by_owner.setdefault(owner, {})

    @property
    def owners(self) -> set[str]:
        """The owners that have runs here."""
        return {owner for owner, runs in self._by_owner.items() if runs}

    def newest_first(self, owner: str) -> tuple[ServedRun, ...]:
        """The runs of one owner."""
        return tuple(reversed(self.of(owner).values()))

    def find(self, run_id: str) -> ServedRun | None:
        """The run with this id, of any owner."""
        return next((runs[run_id] for runs in self._by_owner.values() if run_id in runs), None)

    @property
    def active(self) -> tuple[LiveRun, ...]:
        """The runs of all owners that have not ended."""
        return tuple(self._active.values())

    def active_of(self, owner: str) -> int:
        """How many runs of one owner have not ended."""
        return sum(run.info.owner == owner for run in self._active.values())

    def ended(self, owner: str | None = None) -> list[ServedRun]:
        """The ended runs of one owner, or of all, in order of their start."""
        tables = self._by_owner.values() if owner is None else [self.of(owner)]
        return [run for runs in tables for run in runs.values() if run.run is None]
