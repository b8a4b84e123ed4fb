"""What tokens cost."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from msgspec import Struct

from .figure import Figure

_MILLION: Final = Decimal(1_000_000)


class Price(Struct, frozen=True):
    """A model's prices, per million tokens. A cache price that is None counts as plain input."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    currency: str = "USD"


class Cost(Struct, frozen=True):
    """Money, with its interval. `value` is None, never 0, when nothing is known; `high` is None without a bound."""

    value: Decimal | None
    low: Decimal
    high: Decimal | None
    currency: str = "USD"

    def __str__(self) -> str:
        if self.value is None:
            return f"at least {self.low:.4f} {self.currency}" if self.low else "unknown"
        if self.low == self.high:
            return f"{self.value:.4f} {self.currency}"
        high = "?" if self.high is None else f"{self.high:.4f}"
        return f"about {self.value:.4f} {self.currency} ({self.low:.4f} to {high})"


def cost_of(
    price: Price | None, *, input: Figure, cache_read: Figure, cache_write: Figure, output: Figure
) -> Cost | None:
    """What a call cost. `input` includes what was read from and written to the cache. None without a price."""
    if price is None:
        return None
    read_price = price.input if price.cache_read is None else price.cache_read
    write_price = price.input if price.cache_write is None else price.cache_write

    def money(tokens: int, read: int, written: int, out: int) -> Decimal:
        plain = max(0, tokens - read - written)
        return (plain * price.input + read * read_price + written * write_price + out * price.output) / _MILLION

    known = input.value is not None and output.value is not None
    bounded = input.high is not None and output.high is not None
    # Cached tokens are cheap to read and dear to write, so the bounds take each cache figure from the side that
    # makes the sum smallest or largest.
    cheap_read, dear_read = _ordered(cache_read, cheaper=read_price <= price.input)
    cheap_write, dear_write = _ordered(cache_write, cheaper=write_price <= price.input)
    low = money(input.low, min(cheap_read, input.low), min(cheap_write, input.low), output.low)
    return Cost(
        value=money(input.value or 0, cache_read.value or 0, cache_write.value or 0, output.value or 0)
        if known
        else None,
        low=low,
        high=money(input.high or 0, dear_read, dear_write, output.high or 0) if bounded else None,
        currency=price.currency,
    )


def _ordered(cache: Figure, *, cheaper: bool) -> tuple[int, int]:
    """The cache figure that makes the sum smallest, and the one that makes it largest."""
    least, most = cache.low, cache.low if cache.high is None else cache.high
    return (most, least) if cheaper else (least, most)


def total_cost(costs: list[Cost | None]) -> Cost | None:
    """The sum of several costs; None when no price is known for any of them."""
    known = [cost for cost in costs if cost is not None]
    if not known:
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
