"""The meter of one answer: counts it while it is streamed, and stops the run whose limit it reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, Protocol

from msgspec import Struct

from ..limits import Limits, ReachedLimit
from ..usage.budget import FREE, BudgetUse, RequestSpending
from ..usage.estimate.answer_count import AnswerCounter, Block
from ..usage.estimate.received import ReportedUsage
from ..usage.prices import Price


class MeteredAnswer(Protocol):
    """What a meter needs of the answer that is being streamed."""

    @property
    def usage(self) -> ReportedUsage | None:
        """The provider's last report of usage."""
        ...

    def blocks(self) -> Iterable[Block]:
        """The blocks received so far."""
        ...


class Budget(Struct, frozen=True):
    """The limits of a run, what it and its children have used, and what to call when one is reached."""

    limits: Limits
    used: BudgetUse
    reach: Callable[[ReachedLimit], None]
    owner: str
    """The subject of the stop's reason: "The run", or "The run and its children"."""


class Meter:
    """Counts one answer while it is streamed, and compares it with every budget that it may exhaust.

    Estimates replace what the provider has not reported: the input as estimated from the last call, the output as
    counted. All runs that share a budget count, with their requests under way; the run that has the limit is stopped,
    and with it everything below.
    """

    def __init__(
        self,
        entry_id: str | None,
        budgets: tuple[Budget, ...],
        price: Price | None,
        counter: AnswerCounter,
        input_estimate: int,
    ) -> None:
        self._entry_id: Final = entry_id or ""
        self._budgets: Final = budgets
        self._price: Final = price
        self._counter: Final = counter
        self._input_estimate: Final = input_estimate

    def update(self, answer: MeteredAnswer) -> None:
        """Count the new part of the answer, and stop a run whose limit is exceeded."""
        self._counter.catch_up(answer.blocks())
        report = answer.usage
        output = max(self._counter.roughly, _reported(report, "output"))
        if not self._budgets or (not output and report is None):  # nothing has arrived that could be too much
            return
        sent = _reported(report, "input") or self._input_estimate
        cost = FREE
        if self._price is not None:
            cost = self._price.money(sent, _reported(report, "cache_read"), _reported(report, "cache_write"), output)
        now = RequestSpending(sent, output, cost)
        for budget in self._budgets:
            budget.used.note(self._entry_id, now)
            exceeded = self._exceeded(budget.limits, budget.used, f"{budget.owner} would use more than")
            if exceeded is not None:
                budget.reach(exceeded)

    def _exceeded(self, limits: Limits, used: BudgetUse, words: str) -> ReachedLimit | None:
        """The limit that is exceeded."""
        allowed = limits.output_tokens
        if allowed is not None and used.output > allowed:
            return ReachedLimit("output_tokens", allowed, used.output, f"{words} {allowed:,} output tokens")
        allowed = limits.tokens
        if allowed is not None and used.input + used.output > allowed:
            return ReachedLimit(
                "tokens", allowed, used.input + used.output, f"{words} {allowed:,} tokens", limits.advice
            )
        if limits.cost is not None and used.cost > limits.cost:
            amount = f"{limits.cost} {self._price.currency if self._price else ''}".rstrip()
            return ReachedLimit("cost", limits.cost, used.cost, f"{words} {amount}", limits.advice)
        return None


def _reported(report: ReportedUsage | None, field: Literal["input", "output", "cache_read", "cache_write"]) -> int:
    return 0 if report is None else getattr(report, field) or 0
