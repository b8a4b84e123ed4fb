"""Named conversations: each belongs to one key and one agent."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from typing import Final

from ..agent import Agent
from ..errors import SessionNotFound
from ..messages import Message
from ..sessions import Conversation, Store
from ..sessions import Session as StoredSession
from .problems import Problem, no_session
from .schemas import SESSION_PATTERN, SessionView
from .stored_runs import stored_name

_NAME: Final = re.compile(SESSION_PATTERN.strip("^$"))


class Session:
    """One conversation that prompts can go on with."""

    def __init__(self, name: str, agent: Agent, conversation: Conversation) -> None:
        self.name: Final = name
        self.agent: Final = agent
        self.conversation: Final = conversation
        self.updated_at = time.time()

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything that is settled."""
        return self.conversation.messages

    def view(self) -> SessionView:
        """The session at a glance."""
        return SessionView(
            self.name, self.agent.name, len(self.messages), self.updated_at, run=self.conversation.holder
        )


class Sessions:
    """The sessions of all keys. In memory, the one that was used longest ago goes when a key has too many.

    With a store they are kept there as well, under names that begin with their owner's.
    """

    def __init__(self, keep: int, store: Store | None = None) -> None:
        self._keep: Final = keep
        self._store: Final = store
        self._of: Final[dict[str, dict[str, Session]]] = {}

    def open(self, owner: str, name: str, agent: Agent) -> Session:
        """The session of this name, made if need be. Raises `Problem` when it belongs to another agent."""
        if _NAME.fullmatch(name) is None:  # `$` in the schema lets a line break pass, and this does not
            raise Problem(422, "bad_session", "This is no name for a session.", todo=f"It must match {SESSION_PATTERN}")
        mine = self._of.setdefault(owner, {})
        session = mine.pop(name, None)
        if session is None:
            session = Session(name, agent, self._conversation(owner, name, agent))
            self._make_room(mine)
        mine[name] = session
        if session.agent is not agent:
            raise Problem(
                409,
                "other_agent",
                f"The session {name!r} belongs to the agent {session.agent.name!r}.",
                todo="Name that agent, or use another session.",
            )
        session.updated_at = time.time()
        return session

    def restore(self, owner: str, name: str, agent: Agent, conversation: Conversation) -> None:
        """A session of an earlier process."""
        self._of.setdefault(owner, {})[name] = Session(name, agent, conversation)

    def _conversation(self, owner: str, name: str, agent: Agent) -> Conversation:
        if self._store is None:
            return agent.conversation.branch()
        return StoredSession(stored_name(owner, name), self._store)

    def all(self, owner: str) -> tuple[Session, ...]:
        """The sessions of one key, the latest first."""
        return tuple(reversed(self._of.get(owner, {}).values()))

    def get(self, owner: str, name: str) -> Session:
        """One session. Raises `Problem` when this key has none of that name."""
        session = self._of.get(owner, {}).get(name)
        if session is None:
            raise no_session()
        return session

    async def delete(self, owner: str, name: str) -> None:
        """Forget a session. Raises `Problem` when there is none, or while a run holds it."""
        session = self.get(owner, name)
        if session.conversation.holder is not None:
            raise Problem(
                409, "session_busy", f"Run {session.conversation.holder} is using this session.", todo="Stop it first."
            )
        if self._store is not None:
            with suppress(SessionNotFound):  # no run has come so far as to write to it
                await asyncio.wrap_future(self._store.delete(stored_name(owner, name)))
        self._of[owner].pop(name, None)

    def _make_room(self, mine: dict[str, Session]) -> None:
        idle = [name for name, session in mine.items() if session.conversation.holder is None]
        for name in idle[: max(0, len(mine) - self._keep + 1)]:
            del mine[name]
