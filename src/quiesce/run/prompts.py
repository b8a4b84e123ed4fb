"""Prompts for a run that is busy, from this process and from others, until each is sent or returned."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ..cancellation import Mode
from ..conversation.conversation import Conversation
from ..errors import StoreError
from ..messages import Message, UserMessage
from .inbox import Inbox, join

if TYPE_CHECKING:
    from ..sessions.journal.journal import Journal
    from ..sessions.queue.inbox import SessionInbox


class PendingPrompts:
    """What a run has accepted and not sent yet. Only for the run's own loop, except for the inbox.

    Each accepted message is either sent to the model or returned in `RunResult.unsent`, never both. A prompt of another
    process is marked as sent in the same transaction that puts it into the conversation; one that is not sent is the
    other process's again when the run has ended.
    """

    __slots__ = ("_conversation", "_orphaned", "_remote", "_sent", "_steer", "_taken", "inbox", "run_id", "unannounced")

    def __init__(self, run_id: str, conversation: Conversation, steer: Callable[[Mode], None]) -> None:
        self.run_id: Final = run_id
        self._conversation: Final = conversation
        self._steer: Final = steer
        self.inbox: Final = Inbox()
        self._taken: tuple[UserMessage, ...] = ()
        self._remote: Final[list[tuple[UserMessage, int]]] = []
        self._sent: Final[dict[int, None]] = {}
        self._orphaned: tuple[UserMessage, ...] = ()
        self.unannounced: tuple[Message, ...] = ()
        """Messages that are in the conversation and that hooks have not been called for."""

    # --- Sending ------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._taken) or not self.inbox.empty

    def take(self, *, urgent_only: bool = False) -> bool:
        """Take what is in the inbox, to be sent next. Whether there is anything to send."""
        self._taken += self.inbox.take(urgent_only=urgent_only)
        return bool(self._taken)

    def next_message(self, journal: Journal | None) -> UserMessage:
        """What was taken, as one message, which the caller puts into the conversation in the same step."""
        messages, self._taken = self._taken, ()
        for message, position in self._remote:
            if journal is not None and any(message is each for each in messages):
                journal.mark_sent(position)
                self._sent[position] = None
        return join(messages)

    def unsent(self) -> tuple[UserMessage, ...]:
        """What was accepted and not sent, and that no other process will send.

        Once the inbox is closed it is the same each time: the end of a run is written again after a Ctrl-C in it.
        """
        if not self.take():
            return self._orphaned
        own = (each for each in self._taken if not any(each is message for message, _ in self._remote))
        return (*own, *self._orphaned)

    # --- Prompts of other processes (`PromptReceiver`) ---------------------------------------------------------------

    def steer_remotely(self, message: UserMessage, position: int) -> None:
        """Send this, unless it is too late."""
        self._remote.append((message, position))
        if self.inbox.put(message, urgent=True):
            self._steer(Mode.NOW)

    def stop_remotely(self) -> None:
        """Stop the run, and those here that wait for the conversation: a newer prompt asks for it."""
        self._conversation.stop_all("A newer prompt came", source="remote")

    def stop_taking(self, inbox: SessionInbox) -> bool:
        """Accept no more prompts of other processes. Whether there are some that were not sent."""
        return inbox.stop_taking(self._sent)

    async def return_unsent(self, inbox: SessionInbox) -> None:
        """Give prompts that were not sent back to the processes that they came from, if those still wait."""
        with suppress(StoreError):  # then nothing is known; the other process finds out when it asks for its position
            self._orphaned = await inbox.return_unsent(self._sent)
