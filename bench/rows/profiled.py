"""A profile by package: how much of the time is spent in the code of each, what it calls in C included."""

from __future__ import annotations

import cProfile
import pstats
from typing import Any, Final

_WAITING: Final = ("poll' of 'select.epoll", "select.select")
_PACKAGES: Final = ("httpx2", "httpcore2", "h11", "anyio", "asyncio", "msgspec", "pydantic", "bench")
# The parts of Quiesce by what they are for.
_PARTS: Final = {
    "models/wire/connection.py": "quiesce: the connection",
    "models/wire/transport.py": "quiesce: the connection",
    "models": "quiesce: request and decoding",
    "tools": "quiesce: the tool call",
    "usage": "quiesce: the bill",
    "billing": "quiesce: the bill",
    "conversation": "quiesce: the conversation",
    "messages.py": "quiesce: the conversation",
    "run/events": "quiesce: events",
    "events.py": "quiesce: events",
    "cancellation": "quiesce: the stop",
}
Function = tuple[str, int, str]


def package_of(path: str) -> str:
    """The package, or the part of Quiesce, that a file belongs to."""
    path = path.replace("\\", "/")
    if "/quiesce/" in path:
        inside = path.rpartition("/quiesce/")[2]
        return next((name for part, name in _PARTS.items() if inside.startswith(part)), "quiesce: the run")
    for name in _PACKAGES:
        if f"/{name}/" in path:
            return name
    return "the standard library"


def by_package(profile: cProfile.Profile) -> dict[str, Any]:
    """Seconds and calls of each package. A C function counts for the package that calls it; waiting counts for none."""
    stats: dict[Function, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    seconds: dict[str, float] = {}
    calls: dict[str, int] = {}

    def add(package: str, number: int, took: float) -> None:
        seconds[package] = seconds.get(package, 0.0) + took
        calls[package] = calls.get(package, 0) + number

    for (path, _, name), (_, number, own, _, callers) in stats.items():
        if path != "~":
            add(package_of(path), number, own)
        elif not any(each in name for each in _WAITING):
            for (caller, _, _), (_, number_here, own_here, _) in callers.items():
                add(package_of(caller) if caller != "~" else "the standard library", number_here, own_here)
    return {"seconds": seconds, "calls": calls}
