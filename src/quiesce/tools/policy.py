"""Stop policies: what a stop means for a running tool, and how long the tool may take."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Final, Literal, TypeAlias, TypeGuard

from msgspec import Struct

from .._threads.seconds import is_seconds
from ..errors import ConfigurationError

ToolStopPolicyName: TypeAlias = Literal["cancel", "finish", "abandon", "kill"]

# The seconds that a cancelled task has to unwind when no grace is left: the cancellation itself takes a pass or two of
# the event loop.
FINAL_GRACE: Final = 0.1
# The seconds that the kernel may take to end a killed process. It usually takes milliseconds; a process that takes
# longer is still running, as the receipt says.
EXIT_GRACE: Final = 2.0

_DEFAULT_GRACE: Final[dict[str, float]] = {"cancel": 2.0, "finish": 30.0, "abandon": 0.25, "kill": 2.0}


class ToolStopPolicy(Struct, frozen=True):
    """How one tool is stopped, and how long it may take.

    `cancel`   ask it to stop (async: `CancelledError`; sync: its token) and wait for it up to `grace`.
    `finish`   let it finish, up to `grace`; for work with a point of no return.
    `abandon`  wait up to `grace`, then go on without it; the receipt says so.
    `kill`     run it in a process of its own; TERM it with all that it started, and KILL it after `grace`.

    `timeout` stops a call in the same way, and the turn goes on. `max_memory` (bytes) and `max_cpu` (seconds) limit a
    call's process, so they need `kill`. So does `inherit_env`, the environment of that process: all variables (True),
    the harmless ones (False), or these and the named ones.
    """

    on_stop: ToolStopPolicyName
    grace: float
    timeout: float | None = None
    max_memory: int | None = None
    max_cpu: float | None = None
    inherit_env: bool | tuple[str, ...] = True


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether this is a number, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_memory(value: object) -> bool:
    """Whether this is a number of bytes that a process could have."""
    return is_number(value) and 0 < value < 1 << 62


def make_stop_policy(
    on_stop: str | None,
    grace: float | None,
    *,
    is_async: bool,
    timeout: float | None = None,
    max_memory: int | None = None,
    max_cpu: float | None = None,
    inherit_env: bool | Collection[str] = True,
) -> ToolStopPolicy:
    """A policy with the defaults filled in. Raises `ConfigurationError` for one that cannot work."""
    chosen = ("cancel" if is_async else "abandon") if on_stop is None else on_stop
    if not isinstance(chosen, str) or chosen not in _DEFAULT_GRACE:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"There is no stop policy {on_stop!r}.", todo=f"Use one of: {', '.join(_DEFAULT_GRACE)}."
        )
    if grace is not None and not is_seconds(grace):
        raise ConfigurationError(f"A grace of {grace!r} seconds is not possible.", todo="Use a number from 0 up.")
    for name, value in (("timeout", timeout), ("max_memory", max_memory), ("max_cpu", max_cpu)):
        if value is not None and not (_is_memory(value) if name == "max_memory" else is_seconds(value) and value):
            raise ConfigurationError(
                f"{name}={value!r} is not possible.", todo="Use a number above 0, or leave it out."
            )
    if chosen == "kill" and sys.platform == "win32":
        raise ConfigurationError(
            "on_stop='kill' does not work on Windows: processes cannot be ended there with all that they started.",
            todo="Use 'cancel', 'finish' or 'abandon'.",
        )
    if chosen != "kill" and (max_memory is not None or max_cpu is not None):
        raise ConfigurationError(
            "max_memory and max_cpu need a process of their own for the tool.", todo="Add on_stop='kill'."
        )
    if chosen != "kill" and inherit_env is not True:
        raise ConfigurationError(
            "inherit_env needs a process of its own for the tool.",
            todo="Add on_stop='kill'; programs of ctx.run_process have an inherit_env of their own.",
        )
    if isinstance(inherit_env, str) or not isinstance(inherit_env, bool | Collection):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError("inherit_env is a list of names, or True or False.", todo=f"Use [{inherit_env!r}].")
    inherited = inherit_env if isinstance(inherit_env, bool) else tuple(inherit_env)
    seconds = _DEFAULT_GRACE[chosen] if grace is None else float(grace)
    return ToolStopPolicy(chosen, seconds, timeout, max_memory, max_cpu, inherited)  # pyright: ignore[reportArgumentType]
