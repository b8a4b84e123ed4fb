"""Budgets: how much a run may use before it is stopped."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Final, Literal, Protocol

from .cancellation import CancellationToken, Mode
from .errors import ConfigurationError
from .usage.budget import BudgetUse, Spending
from .usage.estimate.answer_count import AnswerCounter, Block
from .usage.estimate.figures import UsageReport
from .usage.figure import Figure
from .usage.ledger import Usage
from .usage.prices import Price


class Limits:
    """What one run may use, with the runs that its tools start. None means no limit.

    `turns` and `tool_calls` stop a run between steps; `tokens` (in and out together), `output_tokens` and `cost`
    stop it inside an answer. A run that reaches one ends with `stop_reason == "limit"` (cause: `budget`).

    Raises `ConfigurationError` for a limit that is not a positive number.
    """

    __slots__ = ("cost", "output_tokens", "tokens", "tool_calls", "turns")

    def __init__(
        self,
        *,
        turns: int | None = None,
        tool_calls: int | None = None,
        tokens: int | None = None,
        output_tokens: int | None = None,
        cost: Decimal | str | float | None = None,
    ) -> None:
        self.turns: Final = _positive("turns", turns)
        self.tool_calls: Final = _positive("tool_calls", tool_calls, least=0)
        self.tokens: Final = _positive("tokens", tokens)
        self.output_tokens: Final = _positive("output_tokens", output_tokens)
        self.cost: Final = _money(cost)

    @property
    def inside_answers(self) -> bool:
        """Whether a limit can be reached in the middle of an answer."""
        return not (self.tokens is None and self.output_tokens is None and self.cost is None)

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}
        return f"Limits({', '.join(f'{name}={value!r}' for name, value in given.items())})"


class Answer(Protocol):
    """What a meter needs of the answer that is being written."""

    @property
    def usage(self) -> UsageReport | None:
        """What the provider has said so far."""
        ...

    def blocks(self) -> Iterable[Block]:
        """What the model has written so far."""
        ...


class AnswerMeter:
    """Counts one answer while it is written and holds it against every limit that it may reach.

    What is known stands in for what was not reported: the input as estimated from the last call, the output as counted.
    """

    def __init__(
        self, meters: list[Meter | SharedMeter], price: Price | None, count: AnswerCounter, input_estimate: int
    ) -> None:
        self._meters: Final = meters
        self._price: Final = price
        self._count: Final = count
        self._input_estimate: Final = input_estimate

    def take(self, answer: Answer) -> None:
        """Count what is new, and compare."""
        self._count.catch_up(answer.blocks())
        said = answer.usage
        output = max(self._count.roughly, _said(said, "output"))
        if not self._meters or (not output and said is None):  # nothing was said yet that could be too much
            return
        sent = _said(said, "input") or self._input_estimate
        cost = Decimal(0)
        if self._price is not None:
            cost = self._price.money(sent, _said(said, "cache_read"), _said(said, "cache_write"), output)
        now = Spending(sent, output, cost)
        for meter in self._meters:
            meter.check(now)


class Meter:
    """Watches one model call against the limits and stops the run when one is reached."""

    def __init__(self, limits: Limits, spent: Usage, price: Price | None, token: CancellationToken) -> None:
        self._limits: Final = limits
        self._spent: Final = spent
        self._price: Final = price
        self._token: Final = token

    def check(self, now: Spending) -> None:
        """Compare what this call has used by now, with what earlier ones have."""
        limits, spent = self._limits, self._spent
        earlier = _known(spent.output)
        if limits.output_tokens is not None and earlier + now.output > limits.output_tokens:
            self._stop(f"more than {limits.output_tokens:,} output tokens")
        elif limits.tokens is not None and _known(spent.input) + earlier + now.input + now.output > limits.tokens:
            self._stop(f"more than {limits.tokens:,} tokens")
        elif limits.cost is not None and self._before() + now.cost > limits.cost:
            self._stop(f"more than {limits.cost} {self._price.currency if self._price else ''}".rstrip())

    def _before(self) -> Decimal:
        earlier = self._spent.cost
        return Decimal(0) if earlier is None else earlier.value or earlier.low

    def _stop(self, what: str) -> None:
        self._token.cancel(f"The run would use {what}", source="budget", mode=Mode.NOW)


class SharedMeter:
    """Watches one model call of a child run against the limits of a run above it, which all its children share.

    What every child has used by now counts, calls under way included. The run whose limit is reached is the one that is
    stopped, and with it everything below.
    """

    def __init__(
        self, limits: Limits, tally: BudgetUse, price: Price | None, token: CancellationToken, entry_id: str
    ) -> None:
        self._limits: Final = limits
        self._tally: Final = tally
        self._price: Final = price
        self._token: Final = token
        self._entry_id: Final = entry_id

    def check(self, now: Spending) -> None:
        """Write down what this call has used by now, and compare what all have used."""
        limits, tally = self._limits, self._tally
        tally.note(self._entry_id, now)
        if limits.output_tokens is not None and tally.output > limits.output_tokens:
            self._stop(f"more than {limits.output_tokens:,} output tokens")
        elif limits.tokens is not None and tally.input + tally.output > limits.tokens:
            self._stop(f"more than {limits.tokens:,} tokens")
        elif limits.cost is not None and tally.cost > limits.cost:
            self._stop(f"more than {limits.cost} {self._price.currency if self._price else ''}".rstrip())

    def _stop(self, what: str) -> None:
        self._token.cancel(f"The run and its children would use {what}", source="budget", mode=Mode.NOW)


def _said(report: UsageReport | None, field: Literal["input", "output", "cache_read", "cache_write"]) -> int:
    return 0 if report is None else getattr(report, field) or 0


def _known(figure: Figure) -> int:
    return figure.value or figure.low


def _positive(name: str, value: int | None, *, least: int = 1) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"Limits({name}={value!r}) makes no sense.", todo=f"Use a whole number from {least} up."
        )
    return value


def _money(cost: Decimal | str | float | None) -> Decimal | None:
    if cost is None:
        return None
    try:
        amount = Decimal(str(cost))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount <= 0:
        raise ConfigurationError(f"Limits(cost={cost!r}) is not an amount of money.", todo='Use something like "0.50".')
    return amount
