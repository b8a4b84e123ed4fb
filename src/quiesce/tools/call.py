"""One tool call, from asked-for to accounted-for."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol

from ..cancellation import CancellationToken, Mode, TokenView
from ..errors import Cancelled, ToolError
from ..events import Event, ToolEnded, ToolProgress, ToolStarted
from ..messages import Outcome, ToolCall, ToolResult
from ..receipt import CallReceipt, LateOutcome
from ..transcript import unfinished
from .context import ToolContext
from .output import completed, describe, failed
from .policy import LAST_BREATH
from .thread import ThreadCall, ThreadOutcome
from .tool import Tool


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
    def state(self) -> dict[str, Any]:
        """The agent's state."""
        ...

    def emit(self, event: Event) -> None:
        """Tell the run's readers."""

    async def before_start(self, call: ToolCall) -> None:
        """Write down that a tool is about to run, before it does."""

    def idempotency_key(self, call: ToolCall) -> str:
        """The same for the same call, whatever happens to the process in between."""
        ...

    async def before_tool(self, call: ToolCall) -> ToolResult | None:
        """Ask the hooks; a result means that the tool need not run."""

    async def after_tool(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Show the hooks a result; they may give another one."""
        ...

    def record_late(self, outcome: LateOutcome) -> None:
        """A call that was left behind has ended."""


class Stage(Enum):
    """How far a call has come."""

    WAITING = "waiting"
    PREPARING = "preparing"
    RUNNING = "running"
    DONE = "done"


class CallRecord:
    """The life of one call. Its result is written in one step, the moment that it is known, and never lost after."""

    def __init__(self, call: ToolCall, tool: Tool | None, host: ToolHost) -> None:
        self.call: Final = call
        self.tool: Final = tool
        self._host: Final = host
        self._clock: Final = asyncio.get_running_loop().time
        self.stage = Stage.WAITING
        self.result: ToolResult | None = None
        self.task: asyncio.Task[None] | None = None
        self._thread: ThreadCall | None = None
        self.left_behind = False
        self._announced = False
        self._started_at: float | None = None
        self._ended_at: float | None = None
        self._stopped_waiting_at: float | None = None

    # --- Running ------------------------------------------------------------------------------------------------

    def start(self) -> asyncio.Task[None]:
        """Begin, in a task of its own that can be stopped, and left behind, without the others."""
        self.stage = Stage.PREPARING
        self.task = asyncio.create_task(self._perform(), name=f"quiesce tool {self.call.name} {self.call.id}")
        self.task.add_done_callback(self._on_task_end)
        return self.task

    async def _perform(self) -> None:
        replacement = await self._host.before_tool(self.call)
        if replacement is not None:
            self._finish(replacement)
        else:
            await self._run_tool()
        if self.result is not None and not self.left_behind:
            self.result = await self._host.after_tool(self.call, self.result)
            self.announce()

    async def _run_tool(self) -> None:
        try:
            tool, arguments = self._checked()
        except ToolError as error:
            self._finish(failed(self.call, str(error)))
            return
        await self._host.before_start(self.call)
        if self._host.token.wants(Mode.AFTER_TOOLS):  # the last look before anything happens
            return
        self.stage = Stage.RUNNING
        self._started_at = self._clock()
        self._host.emit(ToolStarted(self.call))
        try:
            value = await self._invoke(tool, arguments)
        except asyncio.CancelledError:
            if self._thread is None:
                self._finish(unfinished(self.call, Outcome.CANCELLED))
            elif not self.left_behind:
                self.leave_behind()
            raise
        except GeneratorExit:  # the loop was closed around a run that was still going on
            raise
        except BaseException as error:  # a tool's SystemExit is the tool's failure, not the program's end
            self._finish(self._failure(error))
        else:
            self._finish(completed(self.call, value))

    def _failure(self, error: BaseException) -> ToolResult:
        if isinstance(error, Cancelled) and self._host.token.cancelled:
            return unfinished(self.call, Outcome.CANCELLED)
        return failed(self.call, str(error) if isinstance(error, ToolError) else describe(error))

    def _checked(self) -> tuple[Tool, dict[str, Any]]:
        """The tool and its arguments. Raises `ToolError`, in words for the model, when the call cannot be made."""
        if self.tool is None:
            raise ToolError(f"There is no tool named {self.call.name!r}.")
        if self.call.unparsed is not None:
            raise ToolError(f"The arguments were not a JSON object: {self.call.unparsed[:200]!r}.")
        return self.tool, self.tool.validate(self.call.arguments)

    async def _invoke(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        if tool.context_parameter is not None:
            arguments = {**arguments, tool.context_parameter: self._context()}
        match tool.kind:
            case "async":
                return await tool.function(**arguments)
            case "sync":
                function = partial(tool.function, **arguments)
                self._thread = ThreadCall(function, f"quiesce-{tool.name}-{self.call.id}", self._on_thread_end)
                return await self._thread.wait()
            case "generator":
                last: Any = None
                async with aclosing(tool.function(**arguments)) as steps:
                    async for last in steps:
                        self._report(last)
                return last

    def _context(self) -> ToolContext:
        loop = asyncio.get_running_loop()
        host = self._host

        def report(progress: Any) -> None:
            with suppress(RuntimeError):  # the loop has closed: a tool that was left behind talks to nobody
                loop.call_soon_threadsafe(self._report, progress)

        def cancel(reason: str) -> None:
            host.token.cancel(reason or f"tool {self.call.name} asked for it", source="tool")

        return ToolContext(
            run_id=host.run_id,
            idempotency_key=host.idempotency_key(self.call),
            call_id=self.call.id,
            tool_name=self.call.name,
            token=TokenView(host.token),
            state=host.state,
            report=report,
            cancel=cancel,
        )

    def _report(self, progress: Any) -> None:
        if not self.left_behind:
            self._host.emit(ToolProgress(self.call.id, self.call.name, progress))

    def _finish(self, result: ToolResult) -> None:
        if self.stage is Stage.DONE:
            return
        self.stage = Stage.DONE
        self._ended_at = self._clock()
        if not self.left_behind:
            self.result = result
            return
        after = 0.0 if self._stopped_waiting_at is None else self._ended_at - self._stopped_waiting_at
        self._host.record_late(LateOutcome(self.call.id, self.call.name, not result.is_error, result.text, after))

    def _on_thread_end(self, outcome: ThreadOutcome) -> None:
        """The thread of a call that was left behind has ended."""
        failure = None if outcome.error is None else self._failure(outcome.error)
        self._finish(failure or completed(self.call, outcome.value))

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:  # only a hook's own machinery can fail here; the call must be answered all the same
            self._finish(failed(self.call, describe(error)))

    # --- Stopping -----------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether something of this call is still under way that could be waited for."""
        return self.task is not None and not self.task.done() and not self.left_behind

    def grace(self, mode: Mode) -> float:
        """How long a stop in this mode waits for the call."""
        if self.stage is not Stage.RUNNING or self.tool is None:
            return LAST_BREATH
        if mode is Mode.KILL:
            return 0.0 if self.tool.kind == "sync" else LAST_BREATH
        return self.tool.policy.grace

    def request_stop(self, mode: Mode) -> None:
        """Ask the call to stop, as its policy has it. A call whose tool has not begun, or has ended, just stops."""
        assert self.task is not None
        if not self._spared(mode):
            self.task.cancel()

    def _spared(self, mode: Mode) -> bool:
        """Whether the tool is running and its policy lets it go on until its grace is over."""
        if self.stage is not Stage.RUNNING or self.tool is None:
            return False
        # A thread cannot be cancelled: its tool sees the token, and what is awaited here is only its answer.
        return self.tool.kind == "sync" or (mode is not Mode.KILL and self.tool.policy.on_stop in ("finish", "abandon"))

    def cancel_at_last(self) -> bool:
        """Cancel a task that was allowed to finish and has not. Whether there was one."""
        may_finish = self.tool is not None and self.tool.kind != "sync" and self.tool.policy.on_stop == "finish"
        if self.task is None or self.stage is not Stage.RUNNING or not may_finish or self.task.cancelling():
            return False
        return self.task.cancel()

    def leave_behind(self) -> None:
        """Give the call up: it did not stop. What it does from now on is a late outcome."""
        assert self.task is not None
        thread = self._thread
        if thread is not None and thread.outcome is not None:  # it ended in this very instant
            self._on_thread_end(thread.outcome)
            return
        if self.stage is Stage.RUNNING:
            self.result = unfinished(self.call, Outcome.ABANDONED)
        self.left_behind = True
        self._stopped_waiting_at = self._clock()
        if thread is not None:
            self.task.cancel()  # the task only waited; the thread is what is left

    @property
    def still_running(self) -> bool:
        """Whether the call was left behind and has not ended since."""
        return self.left_behind and self.stage is not Stage.DONE

    # --- Telling ------------------------------------------------------------------------------------------------

    def settled_result(self) -> ToolResult:
        """The result, whatever happened: a call that has none by now did not start."""
        return self.result or unfinished(self.call, Outcome.NEVER_STARTED)

    def announce(self) -> None:
        """Tell the readers about the result, once."""
        if not self._announced:
            self._announced = True
            self._host.emit(ToolEnded(self.settled_result()))

    def receipt(self) -> CallReceipt:
        """This call's line on the receipt."""
        result = self.settled_result()
        ended = self._stopped_waiting_at if self._ended_at is None else self._ended_at
        seconds = None if self._started_at is None or ended is None else ended - self._started_at
        detail = "" if result.outcome is Outcome.COMPLETED and not result.is_error else result.text
        ok = result.outcome is not Outcome.COMPLETED or not result.is_error
        return CallReceipt(self.call.id, self.call.name, result.outcome, ok, detail, seconds)
