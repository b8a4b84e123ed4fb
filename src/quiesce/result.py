"""What a run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .cancellation import CancellationToken
from .messages import AssistantMessage, Message
from .receipt import Receipt, UndoReceipt
from .sync import portal
from .tools.undo import UndoLog
from .usage.live import LiveUsage
from .usage.prices import Cost

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "stop_sequence", "refusal", "pause", "interrupt", "cancelled", "limit", "error"
]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended and what it produced.

    `messages` is the whole conversation, always valid; `new_messages` is this run's part of it. `output` is the
    structured output, or None unless `output_type` was given and the run finished. `agent` is the agent that spoke
    last. `children` are the results of the runs that this run's tools started, each with the `call_id` of that call.
    `usage` is up to date whenever one looks: after a stop, `await result.usage.final()` waits for better figures.
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
    agent: str = ""
    call_id: str | None = None
    children: tuple[RunResult, ...] = ()
    undo_log: UndoLog | None = field(default=None, repr=False, compare=False)

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

    async def undo(self, token: CancellationToken | None = None) -> tuple[UndoReceipt, ...]:
        """Take back what the run, and the runs below it, did: the `@tool.undo`s of the completed calls, last one first.

        Each call is undone at most once, however often and from wherever this is asked for; returns what became of
        those that were open, which the receipt gets too. Cancelling `token`, or the task that waits here, stops the
        undo: what it had not begun stays open for a later call. The conversation is not changed.
        """
        return () if self.undo_log is None else await self.undo_log.undo(token)

    def undo_sync(self, token: CancellationToken | None = None) -> tuple[UndoReceipt, ...]:
        """`undo()` for code without an event loop."""
        return portal().run(lambda: self.undo(token))

    def __str__(self) -> str:
        return self.text
