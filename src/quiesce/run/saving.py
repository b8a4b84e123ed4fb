"""How a run is saved: its journal, where its conversation has a store, and what could not be saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import StoreError
from ..sessions import Session
from ..sessions.journal.journal import Journal

if TYPE_CHECKING:
    from .state import RunState


class Saving:
    """The journal of a run. Only for the run's own loop."""

    def __init__(self) -> None:
        self.journal: Journal | None = None
        self.unsaved: StoreError | None = None
        """Why the store does not have everything, once that is known."""

    def open(self, state: RunState) -> Journal:
        """Begin to open the session, which is the run's conversation."""
        session = state.conversation
        assert isinstance(session, Session)
        self.journal = state.events.barrier = session.journal(state)
        return self.journal

    async def durable(self) -> None:
        """Wait until everything that happened so far is saved, where there is a store to save it in."""
        if self.journal is not None:
            await self.journal.durable()
