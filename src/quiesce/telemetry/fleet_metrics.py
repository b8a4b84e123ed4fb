"""The metrics of a fleet: how long runs wait in the queue, how long stops take, and how many workers were lost."""

from __future__ import annotations

from typing import Any, Final

_QUEUE: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_STOPS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_AGENT: Final = "gen_ai.agent.name"


class FleetMetrics:
    """The instruments of a worker. Without a meter nothing is measured."""

    def __init__(self, meter: Any = None) -> None:
        def histogram(name: str, description: str, bounds: tuple[float, ...]) -> Any:
            if meter is None:
                return None
            return meter.create_histogram(
                name, unit="s", description=description, explicit_bucket_boundaries_advisory=bounds
            )

        def counter(name: str, unit: str, description: str) -> Any:
            return None if meter is None else meter.create_counter(name, unit=unit, description=description)

        self._queue: Final = histogram(
            "quiesce.fleet.queue.time", "Time from the request for a run to its start on a worker.", _QUEUE
        )
        self._delivered: Final = histogram(
            "quiesce.fleet.stop.delivered", "Time from the request to stop a run until the run has it.", _STOPS
        )
        self._at_rest: Final = histogram(
            "quiesce.fleet.stop.at_rest", "Time from the request to stop a run until its end is recorded.", _STOPS
        )
        self._lost_workers: Final = counter(
            "quiesce.fleet.workers.lost", "{worker}", "Workers whose heartbeat stopped."
        )
        self._lost_runs: Final = counter("quiesce.fleet.runs.lost", "{run}", "Runs that were taken from a lost worker.")

    def started(self, agent: str, seconds: float) -> None:
        """A worker has started a run."""
        if self._queue is not None:
            self._queue.record(max(0.0, seconds), {_AGENT: agent})

    def stop_delivered(self, agent: str, seconds: float) -> None:
        """A run has a stop."""
        if self._delivered is not None:
            self._delivered.record(max(0.0, seconds), {_AGENT: agent})

    def at_rest(self, agent: str, seconds: float) -> None:
        """The end of a run that was stopped is recorded."""
        if self._at_rest is not None:
            self._at_rest.record(max(0.0, seconds), {_AGENT: agent})

    def workers_lost(self, count: int) -> None:
        """The heartbeats of workers are overdue."""
        if self._lost_workers is not None and count:
            self._lost_workers.add(count)

    def run_lost(self, agent: str) -> None:
        """A run was taken from a lost worker."""
        if self._lost_runs is not None:
            self._lost_runs.add(1, {_AGENT: agent})
