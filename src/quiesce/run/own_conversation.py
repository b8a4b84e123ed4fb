"""The conversation that an agent keeps for itself: for scripts and notebooks, where one person talks to it."""

from __future__ import annotations

import asyncio
import builtins
import sys
import threading
import warnings
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final
from weakref import ref

from .._threads.background_loop import running_loop
from ..cancellation import Cause
from ..conversation.conversation import Conversation
from ..errors import ConfigurationError, SessionNotFound, SharedConversationWarning
from ..sessions.type_guard import is_session

# The tasks and threads that have sent prompts: this one first, then those above it, from which it has this context.
# Together they are one user.
_senders: Final[ContextVar[tuple[ref[Any], ...]]] = ContextVar("quiesce_senders", default=())
_MAX_SENDERS: Final = 16


class OwnConversation:
    """The conversation, the stop that its next run is armed with, and a check that one user alone talks to it."""

    def __init__(self, conversation: Conversation, agent: str) -> None:
        self.conversation = conversation
        self.armed: Cause | None = None
        self._agent: Final = agent
        self._sender: ref[Any] | None = None
        self._used_in: ref[Any] | None = None
        self._may_warn = not (hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__"))  # there, each cell is a task

    def loaded(self) -> Conversation:
        """The conversation, read from its store first when it is a session that was not used here yet.

        That blocks. Raises `ConfigurationError` in a running event loop, which must not be blocked, and a `StoreError`.
        """
        conversation = self.conversation
        if is_session(conversation) and not conversation.loaded and conversation.holder is None:
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
        senders = _senders.get()
        if not self._may_warn or (self._sender is not None and self._sender in senders):
            return
        place: Any = running_loop()
        self._sender = ref((place and asyncio.current_task(place)) or threading.current_thread())
        if not senders or senders[0] is not self._sender:
            _senders.set((self._sender, *senders[: _MAX_SENDERS - 1]))
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
