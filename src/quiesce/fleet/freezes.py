"""Freezes of a fleet: the runs of an agent are stopped, and none starts until the freeze is released."""

from __future__ import annotations

import builtins
from typing import Any, Final

from ..cancellation import Mode
from ..errors import ConfigurationError, StoreUnavailable
from . import freeze_table, run_table, webhook_table
from .database import FleetDatabase
from .freeze_table import Freeze
from .records import ACTIVE, StopBody

_MOST_RUNS: Final = 1_000_000
# A transaction over many runs can be chosen to end a deadlock; then it is made again.
_ATTEMPTS: Final = 3


class Freezes:
    """The freezes of a fleet, from any process."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database: Final = database

    async def freeze(
        self, agent: str | None = None, *, by: str, reason: str, mode: Mode = Mode.NOW
    ) -> tuple[Freeze, builtins.list[str]]:
        """Freeze an agent, or all; gives the freeze, and the runs whose stop is accepted. All of it or nothing.

        For an agent that is frozen already, the runs that are left are stopped in this mode, and the freeze is the
        one on record. Raises `ConfigurationError` without a name of who does it, and a `StoreError`.
        """
        _check_name(by)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._database.transaction() as db:
                    freeze = await freeze_table.insert(db, agent or "", by, reason)
                    return freeze, await self._stop_all(db, agent, freeze_table.stop_of(freeze, mode))
            except StoreUnavailable:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    async def _stop_all(self, db: Any, agent: str | None, stop: StopBody) -> builtins.list[str]:
        """Stop what is queued and what runs, in the transaction of the freeze."""
        active = await run_table.select(db, run_table.Wanted(states=ACTIVE, agent=agent), _MOST_RUNS)
        run_ids = sorted(run.id for run in active)
        if not run_ids:
            return []
        commands = await run_table.stop_running(db, run_ids, stop)
        left = [run_id for run_id in run_ids if run_id not in commands]
        ended = await run_table.stop_queued(db, self._database.engine, left, stop) if left else []
        await webhook_table.record(db, ended)
        return [*commands, *(run.id for run in ended)]

    async def release(self, agent: str | None = None, *, by: str, reason: str = "") -> Freeze | None:
        """Release the freeze of an agent, or that of all agents; gives it, or None when there is none."""
        _check_name(by)
        return await self._database.ask(freeze_table.release, agent or "", by, reason)

    async def list(self, *, active_only: bool = False, limit: int = 100) -> builtins.list[Freeze]:
        """The freezes on record: those that hold first, then the newest."""
        return await self._database.ask(freeze_table.select, active_only=active_only, limit=limit)


def _check_name(by: str) -> None:
    if not by.strip():
        raise ConfigurationError("The name of the person who freezes or releases is missing.", todo="Pass by='...'.")
