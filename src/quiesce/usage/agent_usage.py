"""What all runs of an agent have used: their ledgers while they run, and the sum of what they left behind."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from operator import itemgetter
from typing import Final

from msgspec import structs

from .ledger import Ledger, LedgerEntry, Usage, summarise, total_tokens
from .prices import total_cost

# So many entries of runs that have ended are kept one by one; older ones only as part of the sum, for agents live long.
KEPT: Final = 10_000


class AgentUsage:
    """The ledgers of many runs as one. Reading and writing are safe from any thread."""

    def __init__(self, kept: int = KEPT) -> None:
        self._most: Final = kept
        self._numbers: Final = itertools.count()
        self._open: Final[dict[int, tuple[int, Ledger]]] = {}
        # Replaced whole, or appended to, so that a reader needs no lock: not even a signal handler has to wait.
        self._closed: tuple[Usage, list[tuple[int, LedgerEntry]]] = (summarise(()), [])
        self._folding: Final = threading.Lock()

    def open(self, ledger: Ledger) -> None:
        """Include a run's entries, up to date at each access. A ledger below an included one is part of that one."""
        above: Ledger | None = ledger
        while above is not None:
            if id(above) in self._open:
                return
            above = above.above
        self._open[id(ledger)] = (next(self._numbers), ledger)

    def close(self, ledger: Ledger) -> None:
        """The run has ended: keep its entries, once no better figures will come, and let the ledger go."""
        number, _ = self._open.get(id(ledger), (None, None))
        if number is None:
            return
        expected = ledger.expected()
        if expected:
            expected[0].add_done_callback(lambda _: self.close(ledger))
            return
        with self._folding:
            self._closed[1].extend([(number, entry) for entry in ledger.entries])
            self._open.pop(id(ledger), None)  # after it is among the closed: a reader in between counts by id
            if len(self._closed[1]) > self._most:
                self._fold()

    def _fold(self) -> None:
        """Add the older half of the kept entries to the sum."""
        past, kept = self._closed
        entries = [
            *{entry.id: (number, entry) for number, entry in kept}.values()
        ]  # after a Ctrl-C some are there twice
        half = self._most // 2
        self._closed = (_plus(past, tuple(entry for _, entry in entries[:-half])), entries[-half:])

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The newest entries, in the order of their runs."""
        return self._look()[1]

    @property
    def usage(self) -> Usage:
        """The sum over all runs; its `entries` are the newest ones."""
        past, entries = self._look()
        return structs.replace(_plus(past, entries), entries=entries)

    def _look(self) -> tuple[Usage, tuple[LedgerEntry, ...]]:
        while True:
            past, closed = self._closed
            running = tuple(self._open.copy().values())  # before the closed ones are read, or one could be missed
            entries = {entry.id: (number, entry) for number, entry in tuple(closed)}
            if self._closed[0] is past:  # else some of it may be in the sum by now
                break
        for number, ledger in running:
            for entry in ledger.entries:
                entries[entry.id] = (number, entry)
        return past, tuple(entry for _, entry in sorted(entries.values(), key=itemgetter(0)))

    def expected(self) -> tuple[Future[None], ...]:
        """One future for each entry that better figures may come for."""
        return tuple(future for _, ledger in self._open.copy().values() for future in ledger.expected())


def _plus(past: Usage, entries: tuple[LedgerEntry, ...]) -> Usage:
    """A sum and what is to be added to it, without the entries."""
    more = summarise(entries)
    tokens = total_tokens((past.tokens, more.tokens))
    costs = [each.cost for each in (past, more) if each.calls]
    return Usage(past.calls + more.calls, tokens, total_cost(costs), ())
