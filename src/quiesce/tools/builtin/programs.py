"""`shell` and `python`: programs that the model writes. A stop ends them with all that they started.

Their policy is `cancel`, with two seconds of grace: TERM goes to every process at once, so that a compiler can remove
its temporary files; KILL follows, which no process can ignore. They do not need a worker of their own (`kill`), because
the program is a process already. The result has the output up to the stop.

A program gets a small environment without the host's keys. Otherwise it has all rights of its user: use `sandbox=True`
where that matters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any, Final, TypedDict, Unpack, cast

from ..context import ToolContext
from ..program import ProcessResult
from ..tool import MaxResult, Preview, RequiresApproval, Sequential, Tool, ToolOptions

_TIMEOUT: Final = 120.0
_MAX_OUTPUT: Final = 2_000_000
# Characters that the model gets; `read_result` reads the rest of what is kept.
_MAX_RESULT: Final = 30_000


class ProgramOptions(TypedDict, total=False):
    """Options of `ToolContext.run_process`. The defaults here are 120 s and 2,000,000 characters of each stream."""

    cwd: str | None
    env: dict[str, str] | None
    inherit_env: bool | Collection[str]
    timeout: float | None
    max_output: int
    max_memory: int | None
    max_cpu: float | None
    sandbox: bool


class ProgramToolOptions(ProgramOptions, total=False):
    """The same, with the options of the tool itself (see `tool`). `max_result` is 30,000 without `max_output`."""

    name: str | None
    description: str | None
    grace: float | None
    sequential: Sequential
    requires_approval: RequiresApproval
    approval_expires_in: float | None
    preview: Preview | None
    max_result: MaxResult


def make_shell(**options: Unpack[ProgramToolOptions]) -> Tool:
    """A tool that runs shell commands. The options are those of `ToolContext.run_process` and of `tool`."""
    return make_shell_in(lambda: options.get("cwd"), **options)


def make_shell_in(place: Callable[[], str | None], /, **options: Unpack[ProgramToolOptions]) -> Tool:
    """The same, in the folder that `place` returns at each call."""
    of_program, of_tool = _split(options)

    async def shell(command: str, ctx: ToolContext) -> str:
        """Run a shell command and get what it prints, and its exit code if that is not 0.

        What it leaves running in the background is ended when the command ends.

        Args:
            command: the command, for /bin/sh
        """
        return await _run(ctx, ["/bin/sh", "-c", command], {**of_program, "cwd": place()})

    return Tool(shell, **{"preview": lambda arguments: f"$ {arguments['command']}", **of_tool})


def make_python(**options: Unpack[ProgramToolOptions]) -> Tool:
    """A tool that runs Python snippets. The options are those of `ToolContext.run_process` and of `tool`."""
    of_program, of_tool = _split(options)

    async def python(code: str, ctx: ToolContext) -> str:
        """Run Python code in a new interpreter and get what it prints. Nothing is remembered between two calls.

        Args:
            code: the program; print what you want to see
        """
        # Unbuffered, so that a stop finds all that was printed.
        return await _run(ctx, [sys.executable, "-u", "-c", code], of_program)

    return Tool(python, **{"preview": lambda arguments: arguments["code"], **of_tool})


def _split(options: ProgramToolOptions) -> tuple[ProgramOptions, ToolOptions]:
    """The options of the program, and those of the tool, which refuses what it does not know."""
    of_program: dict[str, Any] = {name: options[name] for name in options if name in ProgramOptions.__annotations__}
    of_tool: dict[str, Any] = {name: options[name] for name in options if name not in of_program}
    max_result: MaxResult = "agent" if "max_output" in of_program else _MAX_RESULT
    return (
        cast("ProgramOptions", {"timeout": _TIMEOUT, "max_output": _MAX_OUTPUT, **of_program}),
        cast("ToolOptions", {"on_stop": "cancel", "grace": 2.0, "max_result": max_result, **of_tool}),
    )


async def _run(ctx: ToolContext, argv: list[str], options: ProgramOptions) -> str:
    return _output_text(await ctx.run_process(argv, **options), options.get("timeout"))


def _output_text(ended: ProcessResult, timeout: float | None) -> str:
    parts = [ended.stdout, ended.stderr]
    if ended.timed_out:
        parts.append(f"[stopped: it took longer than {timeout:g} s]")
    elif ended.code < 0:
        parts.append(f"[ended by signal {-ended.code}]")
    elif ended.code:
        parts.append(f"[exit code {ended.code}]")
    if ended.left_running:
        parts.append(f"[{ended.left_running} of its processes were still running, and were ended]")
    return "\n".join(part.rstrip("\n") for part in parts if part.strip())


shell: Final = make_shell()
python: Final = make_python()
