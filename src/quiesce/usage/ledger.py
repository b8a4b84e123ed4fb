"""The append-only record of model calls and what they cost."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final, Literal, TypeAlias

from msgspec import Struct, structs

from .figure import NONE, UNKNOWN, Figure, Provenance, total
from .prices import Cost, Price, cost_of, total_cost

HowItEnded: TypeAlias = Literal[
    "open", "completed", "hung_up", "draining", "drained", "cancelled_at_provider", "failed"
]


class TokenUsage(Struct, frozen=True, gc=False):
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


NOTHING_KNOWN: Final = TokenUsage(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)


class LedgerEntry(Struct, frozen=True, gc=False):
    """One request that was sent: what it used, what it cost, and how it ended.

    `error` names the kind of failure of a request that failed. `provisional` says that better figures may still come:
    the provider's stream is being read to its end, the request is being looked up, or the vocabulary is being loaded in
    which it is counted. `supersedes` says that they have come, and that nothing will change any more.
    """

    id: str
    run_id: str
    model: str
    turn: int
    attempt: int
    ended: HowItEnded = "open"
    usage: TokenUsage = NOTHING_KNOWN
    cost: Cost | None = None
    request_id: str | None = None
    error: str | None = None
    provisional: bool = False
    supersedes: bool = False


class Usage(Struct, frozen=True, gc=False):
    """The sum over the entries of one run's ledger or of many; prints as a plain table.

    Of an agent that has lived long, `entries` has only the newest, and the sum has all.
    """

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
        return self.tokens.is_final

    @property
    def is_provisional(self) -> bool:
        """Whether better figures may still come by themselves."""
        return any(entry.provisional for entry in self.entries)

    def __str__(self) -> str:
        return _table(self)


class Ledger:
    """Entries are opened when a request is sent and closed when it ends; nothing is ever removed.

    A closed entry may be superseded once by a better figure. A run writes its own ledger; reading is safe from any
    thread. What a child run writes is written to the ledger `above` it too, as it happens.
    """

    __slots__ = ("__weakref__", "_below", "_entries", "_expected", "_numbers", "above")

    def __init__(self, above: Ledger | None = None) -> None:
        self.above: Final = above
        self._below: Final[list[weakref.ref[Ledger]]] = []  # those that expect something are kept by what they expect
        if above is not None:
            above._below.append(weakref.ref(self))
        self._entries: Final[dict[str, LedgerEntry]] = {}
        self._expected: Final[dict[str, Future[None]]] = {}
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
            ledger = ledger.above

    def update(
        self,
        entry_id: str,
        usage: TokenUsage,
        *,
        price: Price | None = None,
        ended: HowItEnded = "open",
        request_id: str | None = None,
        error: str | None = None,
    ) -> LedgerEntry:
        """Write what is known of an open entry so far, and how it ended once it has."""
        entry = self._entries[entry_id]
        cost = None if price is None else cost_of_tokens(price, usage)
        request_id = request_id or entry.request_id
        entry = structs.replace(entry, usage=usage, cost=cost, ended=ended, request_id=request_id, error=error)
        self._write(entry)
        return entry

    # --- Better figures -----------------------------------------------------------------------------------------

    def expect(self, entry_id: str) -> LedgerEntry:
        """Better figures may come for an entry. `settle()` must follow, whether or not they came."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # so that one cancelled waiter does not cancel it for the others
        self._expected[entry_id] = future
        entry = structs.replace(self._entries[entry_id], provisional=True)
        self._write(entry)
        return entry

    def supersede(
        self, entry_id: str, usage: TokenUsage, *, price: Price | None = None, ended: HowItEnded | None = None
    ) -> bool:
        """Replace an estimate by a better figure. False, and no change, when that has happened already."""
        entry = self._entries[entry_id]
        if entry.supersedes:
            return False
        cost = cost_of_tokens(price, usage)
        self._write(structs.replace(entry, usage=usage, cost=cost, ended=ended or entry.ended, supersedes=True))
        return True

    def settle(self, entry_id: str, ended: HowItEnded | None = None) -> LedgerEntry:
        """No better figures will come for an entry: what it says now stays."""
        entry = structs.replace(self._entries[entry_id], provisional=False)
        if ended is not None:
            entry = structs.replace(entry, ended=ended)
        self._write(entry)
        expected = self._expected.pop(entry_id, None)
        if expected is not None:
            expected.set_result(None)
        return entry

    def expected(self) -> tuple[Future[None], ...]:
        """One future for each entry that better figures may come for, done when they have come or never will."""
        if not self._expected and not self._below:  # mostly
            return ()
        own = tuple(self._expected.copy().values())
        below = (each() for each in tuple(self._below))
        return (*own, *(future for ledger in below if ledger is not None for future in ledger.expected()))

    # --- Reading ------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries, in the order in which the requests were sent."""
        return tuple(self._entries.copy().values())

    @property
    def usage(self) -> Usage:
        """The sum of all entries."""
        return summarise(tuple(self._entries.copy().values()))


def summarise(entries: tuple[LedgerEntry, ...]) -> Usage:
    """The sum of some entries."""
    if len(entries) == 1:
        return Usage(1, entries[0].usage, entries[0].cost, entries)
    tokens = total_tokens([entry.usage for entry in entries])
    return Usage(len(entries), tokens, total_cost([entry.cost for entry in entries]), entries)


def total_tokens(usages: Sequence[TokenUsage]) -> TokenUsage:
    """The sum of some figures, each as uncertain as its most uncertain part."""
    return TokenUsage(
        total([usage.input for usage in usages]),
        total([usage.output for usage in usages]),
        total([usage.cache_read for usage in usages]),
        total([usage.cache_write for usage in usages]),
        total([usage.reasoning for usage in usages]),
    )


def added(first: Usage, second: Usage) -> Usage:
    """The sum of two, without the single entries."""
    if not first.calls or not second.calls:
        return structs.replace(first if first.calls else second, entries=())
    tokens = total_tokens((first.tokens, second.tokens))
    return Usage(first.calls + second.calls, tokens, total_cost([first.cost, second.cost]), ())


def cost_of_tokens(price: Price | None, usage: TokenUsage) -> Cost | None:
    """What tokens cost; None without a price."""
    if price is None:
        return None
    return cost_of(
        price, input=usage.input, cache_read=usage.cache_read, cache_write=usage.cache_write, output=usage.output
    )


# --- The plain table --------------------------------------------------------------------------------------------

_NAMES: Final = {
    "input": "input",
    "cache_read": "  cache read",
    "cache_write": "  cache write",
    "output": "output",
    "reasoning": "  reasoning",
}


def _table(usage: Usage) -> str:
    """One line for each figure: what it is, the value, the interval, and where it comes from."""
    waiting = sum(entry.provisional for entry in usage.entries)
    rows = [("model calls", f"{usage.calls:,}", "", f"{waiting} provisional" if waiting else "")]
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
