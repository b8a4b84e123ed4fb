"""Budgets: how much a run may use before it is stopped."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

from .cancellation import CancellationToken, Mode
from .errors import ConfigurationError
from .usage.counting import ByteCounter
from .usage.figure import Figure, Provenance
from .usage.ledger import TokenUsage, Usage
from .usage.prices import Price, cost_of
from .usage.tally import Spending, Tally


class Limits:
    """What one run may use. None means no limit.

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


class Meter:
    """Watches one model call against the limits and stops the run when one is reached."""

    def __init__(self, limits: Limits, spent: Usage, price: Price | None, token: CancellationToken) -> None:
        self._limits: Final = limits
        self._spent: Final = spent
        self._price: Final = price
        self._token: Final = token

    def check(self, counter: ByteCounter, input_tokens: int | None, output_tokens: int | None) -> None:
        """Compare what this call has used by now. What was counted stands in for what was not reported."""
        output = max(counter.tokens, output_tokens or 0)
        sent = input_tokens or 0
        limits, spent = self._limits, self._spent
        earlier_output = spent.output.value or spent.output.low
        earlier_input = spent.input.value or spent.input.low
        if limits.output_tokens is not None and earlier_output + output > limits.output_tokens:
            self._stop(f"more than {limits.output_tokens:,} output tokens")
        elif limits.tokens is not None and earlier_input + earlier_output + sent + output > limits.tokens:
            self._stop(f"more than {limits.tokens:,} tokens")
        elif limits.cost is not None and self._cost(sent, output) > limits.cost:
            self._stop(f"more than {limits.cost} {self._price.currency if self._price else ''}".rstrip())

    def _cost(self, sent: int, output: int) -> Decimal:
        earlier = self._spent.cost
        before = Decimal(0) if earlier is None else earlier.value or earlier.low
        return before + _price_of(self._price, sent, output)

    def _stop(self, what: str) -> None:
        self._token.cancel(f"The run would use {what}", source="budget", mode=Mode.NOW)


class SharedMeter:
    """Watches one model call of a child run against the limits of a run above it, which all its children share.

    What every child has used by now counts, calls under way included. The run whose limit is reached is the one that is
    stopped, and with it everything below.
    """

    def __init__(
        self, limits: Limits, tally: Tally, price: Price | None, token: CancellationToken, entry_id: str
    ) -> None:
        self._limits: Final = limits
        self._tally: Final = tally
        self._price: Final = price
        self._token: Final = token
        self._entry_id: Final = entry_id

    def check(self, counter: ByteCounter, input_tokens: int | None, output_tokens: int | None) -> None:
        """Write down what this call has used by now, and compare what all have used."""
        output = max(counter.tokens, output_tokens or 0)
        sent = input_tokens or 0
        cost = _price_of(self._price, sent, output)
        limits, tally = self._limits, self._tally
        tally.note(self._entry_id, Spending(sent, output, cost))
        if limits.output_tokens is not None and tally.output > limits.output_tokens:
            self._stop(f"more than {limits.output_tokens:,} output tokens")
        elif limits.tokens is not None and tally.input + tally.output > limits.tokens:
            self._stop(f"more than {limits.tokens:,} tokens")
        elif limits.cost is not None and tally.cost > limits.cost:
            self._stop(f"more than {limits.cost} {self._price.currency if self._price else ''}".rstrip())

    def _stop(self, what: str) -> None:
        self._token.cancel(f"The run and its children would use {what}", source="budget", mode=Mode.NOW)


def _price_of(price: Price | None, sent: int, output: int) -> Decimal:
    usage = TokenUsage(_guess(sent), _guess(output))
    cost = cost_of(
        price, input=usage.input, cache_read=usage.cache_read, cache_write=usage.cache_write, output=usage.output
    )
    return Decimal(0) if cost is None else cost.value or Decimal(0)


def _guess(tokens: int) -> Figure:
    return Figure(tokens, tokens, tokens, Provenance.HEURISTIC)


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
