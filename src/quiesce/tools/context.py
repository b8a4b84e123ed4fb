"""The context of a running tool: its call, its token, and what it can ask of the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from ..errors import ToolError
from ..run_context import DepsT, RunContext

if TYPE_CHECKING:
    from ..cancellation import TokenView
    from .background import BackgroundProcesses
    from .program import ProcessResult


class Shield:
    """A part of a tool that a stop does not interrupt, as long as the tool's grace lasts.

    `with` in sync tools, `async with` in async ones. A stop that came meanwhile takes effect where the block ends.
    """

    def __init__(self, name: str, enter: Callable[[], None], leave: Callable[[], None]) -> None:
        self.name: Final = name
        self._enter: Final = enter
        self._leave: Final = leave

    async def __aenter__(self) -> Self:
        import asyncio  # imported here: workers of killable tools run without asyncio

        await asyncio.sleep(0)  # a stop that was asked for before this point takes effect here, not inside the block
        self._enter()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        import asyncio  # imported here: workers of killable tools run without asyncio

        self._leave()
        if kind is None:
            await asyncio.sleep(0)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()


def _no_shield(name: str) -> Shield:
    return Shield(name, lambda: None, lambda: None)


async def _no_programs(*_: Any, **__: Any) -> Any:
    raise ToolError("ctx.run_process is not available here: in an on_stop='kill' tool, use subprocess; it ends too.")


class Questions(Protocol):
    """The questions of one call: `CallQuestions`, or its counterpart in a worker process."""

    @property
    def kept(self) -> Any:
        """The value that an earlier attempt kept."""
        ...

    @property
    def answers(self) -> dict[str, Any]:
        """The answers so far, by name."""
        ...

    def ask(self, name: str, reason: Any, *, expires_in: float | None = None) -> Any:
        """The answer to the question `name`. Raises `InterruptSignal` while there is none."""
        ...


class ToolContext(RunContext[DepsT]):
    """Given to a tool that has a parameter of this type: the run's context, and its call. Safe in the tool's thread.

    A tool with `on_stop="kill"` gets one that works from its process: `deps` and `state` are then copies.
    """

    __slots__ = (
        "_cancel",
        "_keep_for_undo",
        "_processes",
        "_questions",
        "_report",
        "_run_process",
        "_shield",
        "call_id",
        "idempotency_key",
        "tool_name",
    )

    def __init__(
        self,
        run: RunContext[DepsT],
        *,
        token: TokenView,
        call_id: str,
        tool_name: str,
        report: Callable[[Any], None],
        cancel: Callable[[str], None],
        shield: Callable[[str], Shield] = _no_shield,
        run_process: Callable[..., Awaitable[ProcessResult]] = _no_programs,
        processes: BackgroundProcesses | None = None,
        questions: Questions | None = None,
        idempotency_key: str = "",
        keep_for_undo: Callable[[Any], None] | None = None,
    ) -> None:
        super().__init__(**run.fields(token=token))
        self.call_id: Final = call_id
        self.tool_name: Final = tool_name
        self.idempotency_key: Final = idempotency_key
        """A key for this call of this session: the same in another process after a crash, unique otherwise."""
        self._report: Final = report
        self._cancel: Final = cancel
        self._shield: Final = shield
        self._run_process: Final = run_process
        self._processes: Final = processes
        self._questions: Final = questions
        self._keep_for_undo: Final = keep_for_undo

    def report(self, progress: object) -> None:
        """Report progress to the readers of the run: any JSON-like value. Never waits."""
        self._report(progress)

    def cancel(self, reason: str = "") -> None:
        """Ask the whole run to stop (cause: `tool`). Returns at once; the stop then reaches this tool as well."""
        self._cancel(reason)

    def shield(self, name: str = "") -> Shield:
        """Protect the block `async with ctx.shield():` (sync: `with`) from a stop, up to the tool's grace.

        For the part between a point of no return and the moment where everything is consistent again. A stop during the
        block waits for its end, and the receipt says so. When the grace is over, or in mode `kill`, the block is
        interrupted. `name` is its name on the receipt.
        """
        return self._shield(name)

    async def run_process(
        self,
        argv: Sequence[str],
        *,
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        inherit_env: bool | Collection[str] = False,
        timeout: float | None = None,  # noqa: ASYNC109  (what it ends is a process, with a grace)
        max_output: int = 1_000_000,
        max_memory: int | None = None,
        max_cpu: float | None = None,
        sandbox: bool = False,
        report: bool = True,
    ) -> ProcessResult:
        """Run a program, from an async tool, and wait for it; a stop ends it with everything that it started.

        What it prints is reported as progress while it runs, and kept: the tool's result quotes it when the tool is
        stopped. A stop sends TERM to all its processes and KILL when the tool's grace is over; so does `timeout`. What
        it leaves running when it ends is ended too. Cancelling the wait does the same as a stop.

        input        text or bytes for its standard input (else it is empty)
        env          variables on top of the small environment that it gets: PATH, HOME, the language and the like
        inherit_env  names of variables of this process that it gets too; True for all, with every key among them
        timeout      seconds; the result then has `timed_out`
        max_output   characters kept of each stream: the first half and the last half of more
        max_memory   bytes, for each of its processes
        max_cpu      seconds of processor time, for each of its processes
        sandbox      run it under `bwrap`: no network, everything read-only but `cwd` and a /tmp of its own

        Raises `ToolError` when the program cannot be started, or when `bwrap` is wanted and missing, or would have to
        leave everything writable because `cwd` is /.
        """
        return await self._run_process(
            argv,
            input=input,
            cwd=cwd,
            env=env,
            inherit_env=inherit_env,
            timeout=timeout,
            max_output=max_output,
            max_memory=max_memory,
            max_cpu=max_cpu,
            sandbox=sandbox,
            report=report,
        )

    @property
    def processes(self) -> BackgroundProcesses:
        """The background processes of the run, for async tools. They go on after the call and end with the run."""
        if self._processes is None:
            raise ToolError("ctx.processes is not available here: only async tools without on_stop='kill' have it.")
        return self._processes

    def keep_for_undo(self, data: object) -> None:
        """Keep what the tool has done so far: if the call is cut from here on, its undo gets `data` as its `result`.

        A later value replaces this one. A call that completes has its return value for the undo, as always.
        """
        if self._keep_for_undo is None:
            raise ToolError("ctx.keep_for_undo is not available here: a tool with on_stop='kill' does not have it.")
        self._keep_for_undo(data)

    def interrupt(self, name: str, reason: object = None, *, expires_in: float | None = None) -> Any:
        """Ask a person, and return the answer.

        The first time, this leaves the tool: the run ends with `stop_reason == "interrupt"`. When it is resumed with an
        answer, the tool is called again from its beginning, and this returns the answer. So what stands before the
        question runs again: ask first and act afterwards, or make it safe to repeat. Several questions in one tool need
        names of their own. Never in a `try` that catches `BaseException`.

        reason       any JSON-like value, for the person
        expires_in   seconds, after which no answer is accepted

        Raises `ToolError` for a reason that has no JSON form, and outside of a run.
        """
        if self._questions is None:
            raise ToolError("No person can be asked from here: this tool was not called by a run.")
        return self._questions.ask(name, reason, expires_in=expires_in)

    @property
    def kept(self) -> Any:
        """The value of `InterruptSignal(kept=...)`, when the tool is called again after an interrupt; else None."""
        return None if self._questions is None else self._questions.kept

    @property
    def answers(self) -> dict[str, Any]:
        """The answers so far to the questions of this call, by name."""
        return {} if self._questions is None else dict(self._questions.answers)
