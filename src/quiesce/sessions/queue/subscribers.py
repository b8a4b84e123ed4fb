"""Subscribers of a session: called when its holder or its queue changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final


class Subscribers:
    """Functions to call when a session has changed. For any thread."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._of: Final[dict[str, list[Callable[[], None]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions that have subscribers."""
        with self._lock:
            return tuple(self._of)

    def add(self, session: str, function: Callable[[], None]) -> Callable[[], None]:
        """Call `function`, in any thread, when the session changes. Returns the function that unsubscribes it."""
        with self._lock:
            self._of.setdefault(session, []).append(function)

        def end() -> None:
            with self._lock:
                functions = self._of.get(session, [])
                if function in functions:
                    functions.remove(function)
                if not functions:
                    self._of.pop(session, None)

        return end

    def tell(self, session: str) -> None:
        """Call the subscribers of a session."""
        with self._lock:
            functions = tuple(self._of.get(session, ()))
        for function in functions:
            function()

    def tell_all(self) -> None:
        """Call all subscribers: any session may have changed."""
        for session in self.sessions:
            self.tell(session)
