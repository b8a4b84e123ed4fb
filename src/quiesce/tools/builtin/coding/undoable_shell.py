"""A `shell` whose commands can be undone: the files are copied before each command, and compared after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from ....cancellation import BoundedShield
from ....errors import ToolError, UndoConflict
from ...context import ToolContext
from ...policy import EXIT_GRACE
from ...thread import ThreadCall, ThreadOutcome
from ...tool import Tool
from ...tool_return import ToolReturn
from ..files import WrittenFile, undo_write
from ..folder import Folder
from .tree_copy import TreeCopy

_T = TypeVar("_T")


class CommandChanges(Struct, frozen=True):
    """What a command has changed: the files as they were before, and those that were too large to be kept."""

    files: tuple[WrittenFile, ...]
    not_kept: tuple[str, ...] = ()


def make_undoable(shell: Tool, folder: Folder, max_size: int) -> Tool:
    """The same tool, with an undo."""
    run: Callable[..., Any] = shell.function

    async def undoable_shell(command: str, ctx: ToolContext) -> ToolReturn:
        over = threading.Event()
        copy = TreeCopy(folder, max_size, _checkpoint(over))
        try:
            await _in_thread(copy.take, ctx, over)
            output = await run(command=command, ctx=ctx)
            async with ctx.shield("comparing the files"):  # the command is over: what it did is to be known
                files, not_kept = await _in_thread(copy.changes, ctx, over)
        finally:
            copy.close()
        return ToolReturn(output, data=CommandChanges(files, not_kept))

    undoable_shell.__doc__ = run.__doc__
    made = Tool(
        undoable_shell,
        name=shell.name,
        on_stop=shell.policy.on_stop,
        grace=shell.policy.grace,
        sequential=shell.sequential,
        preview=lambda arguments: shell.preview_text(arguments) or "",
    )
    made.undo(undo_command)
    return made


def undo_command(result: CommandChanges) -> None:
    """Restore the files that a command changed, each unless it was changed since. Raises `UndoConflict` for those."""
    left: list[str] = []
    for written in result.files:
        try:
            undo_write(written)
        except (UndoConflict, ToolError, OSError):
            left.append(written.path)
    others = "all other files are as they were before the command"
    too_large = f"too large to be kept: {', '.join(result.not_kept)}; " if result.not_kept else ""
    if left:
        raise UndoConflict(", ".join(left), f"is not what the command left; {too_large}{others}")
    if too_large:
        raise ToolError(f"{too_large}{others}.")


def _checkpoint(over: threading.Event) -> Callable[[], None]:
    def check() -> None:
        if over.is_set():
            raise ToolError("The command was stopped.")

    return check


async def _in_thread(function: Callable[[], _T], ctx: ToolContext, over: threading.Event) -> _T:
    """Call a function that looks at `over` in a thread. A cancellation ends the thread first."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_orphan(_: ThreadOutcome) -> None:
        ended.set_result(None)

    thread = ThreadCall(function, f"quiesce-snapshot-{ctx.call_id}", on_orphan)
    try:
        return await thread.wait()
    except asyncio.CancelledError:
        over.set()
        if thread.running:
            await BoundedShield("ending a snapshot").wait((ended,), seconds=EXIT_GRACE)
        raise
