"""A set of workloads: agents that are stopped at every point, by the names of the functions that make them."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

from quiesce.testing import Harness

from .wire_rules import check_requests

Workload = Callable[[Harness], Awaitable[object]]


class Workloads(dict[str, Workload]):
    """Workloads by name."""

    def add(self, function: Workload) -> Workload:
        """A decorator that takes a workload in. In the end, all its requests are checked as they are on the wire."""

        @functools.wraps(function)
        async def checked(harness: Harness) -> None:
            harness.on_close(lambda: check_requests(harness))
            await function(harness)

        self[function.__name__] = checked
        return checked
