"""The share of the stops that `make test` makes of the longer workloads; `make proof` makes them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from quiesce.models.scripted import ScriptedModel

from ..support.lengths import proof_length

# Each takes a way of its own into a run; the others share one of these.
DIFFERENT_SOURCES: Final = ("task", "hook", "kill", "after_turn", "twice")

# Every third point: neighbours mostly lie in the same await.
SOME_POINTS: Final = 3

# Of the lines of a workload, each with a play of its own: every third in `make proof`, all in `make proof-long`.
LINES_APART: Final = int(proof_length("LINES_APART", 3, 1))

# Which task reads the model: the run's own, as it does for models that say `cancels_at_once`, or one of its own.
READERS: Final = ("run", "task")


@contextmanager
def read_by(reader: str) -> Iterator[None]:
    """Scripted models are read so."""
    if reader == "run":
        yield
        return
    with patch.object(ScriptedModel, "cancels_at_once", new=False):
        yield
