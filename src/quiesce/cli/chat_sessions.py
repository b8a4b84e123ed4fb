"""The conversations of a chat: its own, and those in a store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ..agent import AnyAgent
from ..errors import SessionNotFound
from ..messages import AssistantMessage, Message, UserMessage
from ..result import RunResult
from ..sessions import Conversation, SessionStore
from ..sessions import Session as StoredSession
from .sanitize import date_text, one_line

FIRST_SESSION: Final = "main"


@dataclass
class SentPrompt:
    """A prompt of this chat: the length of the conversation before it, and the results of its runs."""

    before: int
    results: list[RunResult] = field(default_factory=list[RunResult])


@dataclass
class ChatSession:
    """A conversation, and the prompts that this chat has sent to it."""

    conversation: Conversation = field(default_factory=Conversation)
    prompts: list[SentPrompt] = field(default_factory=list[SentPrompt])

    @property
    def is_saved(self) -> bool:
        """Whether it outlives the chat."""
        return isinstance(self.conversation, StoredSession)


class ChatSessions:
    """The conversations that prompts can go to. With a store, those in it too, and new ones are kept there.

    Raises `ConfigurationError` for a name that the store cannot have.
    """

    def __init__(self, agent: AnyAgent, store: SessionStore | None = None, name: str | None = None) -> None:
        own = agent.session
        self.store: Final = store if own is None or store is not None else own.store
        if store is None:
            self.name = FIRST_SESSION if own is None else own.name
            first = ChatSession(agent.conversation)
        else:
            self.name = name or time.strftime("chat-%Y-%m-%d-%H%M%S")
            first = ChatSession(StoredSession(self.name, store))
        self._known: Final = {self.name: first}

    @property
    def current(self) -> ChatSession:
        """The session that new prompts are sent to."""
        return self._known[self.name]

    async def load(self) -> None:
        """Read what the store has of the current conversation. Raises a `StoreError`."""
        conversation = self.current.conversation
        if isinstance(conversation, StoredSession):
            with suppress(SessionNotFound):  # it is created with the first prompt
                await conversation.load()

    async def switch(self, name: str) -> bool:
        """Go to a conversation; True when it is new. Raises `ConfigurationError`, or a `StoreError`."""
        known = self._known.get(name)
        is_new = known is None
        if known is None:
            known = ChatSession() if self.store is None else ChatSession(StoredSession(name, self.store))
            if isinstance(known.conversation, StoredSession):
                with suppress(SessionNotFound):
                    await known.conversation.load()
                    is_new = False
        self._known[name] = known
        self.name = name
        return is_new

    async def lines(self) -> list[str]:
        """One line for each conversation, the current one marked. Raises a `StoreError`."""
        lines = [
            f"{'*' if name == self.name else ' '} {name}  {_messages(len(each.conversation.messages))}"
            for name, each in self._known.items()
        ]
        if self.store is not None:
            stored = await asyncio.wrap_future(self.store.sessions())
            lines += [
                f"  {info.name}  {_messages(info.length)}  {date_text(info.updated)}"
                for info in stored
                if info.name not in self._known and not info.is_record
            ]
        return lines


def last_lines(messages: Sequence[Message]) -> str:
    """The last prompt and answer of a conversation, on two lines; empty without messages."""
    asked = next((each.text for each in reversed(messages) if isinstance(each, UserMessage)), "")
    answered = next((each.text for each in reversed(messages) if isinstance(each, AssistantMessage)), "")
    lines = [f"you: {one_line(asked, 100)}"] if asked else []
    return "\n".join([*lines, f"agent: {one_line(answered, 100)}"] if answered else lines)


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
