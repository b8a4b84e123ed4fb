"""A worker: takes runs from the queue, runs them, and keeps its hold on them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ..agent import AnyAgent
from ..cancellation import Mode
from ..errors import ConfigurationError, StoreError, StoreUnavailable
from ..sessions.stores.resolve import resolve_store
from ..telemetry import Telemetry
from ..telemetry.fleet_metrics import FleetMetrics
from . import run_table, webhook_table
from .cap_table import Share
from .contact import LEAST_ATTEMPT, StoreContact
from .database import FleetDatabase
from .execution import Execution, FleetDepsFactory
from .listener import Listener, is_set_within
from .notifier import ChangeNotifier
from .records import FleetRun, WorkerInfo, check_limits
from .taking import RowLocked, ServedAgent, take
from .versions import agent_version, resettle
from .webhooks import WebhookSender

_log: Final = logging.getLogger("quiesce.fleet")
# Seconds after which commands are read again although no notification has come.
SLOW_PACE: Final = 5.0
# Seconds between attempts while the database is away.
_TRY_AGAIN: Final = 0.5
# Seconds after which a worker ends although the database does not answer.
_LEAVE_TIMEOUT: Final = 5.0
# Seconds until runs are taken again when one of them was locked: the other transaction takes about as long.
_LOCKED_PAUSE: Final = 0.01
# The stops of a drain, each with the fraction of the time after which it is requested. The last fifth is for `kill`.
_STOPS: Final = ((0.0, Mode.AFTER_TURN), (0.5, Mode.NOW), (0.8, Mode.KILL))
_LOST_CONTACT: Final = "the worker has lost contact with the store"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The limits of a worker. All times are in seconds.

    capacity   runs at once
    lease      how long the worker keeps its runs without renewing them; then another one takes them over
    drain      time from SIGTERM to the end of the last run

    accept_changed_agents   go on with runs that another version of an agent has begun, when no worker has that version
    """

    capacity: int = 20
    lease: float = 15.0
    drain: float = 30.0
    accept_changed_agents: bool = False

    def __post_init__(self) -> None:
        check_limits(self.capacity, self.drain, lease=self.lease)


class _Served(NamedTuple):
    """An agent of this worker."""

    agent: AnyAgent
    terms: ServedAgent

    @classmethod
    def of(cls, agent: AnyAgent) -> _Served:
        limits = agent.config.limits
        return cls(agent, ServedAgent(agent_version(agent), Share(limits.tokens, limits.cost)))


