"""Programs in the background: `start_process`, `read_process`, `write_process` and `stop_process`.

A process belongs to its task and ends with it, with everything that it started. It goes on while a person is asked.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ...background import BackgroundProcess
from ...context import ToolContext
from ...tool import Tool
from ..folder import Folder

_MAX_WAIT: Final = 60.0


def make_process_tools(folder: Folder, *, sandbox: bool = False) -> list[Tool]:
    """The four tools, for programs that run in a folder."""

    async def start_process(command: str, ctx: ToolContext) -> str:
        """Start a shell command in the background, such as a server or a watcher. It ends when your task is done.

        Args:
            command: the command, for /bin/sh
        """
        process = await ctx.processes.start(["/bin/sh", "-c", command], cwd=folder.root, sandbox=sandbox)
        return f"Started as process {process.name}."

    return [
        Tool(
            start_process, on_stop="cancel", grace=2, sequential=True, preview=lambda given: f"$ {given['command']} &"
        ),
        Tool(read_process, on_stop="cancel", grace=0.5, sequential=_by_process),
        Tool(write_process, on_stop="cancel", grace=0.5, sequential=_by_process, preview=lambda given: given["text"]),
        Tool(stop_process, on_stop="cancel", grace=2, sequential=_by_process),
    ]


async def read_process(process: str, ctx: ToolContext, seconds: float = 1.0) -> str:
    """Read what a background process has printed since it was last read, and whether it still runs.

    Args:
        process: its name, such as p1
        seconds: how long to wait for output, if there is none yet; at most 60
    """
    found = ctx.processes.get(process)
    return _report(found, await found.read(min(max(0.0, seconds), _MAX_WAIT)))


async def write_process(process: str, text: str, ctx: ToolContext) -> str:
    """Send text to the standard input of a background process.

    Args:
        process: its name, such as p1
        text: the text; a line ends with a newline
    """
    ctx.processes.get(process).write(text)
    return f"Sent {len(text)} characters to {process}."


async def stop_process(process: str, ctx: ToolContext) -> str:
    """End a background process with everything that it started, and read what it printed last.

    Args:
        process: its name, such as p1
    """
    found = ctx.processes.get(process)
    found.stop()
    await asyncio.wait((found.ended,))  # it leaves the future alone when the call is cancelled
    return _report(found, await found.read(0))


def _by_process(arguments: dict[str, Any]) -> str:
    return f"process {arguments['process']}"


def _report(process: BackgroundProcess, output: str) -> str:
    return f"{output.rstrip()}\n[{process.name} is {process.status}]".lstrip()
