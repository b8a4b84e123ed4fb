"""What tokens cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr

from ..errors import ConfigurationError
from .figure import Bounded, Figure

_MILLION: Final = Decimal(1_000_000)


class Tier(Struct, frozen=True):
    """Prices, per million tokens, for requests with more than `above` input tokens: for all of their tokens."""

    above: int
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None

    def __post_init__(self) -> None:
        _check_rates(self)


class Price(Struct, frozen=True):
    """A model's prices, per million tokens. A cache price that is None counts as plain input.

    Numbers and text are made decimals. Raises `ConfigurationError` for what is no number.
    """

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    currency: str = "USD"
    tiers: tuple[Tier, ...] = ()

    def __post_init__(self) -> None:
        _check_rates(self)

    def money(self, tokens: int, read: int, written: int, out: int) -> Decimal:
        """What a call costs. `tokens` is the whole input, with what was read from and written to the cache."""
        return _money(self.rates(tokens), tokens, read, written, out)

    def rates(self, tokens: int) -> Price | Tier:
        """The prices for a call with so many input tokens."""
        return next((tier for tier in reversed(self.tiers) if tokens > tier.above), self) if self.tiers else self


def _money(rates: Price | Tier, tokens: int, read: int, written: int, out: int) -> Decimal:
    read_rate = rates.input if rates.cache_read is None else rates.cache_read
    write_rate = rates.input if rates.cache_write is None else rates.cache_write
    plain = max(0, tokens - read - written)
    return (plain * rates.input + read * read_rate + written * write_rate + out * rates.output) / _MILLION


def _check_rates(price: Price | Tier) -> None:
    for name in ("input", "output", "cache_read", "cache_write"):
        rate: object = getattr(price, name)
        if rate is None:
            continue
        try:
            amount = rate if isinstance(rate, Decimal) else Decimal(str(rate))
        except InvalidOperation:
            amount = Decimal("NaN")
        if not amount.is_finite():
            raise ConfigurationError(f"{rate!r} is no price.", todo="Use a Decimal, per million tokens.")
        force_setattr(price, name, amount)


class Cost(Bounded[Decimal], frozen=True):
    """Money, with its interval. `value` is None, never 0, when nothing is known; `high` is None without a bound."""

    currency: str = "USD"

    @property
    def _unit(self) -> str:
        return f" {self.currency}"

    def _words(self, amount: Decimal) -> str:
        """Four places, and more where the best guess would vanish in them."""
        return f"{amount:,.4f}" if (self.value or self.high or self.low) >= Decimal("0.01") else f"{amount:,.6f}"


def cost_of(
    price: Price | None, *, input: Figure, cache_read: Figure, cache_write: Figure, output: Figure
) -> Cost | None:
    """What a call cost. `input` includes what was read from and written to the cache. None without a price."""
    if price is None:
        return None
    value: Decimal | None = None
    if input.value is not None and output.value is not None:
        value = price.money(input.value, cache_read.value or 0, cache_write.value or 0, output.value)
        if _is_certain(input, cache_read, cache_write, output):
            return Cost(value, value, value, price.currency)
    low, high = _extreme(min, price, tokens=input.low, read=cache_read, written=cache_write, out=output.low), None
    if input.high is not None and output.high is not None:
        high = _extreme(max, price, tokens=input.high, read=cache_read, written=cache_write, out=output.high)
        high = high if value is None else max(high, value)
    return Cost(value, low if value is None else min(low, value), high, price.currency)


def _extreme(
    pick: Callable[[Iterable[Decimal]], Decimal], price: Price, *, tokens: int, read: Figure, written: Figure, out: int
) -> Decimal:
    """The least or the most that the same call costs, with as little and with as much of it cached as may be: cached
    tokens are cheap to read and dear to write, or the other way round.
    """
    rates = price.rates(tokens)
    if _may_be_all(read, tokens) and _may_be_all(written, tokens):  # no report: then all tokens have one price
        known = [rate for rate in (rates.input, rates.cache_read, rates.cache_write) if rate is not None]
        return (tokens * pick(known) + out * rates.output) / _MILLION
    reads = {read.low, tokens if read.high is None else min(read.high, tokens)}
    writes = {written.low, tokens if written.high is None else min(written.high, tokens)}
    cached = {(some, min(others, max(0, tokens - some))) for some in reads for others in writes}
    return pick([_money(rates, tokens, some, others, out) for some, others in cached])


def _is_certain(sent: Figure, read: Figure, written: Figure, out: Figure) -> bool:
    """Whether all is reported, and no more of the input is cached than there is."""
    if not (sent.exact and out.exact and read.exact and written.exact):
        return False
    return read.low + written.low <= sent.low


def _may_be_all(part: Figure, tokens: int) -> bool:
    return not part.low and (part.high is None or part.high >= tokens)


def total_cost(costs: list[Cost | None]) -> Cost | None:
    """The sum of several costs; None when no price is known for any of them, or when they are in several currencies."""
    known = [cost for cost in costs if cost is not None]
    if len({cost.currency for cost in known}) != 1:
        return None
    missing = len(known) < len(costs)
    values = [cost.value for cost in known if cost.value is not None]
    highs = [cost.high for cost in known if cost.high is not None]
    return Cost(
        value=sum(values, Decimal(0)) if len(values) == len(costs) else None,
        low=sum((cost.low for cost in known), Decimal(0)),
        high=sum(highs, Decimal(0)) if len(highs) == len(known) and not missing else None,
        currency=known[0].currency,
    )
