"""The interface of a run towards its tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..cancellation import CancellationToken
from ..events import Event
from ..interrupts import Interrupt
from ..messages import ToolCall, ToolResult
from ..receipt import LateOutcome
from ..run_context import RunContext

if TYPE_CHECKING:
    from .background import BackgroundProcesses
    from .questions import CallQuestions
    from .tool import Tool
    from .undo.log import UndoLog


class ToolHost(Protocol):
    """The part of a run that its tool calls use."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The run's event loop."""
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
    def context(self) -> RunContext[Any]:
        """The run as its tools see it."""
        ...

    @property
    def undo_log(self) -> UndoLog:
        """The log of the calls that can be undone."""
        ...

    @property
    def processes(self) -> BackgroundProcesses:
        """The background processes of the run."""
        ...

    def emit(self, event: Event) -> None:
        """Emit an event to the run's readers."""

    def stop_because(self, error: BaseException) -> None:
        """Stop the run, because what ends the program was raised in a call."""

    async def before_start(self, call: ToolCall) -> None:
        """Record that a tool is about to run. Returns when the record is durable."""

    def idempotency_key(self, call: ToolCall) -> str:
        """A key that stays the same for the same call, also in another process after a crash."""
        ...

    async def before_tool(self, call: ToolCall, questions: CallQuestions) -> ToolResult | None:
        """Call the hooks. A result replaces the tool's run. A hook may raise `InterruptSignal`."""

    async def approves(self, interrupt: Interrupt, definition: str) -> bool:
        """Whether a hook approves a call that a person would be asked about; `definition` is that of the tool."""
        ...

    @property
    def has_middleware(self) -> bool:
        """Whether there is middleware around tool calls."""
        ...

    async def through_middleware(
        self, call: ToolCall, tool: Tool | None, run: Callable[[ToolCall], Awaitable[ToolResult]]
    ) -> Any:
        """What the middleware makes of a call: the result of `run`, or whatever a tool may return."""

    async def after_tool(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Call the hooks with a result. They may replace it."""
        ...

    def fit_result(self, tool: Tool | None, result: ToolResult, *, late: bool = False) -> ToolResult:
        """The result, without its middle when it is too long. That of a call that ended `late` is not kept aside."""
        ...

    def record_late(self, outcome: LateOutcome) -> None:
        """Record that an abandoned call has ended."""
