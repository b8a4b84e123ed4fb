"""The execution of a tool's function: where it runs, what it was given, and what it has started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from copy import deepcopy
from functools import partial
from traceback import walk_tb
from types import AsyncGeneratorType, CodeType
from typing import TYPE_CHECKING, Any, Final

from ..cancellation import TokenView
from ..events import ToolProgress
from ..messages import Outcome, ToolResult
from ..processes.started import started_by, watch_programs
from .call_stop import CallStop
from .context import Shield, ToolContext
from .host import ToolHost
from .program import ProcessResult, Program
from .programs import CallPrograms
from .questions import CallQuestions
from .result_text import process_ended_result, raised_result, stopped_result
from .thread import ThreadCall, ThreadOutcome
from .tool import Tool
from .tool_return import ToolReturn

if TYPE_CHECKING:
    from ..processes.output import CapturedOutput
    from .worker.call import WorkerCall

_log: Final = logging.getLogger("quiesce")


class Invocation:
    """Executes the function of one call: in the call's own task, in a thread, or in a process, by its kind and policy.

    shields    the names of the shields that the function is in
    programs   what it has started
    returned   what it has returned, once it has: one value
    kept       what it has kept in case that it is cut: one value, or none
    muted      whether progress reports are dropped
    """

    __slots__ = (
        "_call",
        "_host",
        "_questions",
        "_stop",
        "kept",
        "kept_arguments",
        "muted",
        "programs",
        "returned",
        "shields",
        "thread",
        "worker",
    )

    def __init__(self, questions: CallQuestions, host: ToolHost, stop: CallStop) -> None:
        self._call: Final = questions.call
        self._questions: Final = questions
        self._host: Final = host
        self._stop: Final = stop
        self.programs: Final = CallPrograms()
        self.shields: Final[list[str]] = []
        self.thread: ThreadCall | None = None
        self.worker: WorkerCall | None = None
        self.kept_arguments: dict[str, Any] = {}
        """The arguments for the tool's compensation, as they were before the tool could change them."""
        self.kept: tuple[Any, ...] = ()
        self.returned: tuple[Any, ...] = ()
        self.muted = False

    def keep_arguments(self, arguments: dict[str, Any]) -> None:
        """Copy the arguments for the tool's compensation."""
        self.kept_arguments = {name: _copied(value) for name, value in arguments.items()}

    async def run(self, tool: Tool, arguments: dict[str, Any], on_orphan: Callable[[ThreadOutcome], None]) -> Any:
        """Call the function and wait for its value. Raises what it raises.

        `on_orphan` is called with the outcome of a thread that its task no longer waits for. The programs that a
        function started and left running end with it when it was stopped, unless its policy is `abandon`. Those of a
        function that came to its own end go on, and the receipt names them.
        """
        if tool.policy.on_stop == "kill":
            self.returned = (await self._run_in_process(tool, arguments),)
            return self.returned[0]
        self.programs.keep = tool.policy.on_stop == "abandon"
        watch_programs()
        before = started_by.set(self.programs.started)
        try:
            # In one line with the call: a Ctrl-C that comes as this block is left does not cost the value.
            self.returned = (await self._begin(tool, arguments, on_orphan),)
            return self.returned[0]
        except asyncio.CancelledError:
            if self._stop.requested and self.thread is None and self.programs.started:
                await self.programs.end_started(self._stop.grace_left())
            raise
        finally:
            try:  # noqa: SIM105  (this is cheaper)
                started_by.reset(before)
            except ValueError:  # the loop was closed, and the coroutine is closed from another context
                pass

    def _begin(
        self, tool: Tool, arguments: dict[str, Any], on_orphan: Callable[[ThreadOutcome], None]
    ) -> Awaitable[Any]:
        """Call the function. What this returns is awaited for its value."""
        context_parameter = tool.context_parameter
        if context_parameter is not None:
            arguments = {**arguments, context_parameter: self._context(tool)}
        match tool.kind:
            case "async":
                return tool.function(**arguments)
            case "sync":
                function = partial(tool.function, **arguments)
                self.thread = ThreadCall(function, f"quiesce-{tool.name}-{self._call.id}", on_orphan)
                return self.thread.wait()
            case "generator":
                return self._run_generator(tool.function(**arguments))

    async def _run_generator(self, steps: AsyncGeneratorType[Any, None]) -> Any:
        last: Any = None
        try:
            async with aclosing(steps):
                async for last in steps:
                    self._report(last)
            return last
        except KeyboardInterrupt as error:
            if steps.ag_frame is None and not _passed_through(error, steps.ag_code):  # it had come to its end
                self.returned = (last,)
            raise

    async def _run_in_process(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        from .worker.call import WorkerCall, WorkerRequest

        host = self._host
        request = WorkerRequest(
            tool,
            arguments,
            self._call.id,
            host.run_id,
            self._stop.token,
            self._cancel_run,
            host.context,
            self._questions,
            self._report,
            self.shields.append,
            self._leave_shield,
            host.idempotency_key(self._call),
        )
        self.worker = WorkerCall(request)
        return await self.worker.wait()

    # --- The function's context ---------------------------------------------------------------------------------

    def _context(self, tool: Tool) -> ToolContext:
        def report(progress: Any) -> None:
            with suppress(RuntimeError):  # the loop has closed: an abandoned tool has no readers any more
                self._host.loop.call_soon_threadsafe(self._report, progress)

        options: dict[str, Any] = {}
        if tool.kind != "sync":  # a thread cannot be interrupted anyway
            options["shield"] = self._shield
            options["run_process"] = self._run_process
            options["processes"] = self._host.processes
        return ToolContext(
            self._host.context,
            call_id=self._call.id,
            idempotency_key=self._host.idempotency_key(self._call),
            tool_name=self._call.name,
            token=TokenView(self._stop.token),
            report=report,
            cancel=self._cancel_run,
            questions=self._questions,
            keep_for_undo=self._keep_data,
            **options,
        )

    def _keep_data(self, data: Any) -> None:
        self.kept = (data,)

    def _cancel_run(self, reason: str) -> None:
        self._host.token.cancel(reason or f"tool {self._call.name} asked for it", source="tool")

    def _report(self, progress: Any) -> None:
        if isinstance(progress, ToolReturn):  # the last value of a generator
            progress = progress.content
        if not self.muted:
            self._host.emit(ToolProgress(self._call.id, self._call.name, progress))

    async def _run_process(self, argv: Any, *, report: bool, **options: Any) -> ProcessResult:
        program = Program(argv, report=self._report if report else None, grace=self._stop.grace_left, **options)
        self.programs.supervised.append(program)
        try:
            return await program.run()
        finally:
            if not (
                self._stop.requested and report
            ):  # else its output is quoted, because the tool cannot handle it any more
                self.programs.supervised.remove(program)

    def _shield(self, name: str) -> Shield:
        return Shield(name, lambda: self.shields.append(name), lambda: self._leave_shield(name))

    def _leave_shield(self, name: str) -> None:
        self.shields.remove(name)
        if not self.shields:
            self._stop.on_unshield()

    def end_with_loop(self) -> bool:
        """The loop was closed: end the processes that the function has started. Whether they all have ended."""
        self._stop.requested = True
        if self.worker is not None:
            self.worker.end_with_loop()
        return self.programs.end_with_loop()

    # --- State --------------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """The tool's name, and the names of its shields."""
        name = self._call.name
        return f"{name} ({', '.join(filter(None, self.shields))})" if any(self.shields) else name

    def raised_elsewhere(self, error: BaseException) -> bool:
        """Whether the function raised this, in its thread or process, and not something in the event loop."""
        if self.thread is not None:
            return self.thread.outcome is not None and self.thread.outcome.error is error
        if self.worker is None:
            return False
        from .worker.call import was_raised_in_process

        return was_raised_in_process(error)

    @property
    def outlives_task(self) -> bool:
        """Whether a thread or process goes on although the task that waited for it was cancelled."""
        return self.thread is not None or (self.worker is not None and not self.worker.settled)

    def stopped_result(self, outcome: Outcome | None = None) -> ToolResult:
        """The result of a call that was stopped; without an `outcome`, of one of which nothing is left running."""
        worker, supervised = self.worker, self.programs.supervised
        if worker is None and not supervised:
            return stopped_result(self._call, outcome or Outcome.CANCELLED, self._stop.reason)
        known = Outcome.NEVER_STARTED if worker is not None and not worker.begun else Outcome.KILLED
        return stopped_result(self._call, outcome or known, self._stop.reason, self._captured_output())

    def failed_result(self, error: BaseException, tool: Tool | None) -> ToolResult:
        """The result of a call whose function, or whose process, has failed."""
        from ..processes.exit_status import ProcessEnded

        policy = None if tool is None else tool.policy
        if isinstance(error, ProcessEnded) and policy is not None:
            if self._stop.requested:
                return self.stopped_result()
            return process_ended_result(self._call, error, policy, self._captured_output())
        _log.debug("Tool %s (%s) raised.", self._call.name, self._call.id, exc_info=error)
        return raised_result(self._call, error, policy, stopping=self._stop.cancelled)

    def _captured_output(self) -> list[CapturedOutput]:
        """The output streams of its processes."""
        sources: list[WorkerCall | Program] = [*self.programs.supervised]
        if self.worker is not None:
            sources.append(self.worker)
        return [stream for source in sources for stream in (source.stdout, source.stderr)]

    def process_labels(self) -> list[str]:
        """A label for each process that is still running."""
        found = self.programs.labels()
        return found if self.worker is None else [*found, self.worker.where]


def _passed_through(error: BaseException, code: CodeType) -> bool:
    """Whether an exception came up through this code."""
    return any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__))


def _copied(value: Any) -> Any:
    """A copy that the tool cannot change; the value itself when it cannot be copied."""
    try:
        return deepcopy(value)
    except Exception:  # a type of the user's own can raise anything here
        return value
