"""What a whole tree of runs has used by now: running sums for budgets that are shared."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from msgspec import Struct

from ..interrupts import UsedBudget
from .ledger import LedgerEntry

FREE: Final = Decimal(0)


class RequestSpending(Struct, frozen=True):
    """What one request has used so far, as well as it is known."""

    input: int
    output: int
    cost: Decimal = FREE


class BudgetUse:
    """The sums over a run and everything below it, with the requests that are under way."""

    __slots__ = ("_parts", "cost", "input", "output", "tool_calls", "turns")

    def __init__(self) -> None:
        self._parts: Final[dict[str, RequestSpending]] = {}
        self.input = 0
        self.output = 0
        self.cost = FREE
        self.turns = 0
        self.tool_calls = 0

    def begin_with(self, used: UsedBudget) -> None:
        """Count from what earlier runs of the task have used."""
        self.turns, self.tool_calls = used.turns, used.tool_calls
        self.input, self.output, self.cost = used.input, used.output, used.cost

    def used(self) -> UsedBudget:
        """The sums, to be kept."""
        return UsedBudget(self.turns, self.tool_calls, self.input, self.output, self.cost)

    def note(self, entry_id: str, now: RequestSpending) -> None:
        """Write what a request has used so far, in place of what was written of it before."""
        before = self._parts.get(entry_id, _NOTHING)
        self._parts[entry_id] = now
        self.input += now.input - before.input
        self.output += now.output - before.output
        if now.cost is not before.cost:  # mostly both are `FREE`
            self.cost += now.cost - before.cost


_NOTHING: Final = RequestSpending(0, 0)


def spending(entry: LedgerEntry) -> RequestSpending:
    """What a ledger entry counts for: the best guess, or the least that it can be."""
    tokens, cost = entry.usage, entry.cost
    money = FREE if cost is None else cost.value or cost.low
    return RequestSpending(tokens.input.value or tokens.input.low, tokens.output.value or tokens.output.low, money)
