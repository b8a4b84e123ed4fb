"""When a failed model call is tried again, and how long to wait before that."""

from __future__ import annotations

import random

from msgspec import Struct

from .errors import ModelError


class Retry(Struct, frozen=True):
    """Up to `attempts` tries. The wait doubles from `first` up to `longest`; a provider's Retry-After goes before it.

    A provider that asks for more than `patience` seconds is not waited for. `jitter` spreads the waits by that part.
    """

    attempts: int = 4
    first: float = 0.5
    longest: float = 30.0
    patience: float = 120.0
    jitter: float = 0.2

    def delay(self, error: ModelError, attempt: int) -> float | None:
        """Seconds to wait after the `attempt`-th try failed, or None to give up."""
        if not error.retryable or attempt >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.patience else None
        wait = min(self.longest, self.first * 2 ** (attempt - 1))
        return wait * (1 + self.jitter * random.random())  # noqa: S311 - spreading load, not keeping secrets
