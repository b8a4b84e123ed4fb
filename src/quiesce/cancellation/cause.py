"""Why a run was asked to stop, and how urgently."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import force_setattr

from ..errors import UnknownMode

Source: TypeAlias = Literal[
    "user",
    "deadline",
    "budget",
    "disconnect",
    "signal",
    "parent",
    "shutdown",
    "remote",
    "hook",
    "tool",
    "guardrail",
    "caller",
]

if TYPE_CHECKING:
    _ReadableSource: TypeAlias = Source
else:  # older stores have "task" for "caller": it can be decoded, and is changed at once
    _ReadableSource = Literal[Source, "task"]


ModeName: TypeAlias = Literal["after_turn", "after_tools", "now", "kill"]


class Mode(StrEnum):
    """How urgently to stop, from the most patient to the least. Modes compare by urgency.

    `after_turn`   finish the answer and all its tools, then stop.
    `after_tools`  cut the model; let tools that already run finish; start no more.
    `now`          cut the model; each tool gets its declared grace.
    `kill`         like `now`, with no grace.
    """

    AFTER_TURN = "after_turn"
    AFTER_TOOLS = "after_tools"
    NOW = "now"
    KILL = "kill"

    def __lt__(self, other: str) -> bool:
        return _URGENCY[self] < _URGENCY[other]

    def __le__(self, other: str) -> bool:
        return _URGENCY[self] <= _URGENCY[other]

    def __gt__(self, other: str) -> bool:
        return _URGENCY[self] > _URGENCY[other]

    def __ge__(self, other: str) -> bool:
        return _URGENCY[self] >= _URGENCY[other]


_URGENCY: Final[dict[str, int]] = {mode.value: index for index, mode in enumerate(Mode)}
_MODES: Final[dict[str, Mode]] = {mode.value: mode for mode in Mode}
MOST_URGENT_FIRST: Final = tuple(reversed(Mode))


def parse_mode(mode: str) -> Mode:
    """The `Mode` that a string names. Raises `UnknownMode` for any other string."""
    try:
        return _MODES[mode]
    except (KeyError, TypeError):
        raise UnknownMode(mode, tuple(m.value for m in Mode)) from None


class Cause(Struct, frozen=True, gc=False):
    """Who or what asked for the stop, why, when and how urgently.

    `at` is wall-clock time; `clock` is a monotonic reading for latencies. `origin` is the first cause up the tree when
    the request came through a parent token.
    """

    source: _ReadableSource
    reason: str = ""
    mode: Mode = Mode.NOW
    at: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)
    origin: Cause | None = None

    def __post_init__(self) -> None:
        if str(self.source) == "task":
            force_setattr(self, "source", "caller")

    def from_parent(self, mode: Mode | None = None) -> Cause:
        """The same request as a child token sees it; `mode` is what it has become since, if that is more urgent."""
        mode = mode or self.mode
        if self.origin is not None and mode == self.mode:
            return self
        return Cause("parent", self.reason, mode, self.at, self.clock, self.origin or self)

    def __str__(self) -> str:
        who = self.source if self.origin is None else f"{self.source} ({self.origin.source})"
        return f"{who}: {self.reason}" if self.reason else who
