"""What the rounds of a row took, by client."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from .process import ClientFailed

_S = TypeVar("_S", bound=Any)
ROW_SECONDS: Final = 45.0  # a row that has taken so long has no further rounds


class Figures:
    """Of each client the figures of its rounds, or why there are none."""

    def __init__(self) -> None:
        self._taken: Final[dict[str, list[Mapping[str, float]]]] = {}
        self.failed: Final[dict[str, str]] = {}
        self._began: Final = time.monotonic()

    @property
    def took_long(self) -> bool:
        """Whether the rounds so far are enough."""
        return bool(self._taken) and time.monotonic() - self._began > ROW_SECONDS

    def add(self, name: str, took: Mapping[str, float]) -> None:
        self._taken.setdefault(name, []).append(took)

    def able(self, subjects: Sequence[_S]) -> list[_S]:
        """Those that have not failed."""
        return [each for each in subjects if each.name not in self.failed]

    def of(self, name: str, figure: str) -> list[float]:
        """One figure in all rounds; empty when there is none."""
        if name in self.failed:
            return []
        return [took[figure] for took in self._taken.get(name, ()) if figure in took]

    def ratio(self, name: str, to: str, figure: str) -> float | None:
        """The median of the ratios to another client in the same round."""
        pairs = zip(self.of(name, figure), self.of(to, figure), strict=False)
        ratios = [mine / theirs for mine, theirs in pairs if theirs]
        return statistics.median(ratios) if ratios else None

    def has(self, figure: str) -> bool:
        return any(self.of(name, figure) for name in self._taken)


@contextlib.contextmanager
def failures_are_noted(figures: Figures, name: str) -> Iterator[None]:
    """A client that fails has no figures in this row; the others go on."""
    try:
        yield
    except (ClientFailed, AssertionError) as error:
        figures.failed[name] = str(error) or type(error).__name__
        print(f"  {name}: {figures.failed[name]}", file=sys.stderr, flush=True)
