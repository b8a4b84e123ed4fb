"""The parts of a server that the routes use, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import anyio

from ..agent import AnyAgent
from ..cancellation import CancellationToken
from ..sessions import SessionStore
from .agents import AgentTable
from .audit import Audit
from .deps import DepsFactory, DepsSource
from .history import History
from .memory_use import MemoryUse
from .quotas import Quotas
from .registry import RunRegistry
from .retention import Retention, check_receipts
from .run_list import RunLists
from .sessions import SessionRegistry
from .settings import Settings
from .standing_approvals import StandingApprovals
from .starter import RunStarter
from .undo import UndoTasks
from .usage import UsageTotals

if TYPE_CHECKING:
    from .fleet_service import FleetService

# Seconds that a server which shuts down waits for the audit to be written.
_CLOSE_WAIT: Final = 5.0


class Services:
    """Everything that one server holds. Only for the server's own loop.

    agents      the agents by name
    deps        makes the deps of each run
    runs        the runs by owner
    sessions    the named conversations by owner
    run_lists   the streams of changes in the run lists
    quotas      the limits on runs and streams, and whether the server drains
    usage       the usage of runs that are not in memory
    retention   drops ended runs from memory
    history     finds runs and sessions in memory or in the store, and deletes them
    starter     starts runs
    undos       the undos that are in progress
    shutdown    cancelled when the time for draining is almost over
    fleet       the runs of all replicas; None when this process runs its own
    records     the audit and the standing approvals of each owner
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
        memory = MemoryUse()
        self.sessions: Final = SessionRegistry(settings.keep_sessions, memory, store)
        self.run_lists: Final = RunLists(self.runs)
        self.quotas: Final = Quotas(settings, self.runs)
        self.usage: Final = UsageTotals(stored=store is not None)
        self.retention: Final = Retention(
            settings,
            runs=self.runs,
            sessions=self.sessions,
            run_lists=self.run_lists,
            usage=self.usage,
            memory=memory,
        )
        self.history: Final = History(
            settings,
            agents=self.agents,
            runs=self.runs,
            sessions=self.sessions,
            retention=self.retention,
            usage=self.usage,
            store=store,
        )
        self.starter: Final = RunStarter(self)
        self.undos: Final = UndoTasks(self.quotas, self.run_lists, self.shutdown)
        self.fleet: Final = fleet
        self.records: Final = OwnerRecords(store)

    async def open(self) -> None:
        """List the stored sessions of earlier servers. Raises a `StoreError`.

        Raises `ConfigurationError` when receipts cannot be written.
        """
        check_receipts(self.settings.receipts)
        if self.fleet is not None:
            await self.fleet.fleet.__aenter__()
        else:
            await self.history.open()

    async def close(self) -> None:
        """Close the store."""
        if self.fleet is not None:
            await self.fleet.fleet.__aexit__()
        await self.records.close()


class OwnerRecords:
    """What is kept for each owner beside its runs, in the store if there is one."""

    def __init__(self, store: SessionStore | None) -> None:
        self.audit: Final = Audit(store)
        self.approvals: Final = StandingApprovals(store)
        self._store: Final = store

    async def close(self) -> None:
        """Write what waits, for a bounded time, and close the store."""
        with anyio.move_on_after(_CLOSE_WAIT):
            await self.audit.close()
        if self._store is not None:
            await asyncio.wrap_future(self._store.close())
