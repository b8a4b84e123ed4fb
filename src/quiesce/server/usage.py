"""`GET /usage`: the usage of each owner's runs by day and model, also of runs that are not in memory any more."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
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
    """The usage of runs that are not in memory; `report()` adds that of the runs that are.

    With a store, the usage of an owner's stored runs is read once: see `History.count_usage`. Before that, a run that
    is dropped from memory need not be added, because the store has it.
    """

    def __init__(self, *, stored: bool) -> None:
        self._stored: Final = stored
        self._totals: Final[dict[str, dict[DayAndModel, UsageView]]] = {}
        self._reading: Final[set[str]] = set()
        self._read: Final[set[str]] = set()
        self._added_before: Final[dict[str, set[str]]] = {}

    def add(self, run: ServedRun) -> None:
        """Add the usage of a run that is being dropped from memory."""
        owner = run.info.owner
        if self._stored and not self.is_read(owner):
            is_saved = run.result is None or run.result.receipt.saved
            if is_saved and owner not in self._reading:
                return
            self._added_before.setdefault(owner, set()).add(run.id)
        self._add(owner, usage_rows(run.info.created_at, run.entries))

    def is_read(self, owner: str) -> bool:
        """Whether the stored runs of an owner count."""
        return owner in self._read

    def begin_reading(self, owner: str) -> None:
        """Note that the stored runs of an owner are being read: runs that are dropped meanwhile are added."""
        self._reading.add(owner)

    def add_stored(self, owner: str, by_run: Mapping[str, UsageRows], in_memory: Container[str]) -> None:
        """Add the stored runs of an owner, except those that are in memory or were added before."""
        before = self._added_before.pop(owner, set[str]())
        for run_id, rows in by_run.items():
            if run_id not in in_memory and run_id not in before:
                self._add(owner, rows)
        self._reading.discard(owner)
        self._read.add(owner)

    def _add(self, owner: str, rows: UsageRows) -> None:
        totals = self._totals.setdefault(owner, {})
        for key, usage in rows:
            add_up(totals, key, usage)
        while len({day for day, _ in totals}) > _MAX_DAYS:
            oldest = min(day for day, _ in totals if day)
            for key in [key for key in totals if key[0] == oldest]:
                add_up(totals, ("", key[1]), totals.pop(key))

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
