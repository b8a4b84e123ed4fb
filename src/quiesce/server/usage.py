"""`GET /usage`: the usage of each owner's runs by day and model, deleted runs included."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypeAlias

from msgspec import structs

from ..usage.figure import total
from ..usage.ledger import LedgerEntry, TokenUsage, summarise
from ..usage.prices import total_cost
from .registry import ServedRun
from .schemas import DayUsage, UsageReport, UsageView, usage_view

_DayAndModel: TypeAlias = tuple[str, str]
_FIGURES: Final = TokenUsage.__struct_fields__
# Days that are kept apart for each owner. Older ones are added up, under the empty day.
_MAX_DAYS: Final = 400


class UsageTotals:
    """The usage of deleted runs; `report()` adds that of the runs that are still there."""

    def __init__(self) -> None:
        self._deleted: Final[dict[str, dict[_DayAndModel, UsageView]]] = {}

    def add(self, run: ServedRun) -> None:
        """Add the usage of a run that is being deleted."""
        totals = self._deleted.setdefault(run.info.owner, {})
        for key, usage in _by_day_and_model(run):
            _add(totals, key, usage)
        while len({day for day, _ in totals}) > _MAX_DAYS:
            oldest = min(day for day, _ in totals if day)
            for key in [key for key in totals if key[0] == oldest]:
                _add(totals, ("", key[1]), totals.pop(key))

    def report(self, owner: str, runs: Iterable[ServedRun]) -> UsageReport:
        """The usage of one owner, the latest day first."""
        parts: dict[_DayAndModel, list[UsageView]] = {
            key: [usage] for key, usage in self._deleted.get(owner, {}).items()
        }
        for run in runs:
            for key, usage in _by_day_and_model(run):
                parts.setdefault(key, []).append(usage)
        rows = {key: _sum(tuple(usages)) for key, usages in parts.items()}
        days = tuple(DayUsage(day, model, rows[day, model]) for day, model in sorted(rows, reverse=True))
        return UsageReport(_sum(tuple(rows.values())), days)


def _add(totals: dict[_DayAndModel, UsageView], key: _DayAndModel, usage: UsageView) -> None:
    totals[key] = usage if key not in totals else _sum((totals[key], usage))


def _by_day_and_model(run: ServedRun) -> list[tuple[_DayAndModel, UsageView]]:
    day = datetime.fromtimestamp(run.info.created_at, UTC).date().isoformat()
    by_model: dict[str, list[LedgerEntry]] = {}
    for entry in run.entries:
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
