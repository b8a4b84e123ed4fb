"""Undo requests: each runs as a task, which goes on when its client disconnects."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from ..cancellation import CancellationToken
from ..task import Task
from .problems import Problem
from .quotas import Quotas
from .registry import ServedRun
from .run_list import RunLists

_log: Final = logging.getLogger("quiesce.server")


def _latest_task(run: ServedRun) -> Task | None:
    """The task of a run, if it is the last one of its conversation. Raises `Problem` when it cannot be undone."""
    task = run.conversation.task
    if task is not None and run.id in task.run_ids:
        return task
    if run.result is None:
        raise Problem(409, "too_late", "A newer prompt has come, and the process that could undo this run has ended.")
    return None


class UndoTasks:
    """The undos that are in progress, one per run at most. `shutdown` stops them."""

    def __init__(self, quotas: Quotas, run_lists: RunLists, shutdown: CancellationToken) -> None:
        self._quotas: Final = quotas
        self._run_lists: Final = run_lists
        self._shutdown: Final = shutdown
        self._tasks: Final[dict[str, asyncio.Task[Any]]] = {}

    def start(self, run: ServedRun) -> asyncio.Task[Any]:
        """Undo what the task of a run did, unless that is in progress. The outcomes go to the receipt.

        Raises `Problem` while the server drains, and for a run of an earlier process when a newer prompt has come.
        """
        task = self._tasks.get(run.id)
        if task is None:
            self._quotas.check_not_draining()
            name = f"undo of run {run.id}"
            task = asyncio.get_running_loop().create_task(self._undo(run, _latest_task(run)), name=name)
            self._tasks[run.id] = task
            task.add_done_callback(lambda done: self._ended(run, done))
        return task

    async def _undo(self, run: ServedRun, task: Task | None) -> None:
        if run.result is not None and task is None:  # a newer prompt has come: this process still knows what to undo
            await run.result.undo(self._shutdown)
            return
        conversation = run.conversation
        receipts = await run.info.agent.undo_async(conversation=conversation, token=self._shutdown)
        if run.result is None and run.receipt is not None:
            run.receipt.undo.extend(receipts)

    def _ended(self, run: ServedRun, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(run.id, None)
        self._run_lists.run_changed(run)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the undo of run %s failed", run.id, exc_info=error)

    @property
    def running(self) -> tuple[asyncio.Task[Any], ...]:
        """The tasks of the undos that are in progress."""
        return tuple(self._tasks.values())
