"""Text for a terminal: what comes from models, tools and servers is made safe for it."""

from __future__ import annotations

import re
import time
from typing import Any, Final

from ..messages import Outcome, ToolResult

# Characters that a terminal interprets: C0 and C1 controls except tab and newline, and bidirectional marks.
CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """The text with terminal control characters replaced."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` characters; an ellipsis marks the cut."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= width else flat[: max(0, width - 1)] + "…"


def call_line(name: str, arguments: dict[str, Any], width: int = 100) -> str:
    """A tool call as people write it."""
    return one_line(f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})", width)


def result_line(result: ToolResult) -> str:
    """The outcome of a tool call on one line: `+` when it succeeded, `x` when it did not."""
    succeeded = result.outcome is Outcome.COMPLETED and not result.is_error
    return f"{'+' if succeeded else 'x'} {result.name}: {one_line(result.text, 100)}"


def date_text(when: float) -> str:
    """A time of the system's clock, as date and minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
