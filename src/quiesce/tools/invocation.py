"""The execution of a tool's function: where it runs, what it was given, and what it has started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from copy import deepcopy
from functools import partial
from traceback import walk_tb
from types import AsyncGeneratorType, CodeType
from typing import TYPE_CHECKING, Any, Final

from ..cancellation import CancellationToken, TokenView
from ..events import ToolProgress
from ..messages import Outcome
from .context import Shield, ToolContext
from .host import ToolHost
from .program import ProcessResult, Program
from .programs import CallPrograms
from .questions import CallQuestions
from .thread import ThreadCall, ThreadOutcome
from .tool import Tool
from .tool_return import ToolReturn

if TYPE_CHECKING:
    from ..processes.output import CapturedOutput
    from .worker.call import WorkerCall


class KeptForUndo:
    """What the tool's compensation gets: the arguments as they were before the tool could change them, and `data`.

    `data` is what the function has kept in case that it is cut: one value, or none.
    """

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}
        self.data: tuple[Any, ...] = ()


class Invocation:
    """Executes the function of one call: in the call's own task, in a thread, or in a process, by its kind and policy.

    grace_left    returns the seconds that what it started may still take to end
    on_orphan     is called with the outcome of a thread that its task no longer waits for
    on_unshield   is called when the function has left its last shield
    """

    def __init__(
        self,
        questions: CallQuestions,
        host: ToolHost,
        token: CancellationToken,
        *,
        grace_left: Callable[[], float],
        on_orphan: Callable[[ThreadOutcome], None],
        on_unshield: Callable[[], None],
    ) -> None:
        self._call: Final = questions.call
        self._questions: Final = questions
        self._host: Final = host
        self._token: Final = token
        self._grace_left = grace_left
        self._on_orphan: Callable[[ThreadOutcome], None] = on_orphan
        self._on_unshield = on_unshield
        self._programs: Final = CallPrograms()
        self._shields: Final[list[str]] = []
        self.thread: ThreadCall | None = None
        self.worker: WorkerCall | None = None
        self.kept: Final = KeptForUndo()
        self.returned: tuple[Any, ...] = ()
        """What the function has returned, once it has."""
        self.stopping = False
        """Whether a stop was requested. From then on, the call's result quotes the output of its programs."""
        self.muted = False
        """Whether progress reports are dropped."""

    def keep_for_undo(self, tool: Tool, arguments: dict[str, Any]) -> None:
        """Copy the arguments if the tool has a compensation."""
        if tool.compensation is not None:
            self.kept.arguments = {name: _copied(value) for name, value in arguments.items()}

    async def run(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        """Call the function and wait for its value. Raises what it raises.

        The programs that a function started and left running end with it when it was stopped, unless its policy is
        `abandon`. Those of a function that came to its own end go on, and the receipt names them.
        """
        if tool.policy.on_stop == "kill":
            self.returned = (await self._run_in_process(tool, arguments),)
            return self.returned[0]
        with self._programs.noted(keep=tool.policy.on_stop == "abandon"):
            try:
                # In one line with the call: a Ctrl-C that comes as this block is left does not cost the value.
                self.returned = (await self._run_here(tool, arguments),)
                return self.returned[0]
            except asyncio.CancelledError:
                if self.stopping and self.thread is None:
                    await self._programs.end_started(self._grace_left())
                raise

    async def _run_here(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        if tool.context_parameter is not None:
            arguments = {**arguments, tool.context_parameter: self._context(tool)}
        match tool.kind:
            case "async":
                return await tool.function(**arguments)
            case "sync":
                function = partial(tool.function, **arguments)
                self.thread = ThreadCall(function, f"quiesce-{tool.name}-{self._call.id}", self._on_orphan)
                return await self.thread.wait()
            case "generator":
                return await self._run_generator(tool.function(**arguments))

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
            self._token,
            self._cancel_run,
            host.context,
            self._questions,
            self._report,
            self._shields.append,
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
            token=TokenView(self._token),
            report=report,
            cancel=self._cancel_run,
            questions=self._questions,
            keep_for_undo=self._keep_data,
            **options,
        )

    def _keep_data(self, data: Any) -> None:
        self.kept.data = (data,)

    def _cancel_run(self, reason: str) -> None:
        self._host.token.cancel(reason or f"tool {self._call.name} asked for it", source="tool")

    def _report(self, progress: Any) -> None:
        if isinstance(progress, ToolReturn):  # the last value of a generator
            progress = progress.content
        if not self.muted:
            self._host.emit(ToolProgress(self._call.id, self._call.name, progress))

    async def _run_process(self, argv: Any, *, report: bool, **options: Any) -> ProcessResult:
        program = Program(argv, report=self._report if report else None, grace=self._grace_left, **options)
        self._programs.supervised.append(program)
        try:
            return await program.run()
        finally:
            if not (self.stopping and report):  # else its output is quoted, because the tool cannot handle it any more
                self._programs.supervised.remove(program)

    def _shield(self, name: str) -> Shield:
        return Shield(name, lambda: self._shields.append(name), lambda: self._leave_shield(name))

    def _leave_shield(self, name: str) -> None:
        self._shields.remove(name)
        if not self._shields:
            self._on_unshield()

    def end_with_loop(self) -> bool:
        """The loop was closed: end the processes that the function has started. Whether they all have ended."""
        self.stopping = True
        if self.worker is not None:
            self.worker.end_with_loop()
        return self._programs.end_with_loop()

    def let_go(self) -> None:
        """The call is over for good: forget it."""
        self._grace_left, self._on_orphan, self._on_unshield = float, _ignore, lambda: None
        self.thread = self.worker = None

    # --- State --------------------------------------------------------------------------------------------------

    def stop_programs(self, grace: float) -> None:
        """End the programs that the function has started by `ctx.run_process`: TERM now, KILL after `grace` seconds."""
        self._programs.stop(grace)

    def give_up_programs(self) -> None:
        """End all programs that the function has started, at once, but for those that its policy leaves."""
        self._programs.stop(0.0)
        self._programs.kill_started()

    @property
    def shielded(self) -> bool:
        """Whether the function is inside a shield."""
        return bool(self._shields)

    @property
    def label(self) -> str:
        """The tool's name, and the names of its shields."""
        name = self._call.name
        return f"{name} ({', '.join(filter(None, self._shields))})" if any(self._shields) else name

    @property
    def has_programs(self) -> bool:
        """Whether a program that the function started has not ended."""
        return self._programs.any_running

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

    @property
    def stopped_outcome(self) -> Outcome:
        """The outcome of an execution that was stopped and of which nothing is left running."""
        if self.worker is not None and not self.worker.begun:
            return Outcome.NEVER_STARTED
        return Outcome.KILLED if self.worker is not None or self._programs.supervised else Outcome.CANCELLED

    def captured_output(self) -> list[CapturedOutput]:
        """The output streams of its processes."""
        sources: list[WorkerCall | Program] = [*self._programs.supervised]
        if self.worker is not None:
            sources.append(self.worker)
        return [stream for source in sources for stream in (source.stdout, source.stderr)]

    def process_labels(self) -> list[str]:
        """A label for each process that is still running."""
        found = self._programs.labels()
        return found if self.worker is None else [*found, self.worker.where]

    def left_labels(self) -> list[str]:
        """A label for each program that the function has left running."""
        return self._programs.labels() if self.worker is None else []


def _passed_through(error: BaseException, code: CodeType) -> bool:
    """Whether an exception came up through this code."""
    return any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__))


def _copied(value: Any) -> Any:
    """A copy that the tool cannot change; the value itself when it cannot be copied."""
    try:
        return deepcopy(value)
    except Exception:  # a type of the user's own can raise anything here
        return value


def _ignore(_: ThreadOutcome) -> None:
    """The outcome is known."""
