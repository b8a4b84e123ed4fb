"""The rules for stopping a running tool: whether it is cancelled at once, and how long the stop waits for it."""

from __future__ import annotations

from ..cancellation import Mode
from .invocation import Invocation
from .policy import EXIT_GRACE
from .tool import Tool


def grace_of(tool: Tool, mode: Mode) -> float:
    """The seconds that a stop in this mode gives the tool to end by itself."""
    return 0.0 if mode is Mode.KILL else tool.policy.grace


def runs_until_grace_ends(tool: Tool, mode: Mode) -> bool:
    """Whether the tool is not cancelled before its grace is over."""
    # A thread cannot be cancelled: its tool reads the token, and the task only waits for the thread.
    return tool.kind == "sync" or (mode is not Mode.KILL and tool.policy.on_stop in ("finish", "abandon"))


def is_cancelled_after_grace(tool: Tool) -> bool:
    """Whether the tool is cancelled when its grace is over, and not before."""
    return tool.kind != "sync" and tool.policy.on_stop == "finish"


def stop_timeout(tool: Tool, invocation: Invocation, mode: Mode) -> float:
    """The seconds that a stop in this mode waits before the call is abandoned, or cancelled after its grace."""
    if invocation.worker is not None or (invocation.has_programs and not runs_until_grace_ends(tool, mode)):
        # The process is killed when its grace is over; the rest is for the kernel to end it.
        return grace_of(tool, mode) + EXIT_GRACE
    if mode is Mode.KILL:
        return 0.0 if tool.kind == "sync" else tool.final_grace
    return tool.policy.grace
