"""When a failed model call is tried again, and how long to wait before that."""

from __future__ import annotations

from msgspec import Struct

from .errors import ConfigurationError, ModelError


class Retry(Struct, frozen=True):
    """Up to `attempts` tries. The wait doubles from `first` up to `longest`; a provider's Retry-After replaces it.

    A provider that asks for more than `patience` seconds is not waited for. `jitter` spreads the waits by that part.
    Raises `ConfigurationError` for figures that make no sense.
    """

    attempts: int = 4
    first: float = 0.5
    longest: float = 30.0
    patience: float = 120.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        whole = isinstance(self.attempts, int) and not isinstance(self.attempts, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not whole or self.attempts < 1:
            raise ConfigurationError(
                f"Retry(attempts={self.attempts!r}) makes no sense.",
                todo="Use a whole number from 1 up; 1 never retries.",
            )
        for name in ("first", "longest", "patience", "jitter"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise ConfigurationError(f"Retry({name}={value!r}) makes no sense.", todo="Use a number from 0 up.")

    def delay(self, error: ModelError, attempt: int) -> float | None:
        """Seconds to wait after the `attempt`-th try failed, or None to give up."""
        if not error.retryable or attempt >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.patience else None
        import random  # not needed before something fails

        wait = min(self.longest, self.first * 2 ** min(attempt - 1, 1000))
        return wait * (1 + self.jitter * random.random())  # noqa: S311 - spreading load, not keeping secrets
