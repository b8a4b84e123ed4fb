"""Undo requests: each runs as a task, which goes on when its client disconnects."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from ..cancellation import CancellationToken
from ..result import RunResult
from .quotas import Quotas
from .registry import ServedRun
from .run_list import RunLists

_log: Final = logging.getLogger("quiesce.server")


class UndoTasks:
    """The undos that are in progress, one per run at most. `shutdown` stops them."""

    def __init__(self, quotas: Quotas, run_lists: RunLists, shutdown: CancellationToken) -> None:
        self._quotas: Final = quotas
        self._run_lists: Final = run_lists
        self._shutdown: Final = shutdown
        self._tasks: Final[dict[str, asyncio.Task[Any]]] = {}

    def start(self, run: ServedRun, result: RunResult) -> asyncio.Task[Any]:
        """Undo what a run's tools did, unless that is in progress. The outcomes go to the receipt.

        Raises `Problem` while the server drains.
        """
        task = self._tasks.get(run.id)
        if task is None:
            self._quotas.check_not_draining()
            task = asyncio.get_running_loop().create_task(result.undo(self._shutdown), name=f"undo of run {run.id}")
            self._tasks[run.id] = task
            task.add_done_callback(lambda done: self._ended(run, done))
        return task

    def _ended(self, run: ServedRun, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(run.id, None)
        self._run_lists.run_changed(run)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the undo of run %s failed", run.id, exc_info=error)

    @property
    def running(self) -> tuple[asyncio.Task[Any], ...]:
        """The tasks of the undos that are in progress."""
        return tuple(self._tasks.values())
