"""A worker on Temporal: it has the workflows of all agents, and the activities of its own."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from temporalio.client import Client
from temporalio.worker import Worker

from ...agent import AnyAgent
from ...errors import ConfigurationError
from ..records import check_limits
from .activities import StepActivities, StepDeps
from .records import activity_queue
from .workflow import RunWorkflow

# A workflow is offered to the worker that had it last, for so long; then to all. The SDK's 10 s would be what a run
# waits for when that worker is lost.
_STICKY_TIMEOUT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class TemporalWorkerSettings:
    """The limits of a worker. All times are in seconds.

    capacity    model calls and tool calls at once, for each agent
    heartbeat   time between two heartbeats of an activity. A Temporal server without worker commands delivers a stop
                with the next heartbeat
    drain       time for model calls and tools to end by themselves after a shutdown was asked for
    """

    capacity: int = 100
    heartbeat: float = 1.0
    drain: float = 30.0

    def __post_init__(self) -> None:
        check_limits(self.capacity, self.drain, heartbeat=self.heartbeat)


class TemporalWorker:
    """Runs model calls and tools of these agents for the workflows of a `TemporalFleet`. For one event loop; used once.

    `queue` is that of the fleet. `deps` makes the deps of an activity from the `RunInfo` of its run. Raises
    `ConfigurationError` for no agent, or two of the same name.
    """

    def __init__(
        self,
        *agents: AnyAgent,
        client: Client,
        queue: str = "quiesce",
        settings: TemporalWorkerSettings | None = None,
        deps: StepDeps | None = None,
    ) -> None:
        names = {agent.name for agent in agents}
        if len(names) != len(agents) or not agents:
            raise ConfigurationError("A worker needs agents with different names.", todo="Pass one or more agents.")
        self._settings: Final = settings or TemporalWorkerSettings()
        self._workflows: Final = Worker(
            client,
            task_queue=queue,
            workflows=[RunWorkflow],
            sticky_queue_schedule_to_start_timeout=_STICKY_TIMEOUT,
        )
        self._activities: Final = [
            self._worker_of(client, queue, agent, StepActivities(agent, deps, self._settings.heartbeat))
            for agent in agents
        ]

    def _worker_of(self, client: Client, queue: str, agent: AnyAgent, activities: StepActivities) -> Worker:
        settings = self._settings
        interval = timedelta(seconds=settings.heartbeat)
        return Worker(
            client,
            task_queue=activity_queue(queue, agent.name),
            activities=[activities.model_call, activities.tool_call],
            max_concurrent_activities=settings.capacity,
            # The SDK would hold back heartbeats for four fifths of their timeout, and with them the answers, which
            # tell of a cancellation.
            max_heartbeat_throttle_interval=interval,
            default_heartbeat_throttle_interval=interval,
            graceful_shutdown_timeout=timedelta(seconds=settings.drain),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set. Then model calls and tools get their time to end, and are stopped.

        A model call that was stopped so is made again by another worker. Raises what `temporalio` raises when the
        server cannot be reached at the beginning.
        """
        async with AsyncExitStack() as stack:
            for worker in (self._workflows, *self._activities):
                await stack.enter_async_context(worker)
            try:
                await stop.wait()
            finally:  # those with activities first: their results are for the workflows
                ending: list[Any] = [worker.shutdown() for worker in self._activities]
                await asyncio.gather(*ending)
