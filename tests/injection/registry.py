"""A set of workloads: agents that are stopped at every point, by the names of the functions that make them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from quiesce.testing import Harness

Workload = Callable[[Harness], Awaitable[object]]


class Workloads(dict[str, Workload]):
    """Workloads by name."""

    def add(self, function: Workload) -> Workload:
        """A decorator that takes a workload in."""
        self[function.__name__] = function
        return function
