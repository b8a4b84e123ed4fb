"""Going down without breaking anything: no new runs, and those that run are stopped, patiently at first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ..cancellation import Mode
from ..run.handle import Run
from .registry import RunRegistry

# Each stop, and the share of the time after which it is asked for. What `kill` needs is little, and must be left.
_LADDER: Final = ((0.0, Mode.AFTER_TURN), (0.5, Mode.NOW), (0.8, Mode.KILL))
_REASON: Final = "the server is shutting down"


class Drain:
    """The end of a server. `begin()` may be called often; `hurry()` skips to the least patient stop."""

    def __init__(self, desk: RunRegistry) -> None:
        self._desk: Final = desk
        self._task: asyncio.Task[None] | None = None
        self._hurry: asyncio.Event | None = None

    def begin(self) -> asyncio.Task[None]:
        """Take no new runs, and stop those that run. The task ends when all are at rest, or the time is over."""
        if self._task is None:
            self._desk.draining = True
            self._hurry = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._drain(self._hurry), name="quiesce drain")
        return self._task

    def hurry(self) -> None:
        """Somebody is out of patience."""
        if self._hurry is not None:
            self._hurry.set()

    async def _drain(self, hurry: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        begun, seconds = loop.time(), self._desk.settings.drain
        runs = [record.run for record in self._desk.active if record.run is not None]
        ends: list[asyncio.Task[Any]] = [*self._desk.undoing]
        ends += [loop.create_task(run.stopped(), name=f"end of run {run.id}") for run in runs]
        impatient = loop.create_task(hurry.wait(), name="drain in a hurry")
        try:
            for step, (_, mode) in enumerate(_LADDER):
                urgent = Mode.KILL if hurry.is_set() else mode
                _stop(runs, urgent)
                if urgent is Mode.KILL:
                    self._desk.shutdown.cancel(_REASON, source="shutdown")
                until = _LADDER[step + 1][0] if step + 1 < len(_LADDER) else 1.0
                await _wait(ends, impatient, begun + until * seconds - loop.time())
        finally:
            for task in (*ends, impatient):
                task.cancel()
            for record in self._desk.active:  # what could not even be killed must not hold up the readers
                record.log.close()
            self._desk.end_changes()


def _stop(runs: Iterable[Run], mode: Mode) -> None:
    for run in runs:
        run.cancel(_REASON, mode=mode, source="shutdown")


async def _wait(ends: Sequence[asyncio.Task[Any]], impatient: asyncio.Task[Any], seconds: float) -> None:
    """Until all runs have ended, or the time is over, or somebody is newly out of patience."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(0.0, seconds)
    was_impatient = impatient.done()
    pending = {task for task in ends if not task.done()}
    while pending and loop.time() < deadline and (was_impatient or not impatient.done()):
        waiting = pending if was_impatient else {*pending, impatient}
        await asyncio.wait(waiting, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        pending = {task for task in pending if not task.done()}
