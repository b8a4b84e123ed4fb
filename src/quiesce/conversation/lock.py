"""The lock of a conversation: one run at a time writes, the others wait in the order in which they came."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ..errors import ConversationBusy


class ConversationLock:
    """Held by one run; the others queue. For any thread.

    `blocked` says that queued runs wait although no run holds the lock: an approval is pending.
    """

    def __init__(self, blocked: Callable[[], bool]) -> None:
        self._blocked: Final = blocked
        self._lock: Final = threading.RLock()  # re-entrant: a signal handler may come in between
        self._holder: str | None = None
        self._line: Final[dict[str, Callable[[], None]]] = {}

    @property
    def holder(self) -> str | None:
        """The id of the run that is inside."""
        return self._holder

    @property
    def line(self) -> tuple[str, ...]:
        """The ids of the runs that wait, in order."""
        return tuple(self._line.copy())

    def enter(self, run_id: str) -> None:
        """Go in. Raises `ConversationBusy` when another run is inside."""
        with self._lock:
            if self._holder not in (None, run_id):
                raise ConversationBusy(self._holder)
            self._holder = run_id

    def queue(self, run_id: str, on_turn: Callable[[], None]) -> None:
        """Get in line. `on_turn` is called, in whichever thread, when the run is inside; perhaps at once."""
        with self._lock:
            self._line[run_id] = on_turn
            self._admit()

    def leave(self, run_id: str) -> None:
        """Go out, or out of the line, and let the next one in."""
        with self._lock:
            self._line.pop(run_id, None)
            if self._holder == run_id:
                self._holder = None
            self._admit()

    def _admit(self) -> None:
        while self._holder is None and self._line and not self._blocked():
            run_id = next(iter(self._line))
            on_turn = self._line.pop(run_id)
            self._holder = run_id
            on_turn()
