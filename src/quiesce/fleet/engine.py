"""The engine: the queue of jobs, one for each run that is in the queue or on a worker.

A job that is not renewed is given to another worker. An engine does not fence: a worker that was frozen may finish or
renew a job that another one has. So the table of runs says what is true, and a job is only the reason to look there.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from ..errors import MissingExtra


class TakenJob(NamedTuple):
    """A job that a worker has taken."""

    id: int
    run_id: str


class Engine:
    """PgQueuer's tables and statements. Its queue manager is not used: runs outlive the loss of its connection.

    Each call is part of the transaction on the connection that it is given.
    """

    def __init__(self) -> None:
        try:
            from pgqueuer import queries
            from pgqueuer.adapters.persistence import qb
            from pgqueuer.db import AsyncpgDriver
            from pgqueuer.domain.settings import DBSettings
        except ImportError as error:
            raise MissingExtra("A fleet", error.name or "pgqueuer", "postgres") from None
        settings = DBSettings(prefix="quiesce_")  # another program may use PgQueuer in the same database
        self.channel: Final = str(settings.channel)
        """The channel of Postgres on which new jobs are notified."""
        self._no_limit: Final = queries.EntrypointExecutionParameter(concurrency_limit=0)
        environment, queue = qb.QueryBuilderEnvironment(settings), qb.QueryQueueBuilder(settings)

        def on(connection: Any) -> Any:
            return queries.Queries(AsyncpgDriver(connection), qbe=environment, qbq=queue)

        self._on: Final = on

    async def install(self, connection: Any) -> None:
        """Make or update the engine's tables."""
        on = self._on(connection)
        await (on.upgrade() if await on.schema_is_installed() else on.install())

    async def add(self, connection: Any, agent: str, run_id: str, priority: int) -> int:
        """Add a job for workers that have this agent; gives its id."""
        (job,) = await self._on(connection).enqueue(agent, run_id.encode(), priority)
        return int(job)

    async def take(
        self, connection: Any, agents: Sequence[str], most: int, worker: uuid.UUID, lease: float
    ) -> list[TakenJob]:
        """Take jobs: new ones, and those that were not renewed for `lease` seconds."""
        wanted: Any = dict.fromkeys(agents, self._no_limit)
        taken = await self._on(connection).dequeue(most, wanted, worker, None, timedelta(seconds=lease))
        return [TakenJob(int(job.id), (job.payload or b"").decode()) for job in taken]

    async def renew(self, connection: Any, jobs: Sequence[int]) -> None:
        """Keep jobs for another `lease`."""
        await self._on(connection).update_heartbeat(list(jobs))

    async def finish(self, connection: Any, jobs: Sequence[int]) -> None:
        """Delete jobs, whether a worker has them or not."""
        done: Any = [(SimpleNamespace(id=job), "successful", None) for job in jobs]
        await self._on(connection).log_jobs(done)

    async def tidy(self, connection: Any, agents: Sequence[str]) -> None:
        """Delete what the engine has recorded of jobs that are finished."""
        await self._on(connection).clear_queue_log(list(agents))
