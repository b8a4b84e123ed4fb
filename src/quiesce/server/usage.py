"""`GET /usage`: the usage of each owner's runs by day and model, also of runs that are not in memory any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from msgspec import structs

from ..usage.figure import total
from ..usage.ledger import LedgerEntry, TokenUsage, summarise
from ..usage.prices import total_cost
from .registry import ServedRun
from .schemas import DayUsage, UsageReport, UsageView, usage_view

DayAndModel: TypeAlias = tuple[str, str]
UsageRows: TypeAlias = list[tuple[DayAndModel, UsageView]]

_FIGURES: Final = TokenUsage.__struct_fields__
# Days that are kept apart for each owner. Older ones are added up, under the empty day.
_MAX_DAYS: Final = 400


class UsageTotals:
    """The usage of runs that are not in memory; `report()` adds that of the runs that are."""

    def __init__(self) -> None:
        self._totals: Final[dict[str, dict[DayAndModel, UsageView]]] = {}
        self._counted: Final[dict[str, set[str]]] = {}

    def add(self, run: ServedRun) -> None:
        """Add the usage of a run that is being dropped from memory or deleted."""
        self.add_rows(run.info.owner, run.id, usage_rows(run.info.created_at, run.entries))

    def add_rows(self, owner: str, run_id: str, rows: UsageRows) -> None:
        """Add the usage of one run, which counts once."""
        counted = self._counted.setdefault(owner, set())
        if run_id not in counted:
            counted.add(run_id)
            self.add_sums(owner, rows)

    def add_sums(self, owner: str, rows: UsageRows) -> None:
        """Add the usage of many runs."""
        totals = self._totals.setdefault(owner, {})
        for key, usage in rows:
            add_up(totals, key, usage)
        while len({day for day, _ in totals}) > _MAX_DAYS:
            oldest = min(day for day, _ in totals if day)
            for key in [key for key in totals if key[0] == oldest]:
                add_up(totals, ("", key[1]), totals.pop(key))

    def is_counted(self, owner: str, run_id: str) -> bool:
        """Whether the usage of a run that is not in memory counts already."""
        return run_id in self._counted.get(owner, ())

    def report(self, owner: str, runs: Iterable[ServedRun]) -> UsageReport:
        """The usage of one owner, the latest day first."""
        parts: dict[DayAndModel, list[UsageView]] = {key: [usage] for key, usage in self._totals.get(owner, {}).items()}
        for run in runs:
            for key, usage in usage_rows(run.info.created_at, run.entries):
                parts.setdefault(key, []).append(usage)
        rows = {key: _sum(tuple(usages)) for key, usages in parts.items()}
        days = tuple(DayUsage(day, model, rows[day, model]) for day, model in sorted(rows, reverse=True))
        return UsageReport(_sum(tuple(rows.values())), days)


def add_up(totals: dict[DayAndModel, UsageView], key: DayAndModel, usage: UsageView) -> None:
    """Add usage to what a table of sums has for a day and a model."""
    totals[key] = usage if key not in totals else _sum((totals[key], usage))


def usage_rows(started: float, entries: Sequence[LedgerEntry]) -> UsageRows:
    """The usage of one run, by day and model."""
    day = datetime.fromtimestamp(started, UTC).date().isoformat()
    by_model: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        by_model.setdefault(entry.model, []).append(entry)
    return [((day, model), usage_view(summarise(tuple(entries)))) for model, entries in by_model.items()]


def _sum(parts: tuple[UsageView, ...]) -> UsageView:
    if not parts:
        return usage_view(summarise(()))
    sums = {name: total(getattr(part, name) for part in parts) for name in _FIGURES}
    return structs.replace(
        parts[0],
        calls=sum(part.calls for part in parts),
        cost=total_cost([part.cost for part in parts]),
        is_final=all(part.is_final for part in parts),
        **sums,
    )
