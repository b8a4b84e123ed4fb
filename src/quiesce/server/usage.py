"""What the runs of each key used, per day and model; runs that are forgotten still count."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypeAlias

from msgspec import structs

from ..usage.figure import total
from ..usage.ledger import TokenUsage, Usage, summarise
from ..usage.prices import total_cost
from .live_run import RunRecord
from .schemas import DayUsage, UsageReport, UsageView, usage_view
from .stored_runs import StoredRun

Record: TypeAlias = RunRecord | StoredRun
_Place: TypeAlias = tuple[str, str]
_FIGURES: Final = TokenUsage.__struct_fields__
# Longer ago than this only the total is kept.
_DAYS: Final = 400


class UsageBook:
    """The sums over runs that are no longer known, and the way to add those that are."""

    def __init__(self) -> None:
        self._past: Final[dict[str, dict[_Place, UsageView]]] = {}

    def fold(self, record: Record) -> None:
        """A run is about to be forgotten: keep what it used."""
        mine = self._past.setdefault(record.owner, {})
        for place, usage in _by_place(record):
            mine[place] = usage if place not in mine else _add((mine[place], usage))
        while len({day for day, _ in mine}) > _DAYS:
            oldest = min(day for day, _ in mine if day)
            for place in [place for place in mine if place[0] == oldest]:
                ancient = ("", place[1])
                gone = mine.pop(place)
                mine[ancient] = gone if ancient not in mine else _add((mine[ancient], gone))

    def report(self, owner: str, records: Iterable[Record]) -> UsageReport:
        """What one key used, the latest day first."""
        places: dict[_Place, list[UsageView]] = {place: [usage] for place, usage in self._past.get(owner, {}).items()}
        for record in records:
            for place, usage in _by_place(record):
                places.setdefault(place, []).append(usage)
        rows = {place: _add(tuple(parts)) for place, parts in places.items()}
        days = tuple(DayUsage(day, model, rows[day, model]) for day, model in sorted(rows, reverse=True))
        return UsageReport(_add(tuple(rows.values())), days)


def _by_place(record: Record) -> list[tuple[_Place, UsageView]]:
    day = datetime.fromtimestamp(record.created_at, UTC).date().isoformat()
    models = dict.fromkeys(entry.model for entry in record.entries)
    return [((day, model), usage_view(_of_model(record, model))) for model in models]


def _of_model(record: Record, model: str) -> Usage:
    return summarise(tuple(entry for entry in record.entries if entry.model == model))


def _add(parts: tuple[UsageView, ...]) -> UsageView:
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
