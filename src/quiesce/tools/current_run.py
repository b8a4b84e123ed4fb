"""The run of a tool call, for tools that start runs of their own or hand the conversation off."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final, Protocol

from ..conversation.conversation import Conversation
from ..errors import ConfigurationError
from ..run_context import RunContext


class CurrentRun(Protocol):
    """A run, as seen by the runs that its tools start."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def conversation(self) -> Conversation:
        """The conversation that the run writes to."""
        ...

    @property
    def context(self) -> RunContext[Any]:
        """The run as its tools see it."""
        ...


current_run: Final[ContextVar[CurrentRun | None]] = ContextVar("quiesce_current_run", default=None)
"""The run whose task, or whose tool, is the caller. Tasks and threads that a tool starts inherit it."""


def run_of_call(run_id: str) -> CurrentRun:
    """The run with this id, if the caller is one of its tools. Raises `ConfigurationError` when it is not."""
    parent = current_run.get()
    if parent is None or parent.run_id != run_id:
        raise ConfigurationError(
            f"This is not a tool of run {run_id}.", todo="Pass within= the ToolContext that the tool itself was given."
        )
    return parent
