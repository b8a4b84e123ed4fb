"""What a run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .messages import AssistantMessage, Message
from .receipt import Receipt
from .usage.live import LiveUsage
from .usage.prices import Cost

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "stop_sequence", "refusal", "pause", "interrupt", "cancelled", "limit", "error"
]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended and what it produced.

    `messages` is the whole conversation, always valid; `new_messages` is this run's part of it. `output` is the
    structured output, or None unless `output_type` was given and the run finished. `usage` is up to date whenever one
    looks: after a stop, `await result.usage.final()` waits for figures that are still being found out.
    """

    run_id: str
    stop_reason: StopReason
    messages: tuple[Message, ...]
    new_messages: tuple[Message, ...]
    usage: LiveUsage
    receipt: Receipt
    output: Any = None
    error: Exception | None = None
    interrupts: tuple[Any, ...] = field(default=())

    @property
    def text(self) -> str:
        """The words of the last answer, cut or not."""
        for message in reversed(self.new_messages):
            if isinstance(message, AssistantMessage) and message.text:
                return message.text
        return ""

    @property
    def cost(self) -> Cost | None:
        """What the run cost, with its interval; None when no price is known."""
        return self.usage.cost

    def __str__(self) -> str:
        return self.text
