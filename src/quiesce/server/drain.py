"""Shutdown: the server accepts no new runs and stops the running ones, more urgently as time passes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from ..cancellation import Mode
from .services import Services

# The stops, each with the fraction of the drain time after which it is requested. The last fifth is for `kill`.
_STOPS: Final = ((0.0, Mode.AFTER_TURN), (0.5, Mode.NOW), (0.8, Mode.KILL))
_REASON: Final = "the server is shutting down"


class Drain:
    """Shuts a server down. `begin()` may be called more than once; `hurry()` skips to `kill`."""

    def __init__(self, services: Services) -> None:
        self._services: Final = services
        self._task: asyncio.Task[None] | None = None
        self._hurry: asyncio.Event | None = None

    @property
    def begun(self) -> bool:
        """Whether the server is shutting down."""
        return self._task is not None

    def begin(self) -> asyncio.Task[None]:
        """Accept no new runs and stop the running ones. The task ends when all are at rest or the time is over."""
        if self._task is None:
            self._services.quotas.draining = True
            self._hurry = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._drain(self._hurry), name="quiesce drain")
        return self._task

    def hurry(self) -> None:
        """Kill what is still running, without waiting for the rest of the drain time."""
        if self._hurry is not None:
            self._hurry.set()

    async def _drain(self, hurry: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        services = self._services
        begun, seconds = loop.time(), services.settings.drain
        runs = [live.run for live in services.runs.active if live.run is not None]
        ends: list[asyncio.Task[Any]] = [*services.undos.running]
        ends += [loop.create_task(run.stopped(), name=f"end of run {run.id}") for run in runs]
        hurried = loop.create_task(hurry.wait(), name="drain in a hurry")
        try:
            for step, (_, mode) in enumerate(_STOPS):
                current = Mode.KILL if hurry.is_set() else mode
                for run in runs:
                    run.cancel(_REASON, mode=current, source="shutdown")
                if current is Mode.KILL:
                    services.shutdown.cancel(_REASON, source="shutdown")
                until = _STOPS[step + 1][0] if step + 1 < len(_STOPS) else 1.0
                await _wait(ends, hurried, begun + until * seconds - loop.time())
        finally:
            for task in (*ends, hurried):
                task.cancel()
            for live in services.runs.active:  # the readers of a run that cannot be killed must not wait for it
                live.log.close()
            services.run_lists.close()
            if services.fleet is not None:
                services.fleet.closing.set()


async def _wait(ends: Sequence[asyncio.Task[Any]], hurried: asyncio.Task[Any], seconds: float) -> None:
    """Wait until all runs have ended, the time is over, or `hurried` becomes done during the wait."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(0.0, seconds)
    was_hurried = hurried.done()
    pending = {task for task in ends if not task.done()}
    while pending and loop.time() < deadline and (was_hurried or not hurried.done()):
        waiting = pending if was_hurried else {*pending, hurried}
        await asyncio.wait(waiting, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        pending = {task for task in pending if not task.done()}
