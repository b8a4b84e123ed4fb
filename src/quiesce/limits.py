"""Budgets: how much a run may use before it is stopped."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

from .errors import ConfigurationError


class Limits:
    """What one run may use, with the runs that its tools start. None means no limit.

    `turns` and `tool_calls` stop a run between steps; `tokens` (in and out together), `output_tokens` and `cost`
    stop it inside an answer. A run that reaches one ends with `stop_reason == "limit"` (cause: `budget`).

    Raises `ConfigurationError` for a limit that is not a positive number.
    """

    __slots__ = ("cost", "inside_answers", "output_tokens", "tokens", "tool_calls", "turns")

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
        self.inside_answers: Final = not (self.tokens is None and self.output_tokens is None and self.cost is None)
        """Whether a limit can be reached in the middle of an answer."""

    def __repr__(self) -> str:
        values = ((name, getattr(self, name)) for name in self.__slots__ if name != "inside_answers")
        return f"Limits({', '.join(f'{name}={value!r}' for name, value in values if value is not None)})"


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
