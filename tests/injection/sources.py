"""The share of the stops that `make test` makes of the longer workloads; `make proof` makes them all."""

from __future__ import annotations

from typing import Final

# Each takes a way of its own into a run; the others share one of these.
DIFFERENT_SOURCES: Final = ("task", "hook", "kill", "after_turn", "twice")

# Every third point: neighbours mostly lie in the same await.
SOME_POINTS: Final = 3
