"""The append-only record of model calls and what they cost."""

from __future__ import annotations

import itertools
from typing import Final, Literal, TypeAlias

from msgspec import Struct, structs

from .figure import NONE, UNKNOWN, Figure, Provenance, total
from .prices import Cost, Price, cost_of, total_cost

HowItEnded: TypeAlias = Literal["open", "completed", "hung_up", "drained", "cancelled_at_provider", "failed"]


class TokenUsage(Struct, frozen=True):
    """The tokens of one call or of many. `input` includes the cache fields; `output` includes `reasoning`."""

    input: Figure = UNKNOWN
    output: Figure = UNKNOWN
    cache_read: Figure = NONE
    cache_write: Figure = NONE
    reasoning: Figure = NONE

    @property
    def is_final(self) -> bool:
        """Whether the provider itself reported every figure."""
        return all(getattr(self, name).source is Provenance.REPORTED for name in self.__struct_fields__)


class LedgerEntry(Struct, frozen=True):
    """One request that was sent: what it used, what it cost, and how it ended."""

    id: str
    run_id: str
    model: str
    turn: int
    attempt: int
    ended: HowItEnded = "open"
    usage: TokenUsage = TokenUsage()
    cost: Cost | None = None
    request_id: str | None = None
    supersedes: bool = False


class Usage(Struct, frozen=True):
    """The sum over a ledger's entries; prints as a plain table."""

    calls: int
    tokens: TokenUsage
    cost: Cost | None
    entries: tuple[LedgerEntry, ...]

    @property
    def input(self) -> Figure:
        """Tokens sent to the model, with those read from and written to its cache."""
        return self.tokens.input

    @property
    def output(self) -> Figure:
        """Tokens that the model wrote, with its reasoning."""
        return self.tokens.output

    @property
    def is_final(self) -> bool:
        """Whether every figure of every call was reported by its provider."""
        return all(entry.usage.is_final for entry in self.entries)

    def __str__(self) -> str:
        names = ("input", "output", "cache_read", "cache_write", "reasoning")
        figures = {name: getattr(self.tokens, name) for name in names}
        rows = [("model calls", str(self.calls), "")]
        rows += [(name, str(figure), figure.source.value) for name, figure in figures.items() if figure != NONE]
        if self.cost is not None:
            rows.append(("cost", str(self.cost), ""))
        wide = [max(len(row[column]) for row in rows) for column in range(2)]
        return "\n".join(f"{a:<{wide[0]}}  {b:<{wide[1]}}  {c}".rstrip() for a, b, c in rows)


class Ledger:
    """Entries are opened when a request is sent and closed when it ends; nothing is ever removed.

    A closed entry may be superseded once by a better figure. Not thread-safe: a run writes its own ledger. What a child
    run writes is written to the ledger `above` it too, as it happens.
    """

    def __init__(self, above: Ledger | None = None) -> None:
        self._above: Final = above
        self._entries: dict[str, LedgerEntry] = {}
        self._numbers: Final = itertools.count(1)

    def open(self, *, run_id: str, model: str, turn: int, attempt: int) -> str:
        """Book a request that is about to be sent; returns the entry's id."""
        entry_id = f"{run_id}/{next(self._numbers)}"
        self._write(LedgerEntry(entry_id, run_id, model, turn, attempt))
        return entry_id

    def _write(self, entry: LedgerEntry) -> None:
        ledger: Ledger | None = self
        while ledger is not None:
            ledger._entries[entry.id] = entry
            ledger = ledger._above

    def update(
        self,
        entry_id: str,
        usage: TokenUsage,
        *,
        price: Price | None = None,
        ended: HowItEnded = "open",
        request_id: str | None = None,
    ) -> LedgerEntry:
        """Write what is known of an open entry so far, and how it ended once it has."""
        entry = structs.replace(
            self._entries[entry_id],
            usage=usage,
            cost=_cost(price, usage),
            ended=ended,
            request_id=request_id or self._entries[entry_id].request_id,
        )
        self._write(entry)
        return entry

    def supersede(
        self, entry_id: str, usage: TokenUsage, *, price: Price | None = None, ended: HowItEnded = "drained"
    ) -> bool:
        """Replace an estimate by a better figure. False, and no change, when that has happened already."""
        entry = self._entries[entry_id]
        if entry.supersedes:
            return False
        self._write(structs.replace(entry, usage=usage, cost=_cost(price, usage), ended=ended, supersedes=True))
        return True

    def absorb(self, other: Ledger) -> None:
        """Take over the entries of a run."""
        self._entries.update(other._entries)

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries, in the order in which the requests were sent."""
        return tuple(self._entries.values())

    @property
    def usage(self) -> Usage:
        """The sum of all entries."""
        return summarise(self.entries)


def summarise(entries: tuple[LedgerEntry, ...]) -> Usage:
    """The sum of some entries."""
    names = TokenUsage.__struct_fields__
    tokens = TokenUsage(**{name: total(getattr(entry.usage, name) for entry in entries) for name in names})
    return Usage(len(entries), tokens, total_cost([entry.cost for entry in entries]), entries)


def _cost(price: Price | None, usage: TokenUsage) -> Cost | None:
    return cost_of(
        price, input=usage.input, cache_read=usage.cache_read, cache_write=usage.cache_write, output=usage.output
    )
