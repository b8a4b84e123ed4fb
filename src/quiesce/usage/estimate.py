"""From what a provider said, and what was seen, to figures for the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from .counting import ByteCounter
from .figure import NONE, UNKNOWN, Figure, Provenance, at_least, reported
from .ledger import TokenUsage


class UsageReport(Protocol):
    """What a provider has said of a request so far; None where it has not."""

    @property
    def input(self) -> int | None:
        """Input tokens."""
        ...

    @property
    def output(self) -> int | None:
        """Output tokens."""
        ...

    @property
    def cache_read(self) -> int | None:
        """Cache read tokens."""
        ...

    @property
    def cache_write(self) -> int | None:
        """Cache write tokens."""
        ...

    @property
    def reasoning(self) -> int | None:
        """Reasoning tokens."""
        ...

    @property
    def final(self) -> bool:
        """Whether the figures will not change."""
        ...


def usage_of(report: UsageReport | None, written: Iterable[str]) -> TokenUsage:
    """The usage of one request: what was reported, and estimates, marked as such, for what was not."""
    if report is None:
        return TokenUsage(output=_counted(written))
    if report.final:
        output = _counted(written) if report.output is None else reported(report.output)
    else:
        output = _growing(report.output, written)
    return TokenUsage(
        input=UNKNOWN if report.input is None else reported(report.input),
        output=output,
        cache_read=NONE if report.cache_read is None else reported(report.cache_read),
        cache_write=NONE if report.cache_write is None else reported(report.cache_write),
        reasoning=_reasoning(report),
    )


def _counted(written: Iterable[str]) -> Figure:
    counter = ByteCounter()
    for text in written:
        counter.add(text)
    return counter.figure


def _growing(seen: int | None, written: Iterable[str]) -> Figure:
    """The answer was cut: what was reported of it is the least that it can be."""
    counted = _counted(written)
    if seen is None:
        return counted
    return Figure(max(seen, counted.value or 0), seen, None, Provenance.PARTIAL)


def _reasoning(report: UsageReport) -> Figure:
    if report.reasoning is None:
        return NONE
    return reported(report.reasoning) if report.final else at_least(report.reasoning)
