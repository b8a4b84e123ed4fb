"""What tasks keep in this process while they wait for a person: programs that go on in the background."""

from __future__ import annotations

from typing import Final, Protocol


class Paused(Protocol):
    """What one task keeps while it waits."""

    def end(self) -> None:
        """The task does not go on: end what was kept. From any thread; returns at once."""


_BY_TASK: Final[dict[str, Paused]] = {}


def keep_paused(task_id: str, paused: Paused) -> None:
    """Keep something until the task goes on, or is known to be over."""
    _BY_TASK[task_id] = paused


def take_paused(task_id: str) -> Paused | None:
    """What the task has kept, for the run that goes on with it."""
    return _BY_TASK.pop(task_id, None)


def end_paused(task_id: str) -> None:
    """The task does not go on."""
    paused = _BY_TASK.pop(task_id, None)
    if paused is not None:
        paused.end()
