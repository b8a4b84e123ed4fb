"""What those in other processes, who share the session's store, say to a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ..errors import StoreError
from ..messages import UserMessage
from ..sessions import Conversation
from ..sessions.journal.journal import Journal
from ..sessions.queue.inbox import Mailbox
from .inbox import Inbox


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
        self._letters: Final[list[tuple[UserMessage, int]]] = []
        self._said: Final[set[int]] = set()
        self._orphans: tuple[UserMessage, ...] = ()

    def steer_from_afar(self, message: UserMessage, place: int) -> None:
        """Say this, unless it is too late."""
        self._letters.append((message, place))
        if self._inbox.put(message, urgent=True):
            self._steer()

    def stop_from_afar(self) -> None:
        """A newer prompt wants everything before it to stop: this run, and those here that wait for it."""
        self._conversation.stop_all("A newer prompt came", source="remote")

    def say(self, messages: tuple[UserMessage, ...], journal: Journal | None) -> None:
        """These are going to be in the conversation with what is written next."""
        for message, place in self._letters:
            if journal is not None and any(message is each for each in messages):
                journal.answer(place)
                self._said.add(place)

    def stop_taking(self, mailbox: Mailbox) -> bool:
        """The run says nothing more. Whether it was given words that it has not said."""
        return mailbox.stop_taking(self._said)

    async def hand_back(self, mailbox: Mailbox) -> None:
        """What the run was given and has not said is its sender's again, if that still waits."""
        with suppress(StoreError):  # then nobody knows; the sender finds out when it asks for its place
            self._orphans = await mailbox.hand_back(self._said)

    def unsaid(self, messages: tuple[UserMessage, ...]) -> tuple[UserMessage, ...]:
        """Of what the run was told and has not said, that which nobody else will say."""
        own = tuple(each for each in messages if not any(each is message for message, _ in self._letters))
        return (*own, *self._orphans)
