"""What is said to a run while it is busy.

No lock, for the reason that the token takes none: a signal handler may speak to a run, too. Each message is taken by
exactly one: by the run, which says it, or by the sender, who learns that it came too late.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ..messages import UserMessage


class _Letter:
    """One message, apart from all others that say the same."""

    __slots__ = ("message", "urgent")

    def __init__(self, message: UserMessage, *, urgent: bool) -> None:
        self.message: Final = message
        self.urgent: Final = urgent


class Inbox:
    """Takes messages from any thread, and gives them to the run that owns it."""

    def __init__(self) -> None:
        self._letters: Final[deque[_Letter]] = deque()
        self._closed = False

    def put(self, message: UserMessage, *, urgent: bool) -> bool:
        """Leave a message. False when it is too late: nobody will read it, and it is not here."""
        if self._closed:
            return False
        letter = _Letter(message, urgent=urgent)
        self._letters.append(letter)
        return not (self._closed and self._take_back(letter))

    def _take_back(self, letter: _Letter) -> bool:
        try:
            self._letters.remove(letter)
        except ValueError:  # the run has taken it in the meantime
            return False
        return True

    # --- For the run ----------------------------------------------------------------------------------------------

    @property
    def urgent(self) -> bool:
        """Whether something was left that is not to wait for the turn's end."""
        return any(letter.urgent for letter in tuple(self._letters))

    @property
    def empty(self) -> bool:
        """Whether nothing was left."""
        return not self._letters

    def take(self, *, urgent_only: bool = False) -> tuple[UserMessage, ...]:
        """What was left, oldest first. It is the caller's now."""
        taken = [letter for letter in tuple(self._letters) if letter.urgent or not urgent_only]
        return tuple(letter.message for letter in taken if self._take_back(letter))

    def close(self) -> None:
        """Take nothing more. What is here stays until it is taken."""
        self._closed = True

    def close_if_empty(self) -> bool:
        """Take nothing more, unless there is something to be said first. Whether it is closed."""
        self._closed = True
        if self._letters:
            self._closed = False
        return self._closed


def join(messages: tuple[UserMessage, ...]) -> UserMessage:
    """Several messages as one, because two in a row are nothing that a provider takes."""
    return messages[0] if len(messages) == 1 else UserMessage(tuple(part for each in messages for part in each.content))
