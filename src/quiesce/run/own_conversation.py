"""The conversation that an agent keeps for itself: for scripts and notebooks, where one person talks to it."""

from __future__ import annotations

import builtins
import itertools
import sys
import threading
import warnings
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final
from weakref import ref

from .._threads.background_loop import running_loop
from ..cancellation import Cause
from ..errors import ConfigurationError, SessionNotFound, SharedConversationWarning
from ..sessions import Conversation, Session

_numbers: Final = itertools.count()
# The conversations that were used in this context. Tasks inherit it from the task that starts them: one user.
_used: Final[ContextVar[frozenset[int]]] = ContextVar("quiesce_used", default=frozenset())


class OwnConversation:
    """The conversation, the stop that its next run is armed with, and a check that one user alone talks to it."""

    def __init__(self, conversation: Conversation, agent: str) -> None:
        self.conversation = conversation
        self.armed: Cause | None = None
        self._agent: Final = agent
        self._number: Final = next(_numbers)
        self._used_in: ref[Any] | None = None
        self._may_warn = not (hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__"))  # there, each cell is a task

    def loaded(self) -> Conversation:
        """The conversation, read from its store first when it is a session that was not used here yet.

        That blocks. Raises `ConfigurationError` in a running event loop, which must not be blocked, and a `StoreError`.
        """
        conversation = self.conversation
        if isinstance(conversation, Session) and not conversation.loaded and conversation.holder is None:
            if running_loop() is not None:
                raise ConfigurationError(
                    f"{conversation!r} is not loaded yet, and to load it here would block the event loop.",
                    todo="Use `await session.load()` first, or run a prompt.",
                )
            with suppress(SessionNotFound):  # there is nothing in it yet
                conversation.load_sync()
        return conversation

    def note_use(self) -> None:
        """A prompt comes. Warns, once, when neither its task nor one above it has sent any of the prompts before.

        Threads other than the main one count as tasks. One loop after the other, as in a script that calls
        `asyncio.run` twice, is the same user.
        """
        if self._number in _used.get() or not self._may_warn:
            return
        _used.set(_used.get() | {self._number})
        place: Any = running_loop()
        if place is None:
            if threading.current_thread() is threading.main_thread():
                return
            place = threading.main_thread()  # stands for all threads without a loop
        before, self._used_in = self._used_in, ref(place)
        if before is not None and before() is place:
            self._may_warn = False
            warnings.warn(
                f"Several tasks or threads send prompts to the one conversation that agent {self._agent!r} keeps for "
                "itself. If they serve different users, these read each other's messages. Name the conversation: "
                'session="user-42", conversation=..., or conversation=None for a question that is not remembered.',
                SharedConversationWarning,
                stacklevel=6,
            )
