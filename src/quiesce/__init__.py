"""Quiesce: an agent SDK whose runs can be stopped at any instant, from anywhere, and what is left is true."""

from ._version import __version__
from .agent import Agent
from .cancellation import CancellationToken, Cause, Mode, stop_on_signals
from .context import Summarise, Trim
from .errors import Cancelled, QuiesceError, ToolError
from .limits import Limits
from .messages import Document, Image, Text, UserMessage
from .receipt import Receipt
from .result import RunResult
from .retry import Retry
from .run import Run
from .sessions import Conversation, Session
from .subagents import handoff
from .tools.context import ToolContext
from .tools.tool import Tool, tool
from .usage import Price, Usage

__all__ = [
    "Agent",
    "CancellationToken",
    "Cancelled",
    "Cause",
    "Conversation",
    "Document",
    "Image",
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
