"""The part of a run that its journal uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ...errors import StoreError
from ...events import Event
from ..queue.inbox import PromptReceiver

if TYPE_CHECKING:
    from ..queue.busy_policy import BusyPolicy


class RunHost(Protocol):
    """What a journal needs of its run."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def agent(self) -> str:
        """The name of the run's agent."""
        ...

    @property
    def busy_policy(self) -> BusyPolicy:
        """What to do while another process holds the session."""
        ...

    @property
    def prompt_receiver(self) -> PromptReceiver:
        """Receives the prompts of other processes."""
        ...

    def deliver(self, events: Sequence[Event]) -> None:
        """Hand events to the readers, now."""

    def fail(self, error: StoreError) -> None:
        """End the run, because the store has failed."""

    def stop_because(self, error: BaseException) -> None:
        """Stop the run, because what ends the program was raised in a step of its journal."""
