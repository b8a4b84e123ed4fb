"""Times that a user gives, in seconds: checked, and no longer than a thread or a timer can wait."""

from __future__ import annotations

from threading import TIMEOUT_MAX
from typing import TypeGuard

from ..errors import ConfigurationError


def is_seconds(value: object, *, least: float = 0.0) -> TypeGuard[float]:
    """Whether this is a number of seconds, from `least` up, that can be waited."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= TIMEOUT_MAX


def checked_seconds(name: str, seconds: object, *, least: float = 0.0) -> float:
    """The seconds. Raises `ConfigurationError` for what is no time, or less than `least`."""
    if not is_seconds(seconds, least=least):
        raise ConfigurationError(f"{name}={seconds!r} makes no sense.", todo="Use a number of seconds.")
    return seconds


def lock_timeout(seconds: float | None) -> float:
    """The seconds as `Lock.acquire` takes them: -1 for ever, and no more than it can wait."""
    return -1 if seconds is None else min(max(0.0, seconds), TIMEOUT_MAX)