class Worker:
    """Takes runs of these agents from the Postgres at `store`. For one event loop; used once.

    `deps` makes the deps of each run from its `FleetRun`; `telemetry` measures the worker. Raises `ConfigurationError`
    for no agent, two of the same name, or a store that is no Postgres.
    """

    def __init__(
        self,
        *agents: AnyAgent,
        store: str,
        settings: WorkerSettings | None = None,
        deps: FleetDepsFactory | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.settings: Final = settings or WorkerSettings()
        self.metrics: Final = FleetMetrics() if telemetry is None else telemetry.fleet
        self.id: Final = uuid.uuid4()
        self.deps: Final = deps
        self.database: Final = FleetDatabase(store)
        self.store: Final = resolve_store(store)
        self._agents: Final = {agent.name: _Served.of(agent) for agent in agents}
        if len(self._agents) != len(agents) or not agents:
            raise ConfigurationError("A worker needs agents with different names.", todo="Pass one or more agents.")
        self._executions: Final[dict[str, tuple[Execution, asyncio.Task[None]]]] = {}
        self._notifier: Final = ChangeNotifier(self.database)
        self._webhooks: Final = WebhookSender(self.database)
        self._has_work: Final = asyncio.Event()
        self._has_commands: Final = asyncio.Event()
        self._contact: Final = StoreContact(self.lease, self._on_contact_lost)
        self._draining = False
        channels = (self.database.engine.channel, run_table.worker_channel(self.id.hex), webhook_table.CHANNEL)
        self._listener: Final = Listener(self.database, channels, self._on_notify, self._on_gap)

    @property
    def lease(self) -> float:
        """See `ExecutionHost.lease`."""
        return self.settings.lease

    # --- Living ---------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event | None = None) -> None:
        """Take and run until `stop` is set; then drain. `hurry` makes it kill the runs at once. Raises a `StoreError`.

        That is raised only when the database cannot be reached at the beginning, for the time of a lease. What ends one
        of the worker's own loops is a bug: its runs are continued by another worker, and it is raised.
        """
        try:
            if await self._join(stop):
                await self._work(stop, hurry)
        finally:
            await self.database.close()
            await asyncio.wait((asyncio.wrap_future(self.store.close()),), timeout=_LEAVE_TIMEOUT)

    async def _join(self, stop: asyncio.Event) -> bool:
        """Record the first heartbeat. While the database is away, try again; False when `stop` is set first."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.lease
        while not stop.is_set():
            try:
                await self._renew()
                return True
            except StoreError as error:
                if not error.retryable or loop.time() > give_up:
                    raise
                _log.warning("the worker cannot begin yet: %s", error)
            await is_set_within(_TRY_AGAIN, stop)
        return False

    async def _work(self, stop: asyncio.Event, hurry: asyncio.Event | None) -> None:
        loop = asyncio.get_running_loop()
        loops = (self._listener, self._notifier, self._webhooks)
        tasks = [loop.create_task(each.run(), name="fleet worker") for each in loops]
        more = (self._renewing(), self._delivering(), self._tidying())
        tasks += [loop.create_task(each, name="fleet worker") for each in more]
        taking = loop.create_task(self._taking(), name="fleet worker: taking")
        stopping = loop.create_task(stop.wait(), name="fleet worker: stop")
        try:
            await asyncio.wait((*tasks, taking, stopping), return_when=asyncio.FIRST_COMPLETED)
            self._draining = True
            taking.cancel()
            await asyncio.wait((taking,))
            await self._drain(hurry)
        finally:
            for task in (*tasks, taking, stopping):
                task.cancel()
            await asyncio.wait((*tasks, taking, stopping))
            self._contact.close()
            await self._leave()
        for task in (*tasks, taking):
            if not task.cancelled():
                task.result()  # raises what has ended a loop of the worker

    async def _leave(self) -> None:
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LEAVE_TIMEOUT):
                await self._notifier.flush()
                await self.database.ask(run_table.forget_worker, self.id.hex)

    async def _drain(self, hurry: asyncio.Event | None) -> None:
        """Stop the runs, more urgently as time passes. Each is continued by another worker."""
        with suppress(StoreError):
            await self._renew_in_time()
        loop = asyncio.get_running_loop()
        begun, hurried = loop.time(), loop.create_task((hurry or asyncio.Event()).wait())
        for step, (_, mode) in enumerate(_STOPS):
            current = Mode.KILL if hurried.done() else mode
            for execution, _ in self._executions.values():
                execution.stop_for_shutdown(current)
            until = begun + self.settings.drain * (_STOPS[step + 1][0] if step + 1 < len(_STOPS) else 1.0)
            while self._executions and loop.time() < until and (current is Mode.KILL or not hurried.done()):
                running = [task for _, task in self._executions.values()]
                waiting = running if current is Mode.KILL else [*running, hurried]
                await asyncio.wait(waiting, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        left = [task for _, task in self._executions.values()]
        for task in left:
            task.cancel()
        if left:  # their runs are taken over when the lease is over
            await asyncio.wait(left)

    # --- Taking ---------------------------------------------------------------------------------------------------

    async def _taking(self) -> None:
        while True:
            self._has_work.clear()
            taken: list[FleetRun] = []
            try:
                taken = await self._take()
            except StoreError as error:
                _log.warning("no runs can be taken: %s", error)
                await asyncio.sleep(_TRY_AGAIN)
            for run in taken:
                self._begin(run)
            if not taken:  # the loss of a worker is not notified
                await is_set_within(self.lease / 3, self._has_work)

    async def _take(self) -> list[FleetRun]:
        free = self.settings.capacity - len(self._executions)
        if free <= 0:
            return []
        if self._contact.since_renewal > self.lease / 2:  # else this worker could take its own runs again
            await self._renew()
        served = {name: each.terms for name, each in self._agents.items()}
        while True:
            try:
                async with self.database.transaction() as db:
                    return await take(db, self.database.engine, served, free, self.id, lease=self.lease)
            except RowLocked:
                await asyncio.sleep(_LOCKED_PAUSE)

    def _begin(self, run: FleetRun) -> None:
        if run.id in self._executions:  # this worker was away for longer than its lease, and nothing took the run
            self._executions[run.id][0].run = run
            return
        if run.attempt == 1:
            self.metrics.started(run.agent, (run.started or run.created) - run.created)
        else:
            self.metrics.run_lost(run.agent)
        execution = Execution(self, self._agents[run.agent].agent, run)
        task = asyncio.get_running_loop().create_task(self._perform(execution), name=f"fleet run {run.id}")
        self._executions[run.id] = (execution, task)

    async def _perform(self, execution: Execution) -> None:
        try:
            await execution.perform()
        except StoreError as error:
            _log.warning("run %s is left to another worker: %s", execution.run.id, error)
        except Exception:
            _log.exception("run %s is left to another worker", execution.run.id)
        finally:
            self._executions.pop(execution.run.id, None)
            self._has_work.set()

    # --- Holding --------------------------------------------------------------------------------------------------

    @property
    def _versions(self) -> dict[str, str]:
        return {name: each.terms.version for name, each in self._agents.items()}

    async def _renewing(self) -> None:
        pause = self.lease / 4
        while True:
            await asyncio.sleep(pause)
            pause = self.lease / 4
            try:
                await self._renew_in_time()
                await self._resettle()
            except StoreError as error:
                _log.warning("the runs cannot be renewed: %s", error)
                pause = min(pause, _TRY_AGAIN)

    def _on_contact_lost(self) -> None:
        """Stop the runs: other workers take them over when the lease ends, and what they do then is not saved."""
        for execution, _ in tuple(self._executions.values()):
            execution.stop_for_shutdown(Mode.NOW, _LOST_CONTACT)

    async def _renew_in_time(self) -> None:
        """Renew, with time left in the lease for another attempt, on another connection."""
        try:
            async with asyncio.timeout(max(self.lease / 3, LEAST_ATTEMPT)):
                await self._renew()
        except TimeoutError:
            raise StoreUnavailable(detail=f"{self.database.url}: it does not answer in time.") from None

    async def _renew(self) -> None:
        """Record a heartbeat and keep the runs. The time counts from before the call."""
        at = self._contact.trying()
        info = WorkerInfo(
            self.id.hex, socket.gethostname(), os.getpid(), tuple(self._agents), self.settings.capacity, 0, 0.0, 0.0,
            self.lease, self._draining, tuple(run_table.queue_name(*each) for each in self._versions.items()),
        )  # fmt: skip
        async with self.database.transaction() as db:
            await run_table.register(db, info)
            jobs = [execution.run.job for execution, _ in self._executions.values()]
            if jobs:
                await self.database.engine.renew(db, jobs)
        self._contact.renewed(at)

    async def _resettle(self) -> None:
        """Deal with queued runs of a version that no worker has any more, and count lost workers."""
        if self._draining:
            return
        async with self.database.transaction() as db:
            accept = self.settings.accept_changed_agents
            await resettle(db, self.database.engine, self._versions, accept_changed=accept)
            self.metrics.workers_lost(await run_table.count_lost(db))

    async def _tidying(self) -> None:
        while True:
            with suppress(StoreError):
                async with self.database.connection() as db:
                    await self.database.engine.tidy(db, list(self._agents))
                    await webhook_table.tidy(db)
            await asyncio.sleep(3600)

    async def persist(self, operation: Callable[[Any], Awaitable[bool]]) -> bool:
        """See `ExecutionHost.persist`. Gives up after four leases: another worker finds the end in the journal."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + 4 * self.lease
        while True:
            try:
                async with self.database.transaction() as db:
                    return await operation(db)
            except StoreError as error:
                if not error.retryable or loop.time() > give_up:
                    raise
            await asyncio.sleep(_TRY_AGAIN)

    # --- Commands and notifications -------------------------------------------------------------------------------

    def changed(self, run_id: str) -> None:
        """See `ExecutionHost.changed`."""
        self._notifier.note(run_id)

    def _on_notify(self, channel: str, payload: str) -> None:
        if channel == webhook_table.CHANNEL:
            self._webhooks.wake()
        elif channel != self.database.engine.channel:
            self._has_commands.set()
        elif "insert" in payload:
            self._has_work.set()

    def _on_gap(self) -> None:
        self._webhooks.wake()
        self._has_work.set()
        self._has_commands.set()

    async def _delivering(self) -> None:
        while True:
            self._has_commands.clear()
            try:
                await self.deliver(list(self._executions))
            except StoreError as error:
                _log.warning("commands cannot be read: %s", error)
                await asyncio.sleep(_TRY_AGAIN)
                continue
            await is_set_within(SLOW_PACE, self._has_commands)

    async def deliver(self, run_ids: Sequence[str]) -> None:
        """See `ExecutionHost.deliver`."""
        if not run_ids:
            return
        async with self.database.connection() as db:
            took: dict[int, bool] = {}
            for command in await run_table.undelivered(db, run_ids):
                found = self._executions.get(command.run)
                outcome = None if found is None else found[0].apply(command)
                if outcome is not None:
                    took[command.id] = outcome
            if took:
                await run_table.mark_delivered(db, took, run_ids)
