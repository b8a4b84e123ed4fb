"""What those in other processes, who share the session's store, say to a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .inbox import Inbox
from .messages import UserMessage
from .sessions import Conversation
from .sessions.journal import Journal


class Correspondence:
    """The letters that a run was brought. Only for the run's own loop.

    A letter is answered in the same transaction that puts its words into the conversation. One that is not answered is
    its sender's again when the run has ended: so it is neither lost nor said twice.
    """

    def __init__(self, run_id: str, conversation: Conversation, inbox: Inbox, steer: Callable[[], None]) -> None:
        self.run_id: Final = run_id
        self._conversation: Final = conversation
        self._inbox: Final = inbox
        self._steer: Final = steer
        self._open: Final[list[tuple[UserMessage, int]]] = []

    def steer_from_afar(self, message: UserMessage, place: int) -> None:
        """Say this, unless it is too late."""
        self._open.append((message, place))
        if self._inbox.put(message, urgent=True):
            self._steer()

    def sender_left(self, place: int) -> None:
        """Nobody waits for an answer any more: words that are not said are handed back by this run, as its own are."""
        self._open[:] = [each for each in self._open if each[1] != place]

    def stop_from_afar(self) -> None:
        """A newer prompt wants everything before it to stop: this run, and those here that wait for it."""
        self._conversation.stop_all("A newer prompt came", source="remote")

    def say(self, messages: tuple[UserMessage, ...], journal: Journal | None) -> None:
        """These are going to be in the conversation with what is written next."""
        for message, place in self._open:
            if journal is not None and any(message is each for each in messages):
                journal.answer(place)

    def without(self, messages: tuple[UserMessage, ...]) -> tuple[UserMessage, ...]:
        """Those of some messages that nobody else will say."""
        return tuple(each for each in messages if not any(each is message for message, _ in self._open))
