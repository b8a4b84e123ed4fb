"""Which ended runs are kept in memory, and how a run is deleted."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

from ..errors import ConfigurationError
from .event_log import to_json
from .live_run import LiveRun
from .memory_use import MemoryUse
from .registry import RunRegistry, ServedRun
from .run_list import RunLists
from .sessions import SessionRegistry
from .settings import Settings
from .usage import UsageTotals

_log: Final = logging.getLogger("quiesce.server")


class Retention:
    """Drops ended runs from memory: the oldest of an owner that has too many, or that needs the most memory of all.

    What the store has can still be read from there. The usage of a dropped run still counts.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        runs: RunRegistry,
        sessions: SessionRegistry,
        run_lists: RunLists,
        usage: UsageTotals,
        memory: MemoryUse,
    ) -> None:
        self._settings: Final = settings
        self._runs: Final = runs
        self._sessions: Final = sessions
        self._run_lists: Final = run_lists
        self._usage: Final = usage
        self._memory: Final = memory

    def run_ended(self, run: LiveRun) -> None:
        """Keep a run that has ended: write its receipt to the file of the settings, and drop what is too old."""
        self._runs.mark_ended(run)
        self._write_receipt(run)
        self.keep(run.info.owner, (run,))

    def keep(self, owner: str, runs: Iterable[ServedRun]) -> None:
        """Count the memory of registered runs that have ended, and drop what is too old."""
        for run in runs:
            self._memory.hold(("run", run.id), owner, run.messages, run.log.size)
            self._sessions.measure(owner, run.info.session)
        ended = self._runs.ended(owner)
        for old in ended[: max(0, len(ended) - self._settings.keep_runs)]:
            self.drop(old)
        self._free_memory()

    @property
    def is_full(self) -> bool:
        """Whether the memory for ended runs is used up."""
        return self._memory.total >= self._settings.keep_bytes

    def drop(self, run: ServedRun) -> None:
        """Drop a run from memory."""
        if self._runs.remove(run):
            self._memory.drop(("run", run.id))
            self._usage.add(run)
            self._run_lists.run_deleted(run)

    def _free_memory(self) -> None:
        """Drop the oldest of the owner that needs the most, until all fit: no owner can crowd out another."""
        while self._memory.total > self._settings.keep_bytes:
            if not any(self._drop_oldest(owner) for owner in self._memory.largest_first()):
                return

    def _drop_oldest(self, owner: str) -> bool:
        """Drop the oldest ended run of an owner, and its session when that has no other run; False without any."""
        oldest = next((run for run in self._runs.of(owner).values() if run.run is None), None)
        if oldest is None:
            return self._sessions.drop_oldest(owner)
        self.drop(oldest)
        name = oldest.info.session
        if name is not None and all(run.info.session != name for run in self._runs.of(owner).values()):
            self._sessions.drop(owner, name)
        return True

    def _write_receipt(self, run: LiveRun) -> None:
        if self._settings.receipts is not None:
            line = to_json({"owner": run.info.owner, "agent": run.info.agent.name, "receipt": run.receipt})
            try:
                with open_receipts(self._settings.receipts) as file:
                    file.write(line + b"\n")
            except OSError as error:  # the run has ended all the same, and its readers are told so
                _log.error("the receipt of run %s cannot be written: %s", run.id, error)


def open_receipts(path: Path) -> BinaryIO:
    """The file of the receipts, to add one: only its owner can read it. Raises `OSError`."""
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


def check_receipts(path: Path | None) -> None:
    """Raises `ConfigurationError` when receipts cannot be written there."""
    try:
        if path is not None:
            open_receipts(path).close()
    except OSError as error:
        raise ConfigurationError(f"Receipts cannot be written to {path}: {error.strerror}.") from None
