"""A program that a tool runs, under a supervisor that ends it with every process that it started."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from ..cancellation import BoundedShield
from ..errors import ToolError
from ..processes.environment import program_environment
from ..processes.limits import ResourceLimits
from .closed_loop import end_process
from .policy import EXIT_GRACE

if TYPE_CHECKING:
    from ..processes.stream_end import StreamEnd
    from ..processes.supervised import SupervisedProcess

_NO_PROCESSES: Final = "Programs cannot be run as a tool on Windows: their processes could not be ended for certain."


class ProcessResult(Struct, frozen=True):
    """How a program ended and what it printed.

    `code` is its exit code, negative for the signal that ended it. `left_running` is the number of processes that
    it left running; they were ended. In a sandbox they are not counted: there they end with the program.
    """

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    left_running: int = 0

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with code 0."""
        return self.code == 0 and not self.timed_out


class Program:
    """One program under a supervisor. Made in the event loop that waits for it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        inherit_env: bool | Collection[str] = False,
        timeout: float | None = None,
        max_output: int = 1_000_000,
        max_memory: int | None = None,
        max_cpu: float | None = None,
        sandbox: bool = False,
        report: Callable[[Any], None] | None = None,
        grace: Callable[[], float],
    ) -> None:
        from ..processes.output import CapturedOutput

        self.argv: Final = checked_argv(argv)
        self._input: Final = checked_input(input)
        self._cwd: Final = absolute_cwd(cwd)
        self._env: Final = program_environment(env, inherit=inherit_env)
        self._timeout: Final = timeout
        self._limits: Final = (max_memory, max_cpu)
        self._sandbox: Final = sandbox
        self._grace: Final = grace
        self._process: SupervisedProcess | None = None
        self._loop: Final = asyncio.get_running_loop()
        self._ended: Final[asyncio.Future[None]] = self._loop.create_future()
        self._timed_out = False
        self.stdout: Final = CapturedOutput(
            max_output, None if report is None else lambda text: report({"stdout": text})
        )
        self.stderr: Final = CapturedOutput(
            max_output, None if report is None else lambda text: report({"stderr": text})
        )

    async def run(self) -> ProcessResult:
        """Run it to its end. Raises `ToolError` when it cannot be started. A cancellation ends it first."""
        process, streams = self._start()
        timer = None
        try:
            if self._timeout is not None:
                timer = self._loop.call_later(self._timeout, self._on_timeout)
            await asyncio.wait((self._ended,))
        except asyncio.CancelledError:
            self.stop(self._grace())
            await BoundedShield(f"ending {self.argv[0]}").wait((self._ended,), seconds=self._grace() + EXIT_GRACE)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._finish(process, *streams)
        return self._result(process)

    def stop(self, grace: float) -> None:
        """End it and everything that it started: TERM now, KILL after `grace` seconds."""
        if self._process is not None and not self._ended.done():
            self._process.stop(grace)

    def end_with_loop(self) -> bool:
        """The loop was closed: end the program and wait for that. Whether it has ended."""
        return self._process is None or end_process(self._process)

    @property
    def ended(self) -> bool:
        """Whether the program has ended, with all that it started."""
        return self._ended.done()

    @property
    def label(self) -> str:
        """The name of its process on the receipt, while it runs."""
        pid = None if self._process is None else self._process.child
        return f"process {pid} ({self.argv[0]})"

    def _start(self) -> tuple[SupervisedProcess, tuple[StreamEnd, StreamEnd, StreamEnd]]:
        limits = ResourceLimits(*self._limits)
        process, stdin, stdout, stderr = start_supervised(
            self.argv, self._cwd, self._env, limits, sandbox=self._sandbox
        )
        self._process = process
        process.attach(self._loop, self._on_change)
        stdout.attach(self._loop, self.stdout.add)
        stderr.attach(self._loop, self.stderr.add)
        stdin.attach_writer(self._loop)
        stdin.post(self._input, last=True)
        return process, (stdin, stdout, stderr)

    def _on_change(self) -> None:
        if self._process is not None and self._process.gone and not self._ended.done():
            self._ended.set_result(None)

    def _on_timeout(self) -> None:
        self._timed_out = True
        self.stop(self._grace())

    def _finish(self, process: SupervisedProcess, stdin: StreamEnd, stdout: StreamEnd, stderr: StreamEnd) -> None:
        stdout.drain(self.stdout.add)
        stderr.drain(self.stderr.add)
        for each in (stdin, stdout, stderr, process):
            each.close()

    def _result(self, ended: SupervisedProcess) -> ProcessResult:
        if ended.failure is not None:
            raise ToolError(f"{self.argv[0]} could not be started ({ended.failure}).")
        if ended.exit is None:  # its supervisor was killed
            raise ToolError(f"{self.argv[0]} was lost before it reported anything: whether it ran is not known.")
        return ProcessResult(
            self.argv,
            ended.exit.code,
            self.stdout.text,
            self.stderr.text,
            timed_out=self._timed_out,
            # bwrap has processes of its own, which may end a moment later than the program.
            left_running=0 if self._sandbox else ended.leftovers,
        )


def start_supervised(
    argv: tuple[str, ...], cwd: str, env: dict[str, str], limits: ResourceLimits | None = None, *, sandbox: bool = False
) -> tuple[SupervisedProcess, StreamEnd, StreamEnd, StreamEnd]:
    """Start a program, with its input, its output and its error output. Raises `ToolError` when that fails."""
    if sys.platform == "win32":
        raise ToolError(_NO_PROCESSES)
    from ..processes.supervised import start_program
    from ..processes.supervisor import ProgramJob

    job = ProgramJob(sandboxed(argv, cwd) if sandbox else argv, cwd, env, limits or ResourceLimits())
    try:
        return start_program(job)
    except OSError as error:
        raise ToolError(f"{argv[0]} could not be started ({error}).") from None


def absolute_cwd(cwd: str | None) -> str:
    """The folder to run in. Raises `ToolError` when the current one is gone."""
    try:
        return str(Path(cwd or ".").absolute())
    except FileNotFoundError:
        raise ToolError("The folder that this program runs in is gone: give another one as cwd.") from None


def checked_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The name of a program and its arguments. Raises `ToolError` for what cannot be run."""
    if isinstance(argv, str) or not argv or not all(isinstance(part, str) for part in argv):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolError("A program is given as a list: its name and its arguments.")
    if any("\0" in part for part in argv):
        raise ToolError("A program's arguments cannot hold a zero byte.")
    return tuple(argv)


