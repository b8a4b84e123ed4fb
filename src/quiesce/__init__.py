"""Quiesce: an agent SDK whose runs can be stopped at any instant, from anywhere, and what is left is true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ._lazy_names import lazy_names
from ._version import __version__

if TYPE_CHECKING:
    from .agent import Agent
    from .as_tool import handoff
    from .cancellation import CancellationToken, Cause, Mode, stop_on_signals
    from .compaction import Summarise, Trim
    from .conversation.continuation import CONTINUE
    from .errors import Cancelled, QuiesceError, ToolError
    from .interrupts import Approve, Deny, Interrupt
    from .limits import Limits
    from .messages import Document, Image, Text, UserMessage
    from .receipt import Receipt
    from .result import RunResult
    from .retry import Retry
    from .run.handle import Run
    from .sessions import Conversation, ConversationState, Session
    from .tools.context import ToolContext
    from .tools.tool import Tool, tool
    from .usage import Price, Usage

# Where each name is at home. It is imported when it is first asked for: a tool's worker process, or a program that only
# wants one of these, need not carry the rest.
_HOMES: Final = {
    ".agent": ("Agent",),
    ".cancellation": (
        "CancellationToken",
        "Cause",
        "Mode",
        "stop_on_signals",
    ),
    ".compaction": (
        "Summarise",
        "Trim",
    ),
    ".conversation.continuation": ("CONTINUE",),
    ".errors": (
        "Cancelled",
        "QuiesceError",
        "ToolError",
    ),
    ".interrupts": (
        "Approve",
        "Deny",
        "Interrupt",
    ),
    ".limits": ("Limits",),
    ".messages": (
        "Document",
        "Image",
        "Text",
        "UserMessage",
    ),
    ".receipt": ("Receipt",),
    ".result": ("RunResult",),
    ".retry": ("Retry",),
    ".run.handle": ("Run",),
    ".sessions": (
        "Conversation",
        "ConversationState",
        "Session",
    ),
    ".as_tool": ("handoff",),
    ".tools.context": ("ToolContext",),
    ".tools.tool": (
        "Tool",
        "tool",
    ),
    ".usage": (
        "Price",
        "Usage",
    ),
}

__all__ = [
    "CONTINUE",
    "Agent",
    "Approve",
    "CancellationToken",
    "Cancelled",
    "Cause",
    "Conversation",
    "ConversationState",
    "Deny",
    "Document",
    "Image",
    "Interrupt",
    "Limits",
    "Mode",
    "Price",
    "QuiesceError",
    "Receipt",
    "Retry",
    "Run",
    "RunResult",
    "Session",
    "Summarise",
    "Text",
    "Tool",
    "ToolContext",
    "ToolError",
    "Trim",
    "Usage",
    "UserMessage",
    "__version__",
    "handoff",
    "stop_on_signals",
    "tool",
]

__getattr__, __dir__ = lazy_names(__name__, globals(), _HOMES)
