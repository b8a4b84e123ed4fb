"""The parts of a server that the routes use, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..agent import AnyAgent
from ..cancellation import CancellationToken
from ..sessions import SessionStore
from .agents import AgentTable
from .deps import DepsFactory, DepsSource
from .quotas import Quotas
from .registry import RunRegistry
from .retention import Retention, check_receipts
from .run_list import RunLists
from .sessions import SessionRegistry
from .settings import Settings
from .starter import RunStarter
from .stored_runs import StoredRuns
from .undo import UndoTasks
from .usage import UsageTotals

if TYPE_CHECKING:
    from .fleet_service import FleetService


class Services:
    """Everything that one server holds. Only for the server's own loop.

    agents      the agents by name
    deps        makes the deps of each run
    runs        the runs by owner
    sessions    the named conversations by owner
    run_lists   the streams of changes in the run lists
    quotas      the limits on runs and streams, and whether the server drains
    usage       the usage of deleted runs
    retention   deletes ended runs
    starter     starts runs
    undos       the undos that are in progress
    shutdown    cancelled when the time for draining is almost over
    fleet       the runs of all replicas; None when this process runs its own
    """

    def __init__(
        self,
        agents: Sequence[AnyAgent],
        settings: Settings,
        store: SessionStore | None = None,
        deps: DepsFactory | None = None,
        fleet: FleetService | None = None,
    ) -> None:
        self.settings: Final = settings
        self.shutdown: Final = CancellationToken()
        self.agents: Final = AgentTable(agents)
        self.deps: Final = DepsSource(deps, agents, settings.max_wait)
        self.runs: Final = RunRegistry()
        self.sessions: Final = SessionRegistry(settings.keep_sessions, store)
        self.run_lists: Final = RunLists(self.runs)
        self.quotas: Final = Quotas(settings, self.runs)
        self.usage: Final = UsageTotals()
        self.retention: Final = Retention(settings, self.runs, self.run_lists, self.usage)
        self.starter: Final = RunStarter(self)
        self.undos: Final = UndoTasks(self.quotas, self.run_lists, self.shutdown)
        self.fleet: Final = fleet
        self._store: Final = store

    async def open(self) -> None:
        """Restore the sessions and runs of earlier servers from the store. Crashed runs are at rest afterwards.

        Raises `ConfigurationError` when receipts cannot be written.
        """
        check_receipts(self.settings.receipts)
        if self.fleet is not None:
            await self.fleet.fleet.__aenter__()
        if self._store is None or self.fleet is not None:
            return
        restored = await StoredRuns(self._store).restore(self.agents.by_name, self.settings.keep_sessions)
        for each in restored:
            self.sessions.restore(each.owner, each.name, each.agent, each.session)
        runs = sorted((run for each in restored for run in each.runs), key=lambda run: run.info.created_at)
        self.runs.restore(runs[-self.settings.keep_runs :])

    async def close(self) -> None:
        """Close the store."""
        if self.fleet is not None:
            await self.fleet.fleet.__aexit__()
        if self._store is not None:
            await asyncio.wrap_future(self._store.close())
