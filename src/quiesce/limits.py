"""Budgets: how much a run may use, and what happens when it has used that."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from .errors import ConfigurationError

LimitName: TypeAlias = Literal["turns", "repeated_calls", "tool_calls", "tokens", "output_tokens", "cost"]
OnLimit: TypeAlias = Literal["stop", "answer", "ask"]


class ReachedLimit(Struct, frozen=True):
    """A limit that a run has reached: what was allowed, what was used, a sentence, and advice for people."""

    name: LimitName
    allowed: int | Decimal
    used: int | Decimal
    words: str
    todo: str = ""

    @property
    def reason(self) -> str:
        """The sentence and the advice."""
        return f"{self.words}. {self.todo}" if self.todo else self.words


class Limits:
    """What one run may use, with the runs that its tools start. None switches a limit off.

    `turns` (100 unless given) and `tool_calls` are checked between steps; `tokens` (in and out together),
    `output_tokens` and `cost` also inside an answer. `repeated_calls` (10 unless given) is reached when so many turns
    in a row make the same tool calls and get the same results. `on_limit` decides what happens then; by default the
    run ends with `stop_reason == "limit"` (cause: `budget`).

    Raises `ConfigurationError` for a limit that is not a positive number.
    """

    __slots__ = (
        "advice",
        "cost",
        "inside_answers",
        "output_tokens",
        "repeated_calls",
        "tokens",
        "tool_calls",
        "turns",
        "values",
    )

    def __init__(
        self,
        *,
        turns: int | None = 100,
        repeated_calls: int | None = 10,
        tool_calls: int | None = None,
        tokens: int | None = None,
        output_tokens: int | None = None,
        cost: Decimal | str | float | None = None,
    ) -> None:
        self.turns: Final = _positive("turns", turns)
        self.repeated_calls: Final = _positive("repeated_calls", repeated_calls, least=2)
        self.tool_calls: Final = _positive("tool_calls", tool_calls, least=0)
        self.tokens: Final = _positive("tokens", tokens)
        self.output_tokens: Final = _positive("output_tokens", output_tokens)
        self.cost: Final = _money(cost)
        self.inside_answers: Final = not (self.tokens is None and self.output_tokens is None and self.cost is None)
        """Whether a limit can be reached in the middle of an answer."""
        values: dict[LimitName, int | Decimal | None] = {
            "turns": self.turns,
            "repeated_calls": self.repeated_calls,
            "tool_calls": self.tool_calls,
            "tokens": self.tokens,
            "output_tokens": self.output_tokens,
            "cost": self.cost,
        }
        self.values: Final[Mapping[LimitName, int | Decimal]] = {
            name: value for name, value in values.items() if value is not None
        }
        """The limits that are on, by name."""
        self.advice = ""
        """What a run that reaches its tokens or its cost says besides."""

    def raised(self, to: Mapping[str, Decimal]) -> Limits:
        """The same limits, where each one that `to` names is at least so high. One that is off stays off."""
        raised = {name: max(value, to.get(name, value)) for name, value in self.values.items()}
        return Limits.of(raised)

    @classmethod
    def of(cls, values: Mapping[Any, int | Decimal], *, advice: str = "") -> Limits:
        """The limits with these values; the others are off. A run that reaches its tokens or its cost adds `advice`."""
        given: dict[str, Any] = {name: value if name == "cost" else int(value) for name, value in values.items()}
        limits = cls(**{"turns": None, "repeated_calls": None, **given})
        limits.advice = advice
        return limits

    def __repr__(self) -> str:
        shown: dict[str, Any] = {"turns": None, "repeated_calls": None, **self.values}
        texts = (f"{name}={str(value) if name == 'cost' else value!r}" for name, value in shown.items())
        return f"Limits({', '.join(texts)})"


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
