"""The sources of the stops in `make test` for the longer workloads; `make proof` stops them from all."""

from __future__ import annotations

from typing import Final

# Each takes a way of its own into a run; the others share one of these.
DIFFERENT_SOURCES: Final = ("task", "hook", "kill", "after_turn", "twice")
