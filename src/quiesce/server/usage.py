"""`GET /usage`: the usage of each owner by day, model and agent, also of runs that are not in memory any more."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, TypeAlias

from msgspec import structs

from ..usage.figure import total
from ..usage.ledger import LedgerEntry, TokenUsage, summarise
from ..usage.prices import total_cost
from .registry import ServedRun
from .schemas import DayUsage, KeyUsage, SessionUsage, UsageByKey, UsageReport, UsageView, usage_view

UsageKey: TypeAlias = tuple[str, str, str]
"""The day, the model and the agent."""
UsageRows: TypeAlias = list[tuple[UsageKey, UsageView]]

_FIGURES: Final = TokenUsage.__struct_fields__
# Days that are kept apart for each owner. Older ones are added up, under the empty day.
_MAX_DAYS: Final = 400
# Sessions in a report, the last used.
_MAX_SESSIONS: Final = 200


@dataclass(frozen=True, slots=True)
class UsedRun:
    """What a report needs of a run."""

    created_at: float
    agent: str
    session: str | None
    entries: tuple[LedgerEntry, ...]

    @property
    def day(self) -> str:
        """The day (UTC) of its start."""
        return datetime.fromtimestamp(self.created_at, UTC).date().isoformat()

    def rows(self) -> UsageRows:
        """Its usage by day, model and agent."""
        by_model: dict[str, list[LedgerEntry]] = {}
        for entry in self.entries:
            by_model.setdefault(entry.model, []).append(entry)
        return [
            ((self.day, model, self.agent), usage_view(summarise(tuple(entries))))
            for model, entries in by_model.items()
        ]


def used_run(run: ServedRun) -> UsedRun:
    """What a report needs of a run of this server."""
    return UsedRun(run.info.created_at, run.info.agent.name, run.info.session, run.entries)


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """What a report is about: some days (both included), an agent, a session, a key. None is for all."""

    since: str | None = None
    until: str | None = None
    agent: str | None = None
    session: str | None = None
    key: str | None = None

    def takes(self, day: str, agent: str) -> bool:
        """Whether the usage of an agent on a day counts. Of the sum of very old days only the agent is known."""
        if self.agent is not None and agent != self.agent:
            return False
        return (self.since is None or day >= self.since) and (self.until is None or day <= self.until)

    def takes_run(self, run: UsedRun) -> bool:
        """Whether the usage of a run counts."""
        return self.takes(run.day, run.agent) and self.session in (None, run.session)


class UsageTotals:
    """The usage of runs that are not in memory; `report()` adds that of the runs that are.

    With a store, the usage of an owner's stored runs is read once: see `History.count_usage`. Before that, a run that
    is dropped from memory need not be added, because the store has it.
    """

    def __init__(self, *, stored: bool) -> None:
        self._stored: Final = stored
        self._totals: Final[dict[str, dict[UsageKey, UsageView]]] = {}
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
        self._add(owner, used_run(run).rows())

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
        while len({key[0] for key in totals}) > _MAX_DAYS:
            oldest = min(key[0] for key in totals if key[0])
            for key in [key for key in totals if key[0] == oldest]:
                add_up(totals, ("", *key[1:]), totals.pop(key))

    @property
    def owners(self) -> set[str]:
        """The owners that have usage here."""
        return {owner for owner, totals in self._totals.items() if totals}

    def kept(self, owner: str) -> UsageRows:
        """The usage of an owner's runs that are not in memory."""
        return [*self._totals.get(owner, {}).items()]

    def report(
        self, owner: str, runs: Iterable[UsedRun], wanted: UsageFilter | None = None, keys: Sequence[str] = ()
    ) -> UsageReport:
        """The usage of one owner, the latest day first. By session only that of `runs` is known."""
        wanted = wanted or UsageFilter()
        kept = self._totals.get(owner, {}) if wanted.session is None else {}
        parts = {key: [usage] for key, usage in kept.items() if wanted.takes(key[0], key[2])}
        sessions: dict[tuple[str, str], list[UsedRun]] = {}
        for run in filter(wanted.takes_run, runs):
            for key, usage in run.rows():
                parts.setdefault(key, []).append(usage)
            if run.session is not None:
                sessions.setdefault((run.session, run.agent), []).append(run)
        days = _days(parts)
        return UsageReport(_sum(tuple(day.usage for day in days)), days, _by_session(sessions), tuple(keys))


def report_by_key(rows_of: Mapping[str, UsageRows], wanted: UsageFilter) -> UsageByKey:
    """The usage of several keys, for an operator. A key without usage is left out."""
    parts: dict[UsageKey, list[UsageView]] = {}
    keys: list[KeyUsage] = []
    for key, rows in rows_of.items():
        taken = [(row, usage) for row, usage in rows if wanted.takes(row[0], row[2])]
        for row, usage in taken:
            parts.setdefault(row, []).append(usage)
        if taken:
            keys.append(KeyUsage(key, max(row[0] for row, _ in taken), _sum(tuple(usage for _, usage in taken))))
    days = _days(parts)
    by_cost = sorted(keys, key=lambda each: (-_least_cost(each.usage), each.key))
    return UsageByKey(_sum(tuple(each.usage for each in keys)), tuple(by_cost), days)


def _least_cost(usage: UsageView) -> Decimal:
    return Decimal(0) if usage.cost is None else usage.cost.value or usage.cost.low


def _days(parts: Mapping[UsageKey, Sequence[UsageView]]) -> tuple[DayUsage, ...]:
    """The sums by day, model and agent, the latest day first."""
    return tuple(
        DayUsage(day, model, _sum(tuple(parts[day, model, agent])), agent)
        for day, model, agent in sorted(parts, reverse=True)
    )


def _by_session(sessions: Mapping[tuple[str, str], Sequence[UsedRun]]) -> tuple[SessionUsage, ...]:
    found = [
        SessionUsage(
            session,
            agent,
            len(runs),
            max(run.created_at for run in runs),
            usage_view(summarise(tuple(entry for run in runs for entry in run.entries))),
        )
        for (session, agent), runs in sessions.items()
    ]
    return tuple(sorted(found, key=lambda each: each.last_used, reverse=True)[:_MAX_SESSIONS])


def add_up(totals: dict[UsageKey, UsageView], key: UsageKey, usage: UsageView) -> None:
    """Add usage to what a table of sums has for a day, a model and an agent."""
    totals[key] = usage if key not in totals else _sum((totals[key], usage))


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
