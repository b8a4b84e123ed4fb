"""Usage as a plain table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .figure import NONE

if TYPE_CHECKING:
    from .ledger import Usage

_NAMES: Final = {
    "input": "input",
    "cache_read": "  cache read",
    "cache_write": "  cache write",
    "output": "output",
    "reasoning": "  reasoning",
}


def table(usage: Usage) -> str:
    """One line for each figure: what it is, the value, the interval, and where it comes from."""
    rows = [("model calls", f"{usage.calls:,}", "", _provisional(usage))]
    if usage.calls:
        for name, title in _NAMES.items():
            figure = getattr(usage.tokens, name)
            told = figure != NONE and not (figure.value is None and not figure.low)
            if told or not title.startswith(" "):
                rows.append((title, figure.guess, figure.interval, "" if figure == NONE else figure.source.value))
    if usage.cost is not None:
        rows.append(("cost", usage.cost.guess, usage.cost.interval, ""))
    wide = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = (f"{a:<{wide[0]}}   {b:>{wide[1]}}   {c:<{wide[2]}}   {d}" for a, b, c, d in rows)
    return "\n".join(line.rstrip() for line in lines)


def _provisional(usage: Usage) -> str:
    waiting = sum(entry.provisional for entry in usage.entries)
    return f"{waiting} provisional" if waiting else ""
