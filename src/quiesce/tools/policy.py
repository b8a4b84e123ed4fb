"""What a stop means for a tool that is running."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ..errors import ConfigurationError

OnStop: TypeAlias = Literal["cancel", "finish", "abandon", "kill"]

# A task that was cancelled gets this long to unwind even when no grace is left, because delivering a cancellation takes
# a pass of the loop or two.
LAST_BREATH: Final = 0.1

_DEFAULT_GRACE: Final[dict[str, float]] = {"cancel": 2.0, "finish": 30.0, "abandon": 0.25, "kill": 2.0}


class StopPolicy(Struct, frozen=True):
    """How one tool is stopped, and how long it may take.

    `cancel`   ask it to stop (async: `CancelledError`; sync: its token) and wait for it up to `grace`.
    `finish`   let it finish, up to `grace`; for work with a point of no return.
    `abandon`  wait up to `grace`, then leave it behind and say so.
    `kill`     end its process.
    """

    on_stop: OnStop
    grace: float


def stop_policy(on_stop: str | None, grace: float | None, *, is_async: bool) -> StopPolicy:
    """A policy with the defaults filled in. Raises `ConfigurationError` for one that cannot work."""
    chosen = on_stop or ("cancel" if is_async else "abandon")
    if chosen not in _DEFAULT_GRACE:
        raise ConfigurationError(
            f"There is no stop policy {on_stop!r}.", todo=f"Use one of: {', '.join(_DEFAULT_GRACE)}."
        )
    if grace is not None and not 0 <= grace < float("inf"):
        raise ConfigurationError(f"A grace of {grace!r} seconds is not possible.", todo="Use a number from 0 up.")
    return StopPolicy(chosen, _DEFAULT_GRACE[chosen] if grace is None else float(grace))  # pyright: ignore[reportArgumentType]
