"""Quiesce: an agent SDK whose runs can be stopped at any instant, from anywhere, and what is left is true."""

from ._version import __version__
from .agent import Agent
from .cancellation import CancellationToken, Cause, Mode, stop_on_signals
from .context import Summarise, Trim
from .continuing import CONTINUE
from .errors import Cancelled, QuiesceError, ToolError
from .interrupts import Approve, Deny, Interrupt
from .limits import Limits
from .messages import Document, Image, Text, UserMessage
from .receipt import Receipt
from .result import RunResult
from .retry import Retry
from .run import Run
from .sessions import Conversation, ConversationState, Session
from .subagents import handoff
from .tools.context import ToolContext
from .tools.tool import Tool, tool
from .usage import Price, Usage

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
