"""A number of tokens, with what is known about it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct


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


class Figure(Struct, frozen=True):
    """The best guess, the interval that holds the truth, and the source.

    `value` is None, never 0, when nothing is known. `high` is None when there is no upper bound.
    """

    value: int | None
    low: int
    high: int | None
    source: Provenance

    @property
    def exact(self) -> bool:
        """Whether the interval holds this value and no other."""
        return self.value is not None and self.low == self.value == self.high

    def holds(self, tokens: int) -> bool:
        """Whether the interval holds a number."""
        return self.low <= tokens and (self.high is None or tokens <= self.high)

    @property
    def guess(self) -> str:
        """The value in words."""
        if self.value is None:
            return f"at least {self.low:,}" if self.low else "unknown"
        return f"{self.value:,}" if self.exact else f"about {self.value:,}"

    @property
    def interval(self) -> str:
        """The interval in words; empty when there is nothing to add to the value."""
        if self.exact or (self.value is None and self.high is None):
            return ""
        return f"{self.low:,} or more" if self.high is None else f"{self.low:,} to {self.high:,}"

    def __str__(self) -> str:
        return f"{self.guess} ({self.interval})" if self.interval else self.guess


def reported(tokens: int) -> Figure:
    """A figure that the provider gave as final."""
    return Figure(tokens, tokens, tokens, Provenance.REPORTED)


def at_least(tokens: int) -> Figure:
    """A figure that the provider gave while the answer was still growing."""
    return Figure(tokens, tokens, None, Provenance.PARTIAL)


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
