"""The turn that a run is adding to its conversation, and the view of both that others see meanwhile."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..conversation.answer import AnswerBuilder
from ..conversation.continuation import prefill_message
from ..conversation.sealing import seal_answer, seal_turn
from ..interrupts import PendingTurn
from ..messages import AssistantContent, AssistantMessage, Message, Outcome, ToolResult, UserMessage
from ..sessions import Conversation
from ..tools.batch import ToolBatch
from .config import Handoff


class TurnView(NamedTuple):
    """A conversation with the turn that a run is adding to it; replaced whole, so that any thread may look.

    `answer` is that of a turn which an earlier run began and this one goes on with.
    """

    settled: tuple[Message, ...]
    builder: AnswerBuilder | None = None
    batch: ToolBatch | None = None
    answer: AssistantMessage | None = None

    def turn(self, *, unsettled: Outcome) -> tuple[Message, ...]:
        """The messages of the current turn so far; `unsettled` is the outcome of calls that have no result yet."""
        results: dict[str, ToolResult] = {}
        if self.batch is not None:
            for record in self.batch.calls:
                results[record.call.id] = record.result_or(unsettled)
        return seal_turn(self.builder, results) if self.answer is None else seal_answer(self.answer, results)


class TurnInProgress:
    """The answer that is being written and the tools that it asks for. Each change is visible at once and whole."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation: Final = conversation
        self._continued: tuple[AssistantContent, ...] | None = None
        self.handoff: Handoff | None = None
        """The agent that continues after this turn, if one of its tools asked for a handoff."""
        self._view = TurnView(())
        self._complete: tuple[AnswerBuilder | None, AssistantMessage | None] = (None, None)
        """The last answer that was complete, sealed once."""

    # --- Looking ------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it would be if the run ended in this instant. Always valid, from any thread."""
        view = self._view
        return (*view.settled, *view.turn(unsettled=Outcome.UNKNOWN))

    @property
    def builder(self) -> AnswerBuilder | None:
        """The answer that is being written, or was written last in this turn."""
        return self._view.builder

    @property
    def batch(self) -> ToolBatch | None:
        """The tools of this turn."""
        return self._view.batch

    @property
    def settled(self) -> tuple[Message, ...]:
        """The conversation before the current turn."""
        messages = self._conversation.messages
        return messages if self._continued is None else messages[:-1]

    @property
    def answer(self) -> AssistantMessage | None:
        """The current answer, as far as it has come."""
        view = self._view
        builder, answer = self._complete
        if builder is not None and builder is view.builder:
            return answer
        turn = view.turn(unsettled=Outcome.UNKNOWN)
        answer = turn[0] if turn and isinstance(turn[0], AssistantMessage) else None
        if view.builder is not None and view.builder.complete:
            self._complete = (view.builder, answer)
        return answer

    def so_far(self, *, unsettled: Outcome = Outcome.NEVER_STARTED) -> tuple[Message, ...]:
        """The messages of the current turn so far; `unsettled` is the outcome of calls that have no result yet."""
        return self._view.turn(unsettled=unsettled)

    def request_messages(self) -> tuple[Message, ...]:
        """What the model is sent: everything settled, and the beginning of the answer that it is to go on with."""
        if not self._continued:
            return self.settled
        return (*self.settled, prefill_message(self._continued))

    # --- Changing -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new turn: all there is to see is the conversation."""
        self._view = TurnView(self._conversation.messages)

    def take_up(self, answer: AssistantMessage, batch: ToolBatch) -> None:
        """Go on with a turn that an earlier run began."""
        self._view = TurnView(self._conversation.messages, None, batch, answer)

    def go_on_from(self, said: tuple[AssistantContent, ...]) -> None:
        """The next answer is the rest of the conversation's last one, which began with this."""
        self._continued = said

    def begin_answer(self) -> AnswerBuilder:
        """A new answer; whatever a failed try had begun is gone."""
        builder = AnswerBuilder(self._call_ids(), self._continued or ())
        self._view = TurnView(self.settled, builder)
        return builder

    def forget_answer(self) -> None:
        """Drop the answer of a try that failed before readers got any of it."""
        self.begin()

    def use_tools(self, batch: ToolBatch) -> None:
        """The answer asks for these tools; none has started."""
        self._view = self._view._replace(batch=batch)

    def commit(self, turn: tuple[Message, ...]) -> None:
        """Put the turn into the conversation and begin a new one. What `messages` shows never wavers in between."""
        if turn:
            self._conversation.append(*turn, replacing=self._replacing)
            self._continued = None
        self.begin()

    def suspend(self, pending: PendingTurn, note: str) -> None:
        """Keep the turn beside the conversation, until a person has answered what its tools ask."""
        self._conversation.suspend(pending, replacing=self._replacing)
        self._view = TurnView(self._conversation.sealed(note))

    def add_prompt(self, message: UserMessage) -> None:
        """Add a user message, in a conversation where one may follow."""
        self._conversation.append(message)
        self._continued = None
        self.begin()

    def _call_ids(self) -> set[str]:
        """The call ids that the conversation has used."""
        return {
            call.id
            for message in self._conversation.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        }

    @property
    def _replacing(self) -> int:
        return 0 if self._continued is None else 1