def checked_input(given: object) -> bytes:
    """The input of a program as bytes. Raises `ToolError` for what is neither text nor bytes."""
    if isinstance(given, str):
        return given.encode()
    if given is None or isinstance(given, bytes | bytearray | memoryview):
        return bytes(cast("bytes", given or b""))
    raise ToolError("The input of a program is text or bytes.")


def sandboxed(argv: Sequence[str], cwd: str) -> tuple[str, ...]:
    """The command that runs `argv` under bubblewrap: no network, read-only but for `cwd` and a /tmp of its own.

    It inherits the environment of `bwrap`, which has been cleared already. `--setenv` would show the values to every
    user, in the process table.

    Raises `ToolError` when `bwrap` is not installed, or when `cwd` is /. The program is then not run.
    """
    import shutil  # it brings the compressors of the standard library

    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise ToolError("The sandbox needs bwrap (bubblewrap), which is not installed. Nothing was run.")
    if os.path.realpath(cwd) == os.sep:
        raise ToolError("A sandbox in / would protect nothing: give another folder as cwd. Nothing was run.")
    confine = ("--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev", "/dev")
    places = ("--proc", "/proc", "--tmpfs", "/tmp", "--bind", cwd, cwd, "--chdir", cwd)  # noqa: S108
    return (bwrap, *confine, *places, "--", *argv)
