"""The inbox of a run: prompts that arrive while it is busy.

The inbox takes no lock, for the reason that the token takes none: a signal handler may put a prompt, too. Each message
is taken exactly once: by the run, which sends it, or by the sender, when it came too late.
"""

from __future__ import annotations

from typing import Final

from ..messages import UserMessage


class _Entry:
    """One message, distinct from others with the same text."""

    __slots__ = ("message", "urgent")

    def __init__(self, message: UserMessage, *, urgent: bool) -> None:
        self.message: Final = message
        self.urgent: Final = urgent


class Inbox:
    """Takes messages from any thread, and gives them to the run that owns it."""

    __slots__ = ("_closed", "_entries")

    def __init__(self) -> None:
        self._entries: Final[list[_Entry]] = []
        self._closed = False

    def put(self, message: UserMessage, *, urgent: bool) -> bool:
        """Put a message. False when it is too late: the run takes no more messages, and this one is not here."""
        if self._closed:
            return False
        entry = _Entry(message, urgent=urgent)
        self._entries.append(entry)
        return not (self._closed and self._take_back(entry))

    def _take_back(self, entry: _Entry) -> bool:
        try:
            self._entries.remove(entry)
        except ValueError:  # the run has taken it in the meantime
            return False
        return True

    # --- For the run ----------------------------------------------------------------------------------------------

    @property
    def urgent(self) -> bool:
        """Whether a message is here that does not wait for the end of the turn."""
        return any(entry.urgent for entry in tuple(self._entries))

    @property
    def empty(self) -> bool:
        """Whether no message is here."""
        return not self._entries

    def take(self, *, urgent_only: bool = False) -> tuple[UserMessage, ...]:
        """The messages, oldest first. They are the caller's now."""
        if not self._entries:
            return ()
        taken = [entry for entry in tuple(self._entries) if entry.urgent or not urgent_only]
        return tuple(entry.message for entry in taken if self._take_back(entry))

    def close(self) -> None:
        """Accept no more messages. What is here stays until it is taken."""
        self._closed = True

    def close_if_empty(self) -> bool:
        """Accept no more messages, unless some wait to be sent. Whether the inbox is closed."""
        self._closed = True
        if self._entries:
            self._closed = False
        return self._closed


def join(messages: tuple[UserMessage, ...]) -> UserMessage:
    """Several messages as one, because providers refuse two user messages in a row."""
    return messages[0] if len(messages) == 1 else UserMessage(tuple(part for each in messages for part in each.content))
