"""A conversation in memory."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from ..errors import ConversationBusy, InvalidConversation
from ..messages import AssistantMessage, Message
from ..transcript import faults

if TYPE_CHECKING:
    from .journal import Journal, RunHost


class Conversation:
    """The messages that were exchanged, valid at every moment, and the run that holds them.

    One run at a time may write. Reading is safe from any thread: the messages are a tuple that is replaced whole.
    """

    def __init__(self, messages: tuple[Message, ...] = ()) -> None:
        found = faults(messages)
        if messages and not isinstance(messages[-1], AssistantMessage):
            found = (*found, "a conversation to continue must end with an assistant message")
        if found:
            raise InvalidConversation(found)
        self._messages = messages
        self._holder: Final[dict[str, str]] = {}
        self._id: Final = uuid.uuid4().hex
        self.values: dict[str, bytes] = {}
        """Small named values that go with the conversation, and are saved with it where it is saved."""

    @property
    def id(self) -> str:
        """What tells this conversation from all others."""
        return self._id

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything that is settled."""
        return self._messages

    @property
    def holder(self) -> str | None:
        """The id of the run that writes here, if one does."""
        return self._holder.get("run")

    def hold(self, run_id: str) -> None:
        """Take the conversation for a run. Raises `ConversationBusy` when another one has it."""
        holder = self._holder.setdefault("run", run_id)  # one atomic step, so that two threads cannot both have it
        if holder != run_id:
            raise ConversationBusy(holder)

    def release(self, run_id: str) -> None:
        """Give the conversation back."""
        if self._holder.get("run") == run_id:
            self._holder.pop("run", None)

    def journal(self, host: RunHost) -> Journal | None:
        """Where a run that holds the conversation writes what happens; nowhere, for one that is only in memory."""
        del host
        return None

    def append(self, *messages: Message) -> None:
        """Add messages, all in one step."""
        self._messages = (*self._messages, *messages)

    def branch(self) -> Conversation:
        """A conversation of its own that begins with what is settled in this one."""
        settled = self._messages
        while settled and not isinstance(settled[-1], AssistantMessage):
            settled = settled[:-1]
        return Conversation(settled)
