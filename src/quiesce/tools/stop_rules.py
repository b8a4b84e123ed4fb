"""What a stop grants a tool that is running: whether it is cancelled at once, and how long it is waited for."""

from __future__ import annotations

from ..cancellation import Mode
from .invocation import Invocation
from .policy import REAPING
from .tool import Tool


def grace_of(tool: Tool, mode: Mode) -> float:
    """How long a stop in this mode lets the tool end by itself."""
    return 0.0 if mode is Mode.KILL else tool.policy.grace


def is_spared(tool: Tool, mode: Mode) -> bool:
    """Whether the tool goes on until its grace is over."""
    # A thread cannot be cancelled: its tool sees the token, and what is awaited here is only its answer.
    return tool.kind == "sync" or (mode is not Mode.KILL and tool.policy.on_stop in ("finish", "abandon"))


def is_cancelled_at_last(tool: Tool) -> bool:
    """Whether the tool is cancelled when its grace is over, and not before."""
    return tool.kind != "sync" and tool.policy.on_stop == "finish"


def patience_with(tool: Tool, invocation: Invocation, mode: Mode) -> float:
    """How long a stop in this mode waits before it gives the call up, or cancels it at last."""
    if invocation.worker is not None or (invocation.has_programs and not is_spared(tool, mode)):
        # The process is killed when its grace is over; the rest is for the kernel to be slow in.
        return grace_of(tool, mode) + REAPING
    if mode is Mode.KILL:
        return 0.0 if tool.kind == "sync" else tool.last_breath
    return tool.policy.grace
