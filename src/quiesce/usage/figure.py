"""A number of tokens, with what is known about it."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from typing import Final, Generic, TypeVar

from msgspec import Struct

_N = TypeVar("_N", int, Decimal)


class Provenance(StrEnum):
    """Where a figure comes from, best first."""

    REPORTED = "reported"
    PARTIAL = "partial"
    COUNTED = "counted"
    TOKENIZED = "tokenized"
    CALIBRATED = "calibrated"
    HEURISTIC = "heuristic"
    UNKNOWN = "unknown"


RANK: Final = {provenance: rank for rank, provenance in enumerate(Provenance)}


class Bounded(Struct, Generic[_N], frozen=True, gc=False):
    """The best guess, and the interval that holds the truth."""

    value: _N | None
    low: _N
    high: _N | None

    @property
    def exact(self) -> bool:
        """Whether the interval holds this value and no other."""
        return self.value is not None and self.low == self.value == self.high

    @property
    def guess(self) -> str:
        """The value as text, such as "about 1,200"."""
        if self.value is None:
            return f"at least {self._words(self.low)}{self._unit}" if self.low else "unknown"
        return f"{'' if self.exact else 'about '}{self._words(self.value)}{self._unit}"

    @property
    def interval(self) -> str:
        """The interval in words; empty when there is nothing to add to the value."""
        if self.exact or (self.value is None and self.high is None):
            return ""
        low = self._words(self.low)
        return f"{low} or more" if self.high is None else f"{low} to {self._words(self.high)}"

    @property
    def _unit(self) -> str:
        return ""

    def _words(self, amount: _N) -> str:
        return f"{amount:,}"

    def __str__(self) -> str:
        return f"{self.guess} ({self.interval})" if self.interval else self.guess


class Figure(Bounded[int], frozen=True, gc=False):
    """A number of tokens: the best guess, the interval that holds the truth, and the source.

    `value` is None, never 0, when nothing is known. `high` is None when there is no upper bound.
    """

    source: Provenance

    def holds(self, tokens: int) -> bool:
        """Whether the interval holds a number."""
        return self.low <= tokens and (self.high is None or tokens <= self.high)


def reported(tokens: int) -> Figure:
    """A figure that the provider gave as final."""
    return Figure(tokens, tokens, tokens, Provenance.REPORTED)


UNKNOWN: Final = Figure(None, 0, None, Provenance.UNKNOWN)
NONE: Final = Figure(0, 0, 0, Provenance.REPORTED)


def total(figures: Iterable[Figure]) -> Figure:
    """The sum: as uncertain as its most uncertain part."""
    value: int | None = 0
    low = 0
    high: int | None = 0
    source = Provenance.REPORTED
    for figure in figures:
        value = None if value is None or figure.value is None else value + figure.value
        low += figure.low
        high = None if high is None or figure.high is None else high + figure.high
        if RANK[figure.source] > RANK[source]:
            source = figure.source
    return Figure(value, low, high, source)
