"""The turn that a run is adding to its conversation, and the view of both that others see meanwhile."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from ..conversation.answer import AnswerBuilder
from ..conversation.continuation import prefill_message
from ..conversation.conversation import Conversation
from ..conversation.sealing import seal_answer, seal_turn
from ..interrupts import PendingTurn
from ..messages import AssistantContent, AssistantMessage, Message, Outcome, ToolResult, UserMessage
from ..tools.batch import ToolBatch
from .config import Handoff


class TurnView(NamedTuple):
    """A conversation with the turn that a run is adding to it; replaced whole, so that any thread may look.

    settled    the conversation before the turn
    builder    the answer that is being written, or was written last in this turn
    batch      the tools of the turn
    answer     the answer, once it is complete
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


class _CallIds:
    """The ids of the calls in a conversation that grows: only what is new is read."""

    __slots__ = ("_count", "_ids", "_last")

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._count = 0
        self._last: Message | None = None

    def of(self, messages: tuple[Message, ...]) -> Container[str]:
        """The ids of all calls."""
        if len(messages) < self._count or (self._count and messages[self._count - 1] is not self._last):
            self._ids, self._count = {}, 0
        for message in messages[self._count :]:
            if isinstance(message, AssistantMessage):
                self._ids.update(dict.fromkeys(call.id for call in message.tool_calls))
        self._count, self._last = len(messages), messages[-1] if messages else None
        return self._ids


class TurnInProgress:
    """The answer that is being written and the tools that it asks for. Each change is visible at once and whole."""

    __slots__ = ("_call_ids", "_continued", "_conversation", "handoff", "pauses", "view")

    def __init__(self, conversation: Conversation) -> None:
        self._conversation: Final = conversation
        self._continued: tuple[AssistantContent, ...] | None = None
        self.pauses = 0
        """How often in a row the provider has paused the answer that it is at."""
        self._call_ids: Final = _CallIds()
        self.handoff: Handoff | None = None
        """The agent that continues after this turn, if one of its tools asked for a handoff."""
        self.view = TurnView(())

    # --- Looking ------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it would be if the run ended in this instant. Always valid, from any thread."""
        view = self.view
        return (*view.settled, *view.turn(unsettled=Outcome.UNKNOWN))

    @property
    def answer(self) -> AssistantMessage | None:
        """The current answer, as far as it has come."""
        view = self.view
        return view.builder.message() if view.answer is None and view.builder is not None else view.answer

    def request_messages(self) -> tuple[Message, ...]:
        """What the model is sent: everything settled, and the beginning of the answer that it is to go on with."""
        messages, said = self._conversation.messages, self._continued
        if said is None:
            return messages
        beginning = (AssistantMessage(said) if self.pauses else prefill_message(said),) if said else ()
        return (*messages[:-1], *beginning)

    # --- Changing -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new turn, or a new try of this one: all there is to see is the conversation."""
        self.view = TurnView(self._conversation.messages)

    def take_up(self, answer: AssistantMessage, batch: ToolBatch) -> None:
        """Go on with a turn that an earlier run began."""
        self.view = TurnView(self._conversation.messages, None, batch, answer)

    def go_on_from(self, said: tuple[AssistantContent, ...]) -> None:
        """The next answer is the rest of the conversation's last one, which began with this."""
        self._continued = said

    def begin_answer(self) -> AnswerBuilder:
        """A new answer to what is settled."""
        messages = self._conversation.messages
        builder = AnswerBuilder(self._call_ids.of(messages), self._continued or ())
        self.view = TurnView(messages if self._continued is None else messages[:-1], builder)
        return builder

    def go_on_after_pause(self) -> None:
        """Put the answer into the conversation as far as it has come; the next answer is the rest of it.

        What it has said is the beginning of the next answer at once, so that a stop finds it there.
        """
        said, pauses = self.answer, self.pauses + 1
        assert said is not None
        self.commit((said,))
        self.pauses = pauses
        self._continued = said.content
        self.begin_answer()

    def end_answer(self) -> AssistantMessage | None:
        """The answer has come to its end, or is cut here: it is built once. None when it has no content."""
        answer = self.answer
        if answer is not self.view.answer:
            self.view = TurnView(*self.view[:3], answer)
        return answer

    def use_tools(self, batch: ToolBatch) -> None:
        """The answer asks for these tools; none has started."""
        self.view = self.view._replace(batch=batch)

    def commit(self, turn: tuple[Message, ...]) -> None:
        """Put the turn into the conversation and begin a new one. `messages` shows the turn at every moment, once."""
        if turn:
            self._conversation.append(*turn, replacing=self._replacing)
            self._continued, self.pauses = None, 0
        self.view = TurnView(self._conversation.messages)

    def drop_committed(self) -> None:
        """Forget a turn that is in the conversation already: an exception such as Ctrl-C came right after that."""
        if len(self._conversation.messages) > len(self.view.settled) + self._replacing:
            self.begin()

    def suspend(self, pending: PendingTurn, note: str) -> None:
        """Keep the turn beside the conversation, until a person has answered what its tools ask."""
        self._conversation.suspend(pending, replacing=self._replacing)
        self.view = TurnView(self._conversation.sealed(note))

    def add_prompt(self, message: UserMessage) -> None:
        """Add a user message, in a conversation where one may follow."""
        self._conversation.append(message)
        self._continued, self.pauses = None, 0
        self.begin()

    @property
    def _replacing(self) -> int:
        return 0 if self._continued is None else 1
