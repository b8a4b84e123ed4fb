"""The result of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct

from ._threads.background_loop import portal
from .cancellation import CancellationToken
from .conversation.conversation import Conversation
from .conversation.sealing import last_complete_turn
from .errors import OutputMissing
from .interrupts import Interrupt
from .messages import AssistantMessage, CutNote, Message, UserMessage
from .receipt import Receipt, StopReason, UndoReceipt
from .tools.undo.effect import Effect
from .usage.live import LiveUsage
from .usage.prices import Cost

if TYPE_CHECKING:
    import typing_extensions

__all__ = ["FINISHED", "OutT", "RunResult", "StopReason"]

FINISHED: Final = frozenset({"end_turn", "max_tokens", "stop_sequence", "refusal", "pause"})
if TYPE_CHECKING:
    OutT = typing_extensions.TypeVar("OutT", default=Any)
else:  # the default is for type checkers
    OutT = TypeVar("OutT")


class RunEffects(Protocol):
    """What a run did that can be undone."""

    @property
    def remaining(self) -> tuple[Effect, ...]:
        """What can still be undone."""
        ...

    async def undo(self, token: CancellationToken | None = None) -> tuple[UndoReceipt, ...]:
        """Undo it."""
        ...


class RunResult(Struct, Generic[OutT], frozen=True):
    """How a run ended and what it produced.

    `messages` is the whole conversation, always valid; `new_messages` is this run's part of it. `agent` is the agent
    that spoke last. `children` are the results of the runs that this run's tools started, each with the `call_id` of
    that call.
    `interrupts` is what a person is asked, when `stop_reason` is "interrupt". `unsent` are the prompts that
    the run accepted (with `steer`, `enqueue`, or as a prompt that had to wait) and did not send: they are in no
    conversation.
    `steered` is the run, in another process, that has sent this run's prompt, when `stop_reason` is "steered": the
    answer is in the session, and not here.
    `parsed` has the structured output, if one was wanted and the run finished; read `output`. `answered_at_limit` says
    that without an `output_type` the run ended with the last answer that `on_limit="answer"` asks for.
    `usage` is up to date whenever one looks: after a stop, `await result.usage.final()` waits for better figures.
    """

    run_id: str
    stop_reason: StopReason
    messages: tuple[Message, ...]
    new_messages: tuple[Message, ...]
    usage: LiveUsage
    receipt: Receipt
    parsed: tuple[OutT, ...] = ()
    error: Exception | None = None
    interrupts: tuple[Interrupt, ...] = ()
    unsent: tuple[UserMessage, ...] = ()
    agent: str = ""
    call_id: str | None = None
    children: tuple[RunResult, ...] = ()
    steered: str | None = None
    undo_log: RunEffects | None = None
    answered_at_limit: bool = False

    @property
    def text(self) -> str:
        """The text of the last answer, cut or not."""
        for message in reversed(self.new_messages):
            if isinstance(message, AssistantMessage) and (text := message.text):
                return text
        return ""

    @property
    def finished(self) -> bool:
        """Whether the model came to the end of its answer: not stopped, failed, or waiting for a person."""
        return self.error is None and self.stop_reason in FINISHED

    @property
    def refusal(self) -> str | None:
        """Why the model or its provider refused to answer, in their words; None when `stop_reason` is another."""
        if self.stop_reason != "refusal":
            return None
        last = next((each for each in reversed(self.new_messages) if isinstance(each, AssistantMessage)), None)
        notes = () if last is None else (part.text for part in last.content if isinstance(part, CutNote))
        return "\n".join((self.text, *notes)).strip()

    @property
    def output(self) -> OutT:
        """The answer as `output_type`; without one, its text. Raises `OutputMissing` without an answer.

        At `on_limit="answer"` that is the last answer, if it fits.
        """
        if self.parsed:
            return self.parsed[0]
        if self.stop_reason == "refusal":
            raise OutputMissing(f"The run has no output: {self.refusal}")
        if not self.finished and not self.answered_at_limit:
            raise OutputMissing(f"The run has no output: it ended with stop_reason={self.stop_reason!r}.")
        return self.text  # pyright: ignore[reportReturnType]

    @property
    def cost(self) -> Cost | None:
        """What the run cost, with its interval; None when no price is known."""
        return self.usage.cost

    def rewind(self, to: int | None = None) -> Conversation:
        """A conversation that ends before this run, or with the first `to` messages, for trying again from there.

        Where that is the middle of a turn, it ends before the turn. Use it with `agent.start(..., conversation=...)`.
        """
        before = len(self.messages) - len(self.new_messages)
        return Conversation(last_complete_turn(self.messages, before if to is None else to))

    async def undo(self, token: CancellationToken | None = None) -> tuple[UndoReceipt, ...]:
        """Undo what the task did, all its runs and the runs below them: the `@tool.undo`s of the completed calls.

        The last call is undone first. Of a run that a tool has started, only its own calls are undone. Each call is
        undone at most once, however often and from wherever this is asked for; returns what became of those that were
        open, which the receipt gets too. Cancelling `token`, or the task that waits here, stops the undo: what it had
        not begun stays open for a later call. The model is told at the end of its last answer.
        In a session this holds the session meanwhile: raises `ConversationBusy` or a `StoreError` when it cannot.
        """
        return () if self.undo_log is None else await self.undo_log.undo(token)

    def undo_sync(self, token: CancellationToken | None = None) -> tuple[UndoReceipt, ...]:
        """`undo()` for code without an event loop."""
        return portal().run(lambda: self.undo(token))

    def __str__(self) -> str:
        return self.text
