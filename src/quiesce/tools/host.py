"""What a tool call needs of the run that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..cancellation import CancellationToken
from ..events import Event
from ..messages import ToolCall, ToolResult
from ..receipt import LateOutcome

if TYPE_CHECKING:
    from .questions import CallQuestions
    from .undo.log import UndoLog


class ToolHost(Protocol):
    """What a call needs of the run that it belongs to."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def token(self) -> CancellationToken:
        """The run's token."""
        ...

    @property
    def work_token(self) -> CancellationToken:
        """The token of the current work: cancelled with the run's token, or alone when the run is steered."""
        ...

    @property
    def agent_state(self) -> dict[str, Any]:
        """The agent's state."""
        ...

    @property
    def undo_log(self) -> UndoLog:
        """Where calls that can be undone are written down."""
        ...

    def emit(self, event: Event) -> None:
        """Tell the run's readers."""

    async def before_start(self, call: ToolCall) -> None:
        """Write down that a tool is about to run, before it does."""

    def idempotency_key(self, call: ToolCall) -> str:
        """The same for the same call, whatever happens to the process in between."""
        ...

    async def before_tool(self, call: ToolCall, asking: CallQuestions) -> ToolResult | None:
        """Ask the hooks; a result means that the tool need not run. A hook may raise `InterruptSignal`."""

    async def after_tool(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Show the hooks a result; they may give another one."""
        ...

    def record_late(self, outcome: LateOutcome) -> None:
        """A call that was left behind has ended."""
