"""Background programs that a task keeps running in this process while it waits for a person."""

from __future__ import annotations

from typing import Final, Protocol


class Paused(Protocol):
    """The background programs of one waiting task."""

    def end(self) -> None:
        """End the programs, because the task is over. From any thread; returns at once."""


_BY_TASK: Final[dict[str, Paused]] = {}


def keep_paused(task_id: str, paused: Paused) -> None:
    """Keep the programs of a task until a run resumes it, or it is known to be over."""
    _BY_TASK[task_id] = paused


def take_paused(task_id: str) -> Paused | None:
    """Remove and return the programs of a task, for the run that resumes it."""
    return _BY_TASK.pop(task_id, None)


def end_paused(task_id: str) -> None:
    """End the programs of a task that is over."""
    paused = _BY_TASK.pop(task_id, None)
    if paused is not None:
        paused.end()
