"""The named conversations of a server: each belongs to one owner and one agent."""

from __future__ import annotations

import re
import time
from typing import Final

from ..agent import AnyAgent
from ..messages import Message
from ..sessions import Conversation, SessionStore
from .memory_use import MemoryUse
from .problems import Problem, other_agent
from .schemas import SESSION_PATTERN, SessionView
from .stored_session import StoredSession, stored_name

_NAME: Final = re.compile(SESSION_PATTERN.strip("^$"))


class OwnedSession:
    """A conversation of one owner, with its name and agent."""

    def __init__(self, name: str, agent: AnyAgent, conversation: Conversation, updated_at: float | None = None) -> None:
        self.name: Final = name
        self.agent: Final = agent
        self.conversation: Final = conversation
        self.updated_at = time.time() if updated_at is None else updated_at

    @property
    def messages(self) -> tuple[Message, ...]:
        """The settled messages."""
        return self.conversation.messages

    def view(self) -> SessionView:
        """The session as clients see it."""
        return SessionView(
            self.name, self.agent.name, len(self.messages), self.updated_at, run=self.conversation.holder
        )


class SessionRegistry:
    """The sessions of all owners that are in memory.

    The least recently used idle session is dropped when an owner has too many. With a store, sessions are also saved
    there, under names that begin with the owner's, and can be read again.
    """

    def __init__(self, keep: int, memory: MemoryUse, store: SessionStore | None = None) -> None:
        self._keep: Final = keep
        self._memory: Final = memory
        self._store: Final = store
        self._by_owner: Final[dict[str, dict[str, OwnedSession]]] = {}

    @property
    def are_stored(self) -> bool:
        """Whether sessions are saved in a store."""
        return self._store is not None

    def open(self, owner: str, name: str, agent: AnyAgent) -> OwnedSession:
        """The session of this name, created if there is none. Raises `Problem` when it belongs to another agent."""
        sessions = self._by_owner.setdefault(owner, {})
        session = sessions.pop(name, None)
        if session is None:
            session = OwnedSession(name, agent, self._new_conversation(owner, name, agent))
            self._drop_idle(owner)
        sessions[name] = session
        if session.agent is not agent:
            raise other_agent(name, session.agent.name)
        session.updated_at = time.time()
        return session

    def restore(self, owner: str, session: OwnedSession) -> OwnedSession:
        """Register a session that was read from the store; returns the one that is registered."""
        registered = self._by_owner.setdefault(owner, {}).setdefault(session.name, session)
        self.measure(owner, session.name)
        return registered

    def _new_conversation(self, owner: str, name: str, agent: AnyAgent) -> Conversation:
        if self._store is None:
            return agent.conversation.branch()
        return StoredSession(stored_name(owner, name), self._store)

    def newest_first(self, owner: str) -> tuple[OwnedSession, ...]:
        """The sessions of one owner, the last used first."""
        sessions = self._by_owner.get(owner, {}).values()
        return tuple(sorted(sessions, key=lambda session: session.updated_at, reverse=True))

    def find(self, owner: str, name: str) -> OwnedSession | None:
        """One session of an owner that is in memory."""
        return self._by_owner.get(owner, {}).get(name)

    # --- Memory -------------------------------------------------------------------------------------------------

    def measure(self, owner: str, name: str | None) -> None:
        """Count the memory of a session as it is now."""
        session = None if name is None else self.find(owner, name)
        if session is not None:
            self._memory.hold(("session", owner, name), owner, session.messages)

    def drop(self, owner: str, name: str) -> bool:
        """Drop an idle session from memory. False when there is none, or while a run uses it."""
        session = self.find(owner, name)
        if session is None or session.conversation.holder is not None:
            return False
        del self._by_owner[owner][name]
        self._memory.drop(("session", owner, name))
        return True

    def drop_oldest(self, owner: str) -> bool:
        """Drop the least recently used session of an owner from memory. False when none is idle."""
        return any(self.drop(owner, name) for name in tuple(self._by_owner.get(owner, {})))

    def _drop_idle(self, owner: str) -> None:
        while len(self._by_owner[owner]) >= self._keep and self.drop_oldest(owner):
            pass


def check_session_name(name: str) -> None:
    """Raises `Problem` for a name that is not valid: `$` in the schema's pattern also matches before a newline."""
    if _NAME.fullmatch(name) is None:
        raise Problem(422, "bad_session", "This session name is not valid.", todo=f"It must match {SESSION_PATTERN}")
