"""The named conversations of a server: each belongs to one owner and one agent."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from typing import Final

from ..agent import AnyAgent
from ..errors import SessionNotFound
from ..messages import Message
from ..sessions import Conversation, Session, SessionStore
from .problems import Problem
from .schemas import SESSION_PATTERN, SessionView
from .stored_runs import stored_name

_NAME: Final = re.compile(SESSION_PATTERN.strip("^$"))


class OwnedSession:
    """A conversation of one owner, with its name and agent."""

    def __init__(self, name: str, agent: AnyAgent, conversation: Conversation) -> None:
        self.name: Final = name
        self.agent: Final = agent
        self.conversation: Final = conversation
        self.updated_at = time.time()

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
    """The sessions of all owners.

    In memory, the least recently used idle session is dropped when an owner has too many. With a store, sessions are
    also saved there, under names that begin with the owner's.
    """

    def __init__(self, keep: int, store: SessionStore | None = None) -> None:
        self._keep: Final = keep
        self._store: Final = store
        self._by_owner: Final[dict[str, dict[str, OwnedSession]]] = {}

    @property
    def are_stored(self) -> bool:
        """Whether sessions are saved in a store."""
        return self._store is not None

    def open(self, owner: str, name: str, agent: AnyAgent) -> OwnedSession:
        """The session of this name, created if there is none. Raises `Problem` when it belongs to another agent."""
        if _NAME.fullmatch(name) is None:  # `$` in the schema's pattern also matches before a final newline
            raise Problem(
                422, "bad_session", "This session name is not valid.", todo=f"It must match {SESSION_PATTERN}"
            )
        sessions = self._by_owner.setdefault(owner, {})
        session = sessions.pop(name, None)
        if session is None:
            session = OwnedSession(name, agent, self._new_conversation(owner, name, agent))
            self._drop_idle(sessions)
        sessions[name] = session
        if session.agent is not agent:
            raise Problem(
                409,
                "other_agent",
                f"The session {name!r} belongs to the agent {session.agent.name!r}.",
                todo="Name that agent, or use another session.",
            )
        session.updated_at = time.time()
        return session

    def restore(self, owner: str, name: str, agent: AnyAgent, conversation: Conversation) -> None:
        """Register a session of an earlier process."""
        self._by_owner.setdefault(owner, {})[name] = OwnedSession(name, agent, conversation)

    def _new_conversation(self, owner: str, name: str, agent: AnyAgent) -> Conversation:
        if self._store is None:
            return agent.conversation.branch()
        return Session(stored_name(owner, name), self._store)

    def newest_first(self, owner: str) -> tuple[OwnedSession, ...]:
        """The sessions of one owner, the last used first."""
        return tuple(reversed(self._by_owner.get(owner, {}).values()))

    def get(self, owner: str, name: str) -> OwnedSession:
        """One session of an owner. Raises `Problem` when there is none of that name."""
        session = self._by_owner.get(owner, {}).get(name)
        if session is None:
            message = "There is no session with this name."
            raise Problem(404, "no_such_session", message, todo="GET /sessions lists yours.")
        return session

    async def delete(self, owner: str, name: str) -> None:
        """Delete a session, also from the store. Raises `Problem` when there is none, or while a run uses it."""
        session = self.get(owner, name)
        if session.conversation.holder is not None:
            raise Problem(
                409, "session_busy", f"Run {session.conversation.holder} is using this session.", todo="Stop it first."
            )
        if self._store is not None:
            with suppress(SessionNotFound):  # no run has written to it yet
                await asyncio.wrap_future(self._store.delete(stored_name(owner, name)))
        self._by_owner[owner].pop(name, None)

    def _drop_idle(self, sessions: dict[str, OwnedSession]) -> None:
        idle = [name for name, session in sessions.items() if session.conversation.holder is None]
        for name in idle[: max(0, len(sessions) - self._keep + 1)]:
            del sessions[name]
