"""Which ended runs are kept, and for how long."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import BinaryIO, Final

from ..errors import ConfigurationError
from .event_log import to_json
from .live_run import LiveRun
from .problems import Problem
from .registry import RunRegistry, ServedRun
from .run_list import RunLists
from .settings import Settings
from .usage import UsageTotals

_log: Final = logging.getLogger("quiesce.server")


class Retention:
    """Deletes ended runs: on request, and the oldest when an owner has too many or all together need too much memory.

    The usage of a deleted run still counts.
    """

    def __init__(self, settings: Settings, runs: RunRegistry, run_lists: RunLists, usage: UsageTotals) -> None:
        self._settings: Final = settings
        self._runs: Final = runs
        self._run_lists: Final = run_lists
        self._usage: Final = usage
        self._log_bytes = 0

    def run_ended(self, run: LiveRun) -> None:
        """Keep a run that has ended: write its receipt to the file of the settings, and delete what is too old."""
        self._runs.mark_ended(run)
        self._log_bytes += run.log.size
        self._write_receipt(run)
        ended = self._runs.ended(run.info.owner)
        for old in ended[: max(0, len(ended) - self._settings.keep_runs)]:
            self._delete(old)
        if self._log_bytes > self._settings.keep_bytes:
            self._free_memory()

    def delete(self, run: ServedRun) -> None:
        """Delete an ended run. Raises `Problem` while it is running."""
        if run.run is not None:
            raise Problem(409, "running", "The run has not ended.", todo="Stop it first: POST /runs/{id}/cancel.")
        self._delete(run)

    def _delete(self, run: ServedRun) -> None:
        if self._runs.remove(run):
            self._log_bytes -= run.log.size
            self._usage.add(run)
            self._run_lists.run_deleted(run)

    def _free_memory(self) -> None:
        for old in sorted(self._runs.ended(), key=lambda run: run.ended_at or 0.0):
            if self._log_bytes <= self._settings.keep_bytes:
                return
            self._delete(old)

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
