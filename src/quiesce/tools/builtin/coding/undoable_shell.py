"""A `shell` whose commands can be undone, from a snapshot of the files before each command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....errors import ToolError, UndoConflict
from ...context import ToolContext
from ...tool import Tool
from ...tool_return import ToolReturn
from ..files import undo_write
from .snapshot import CommandChanges, Snapshot


def make_undoable(shell: Tool, make_snapshot: Callable[[ToolContext], Snapshot]) -> Tool:
    """The same tool, with an undo."""
    run: Callable[..., Any] = shell.function

    async def undoable_shell(command: str, ctx: ToolContext) -> ToolReturn:
        snapshot = make_snapshot(ctx)
        try:
            await snapshot.take()
            output = await run(command=command, ctx=ctx)
            async with ctx.shield("comparing the files"):  # the command is over: what it did is to be known
                changes = await snapshot.changes()
        finally:
            snapshot.close()
        return ToolReturn(output, data=changes)

    undoable_shell.__doc__ = run.__doc__
    made = Tool(
        undoable_shell,
        name=shell.name,
        on_stop=shell.policy.on_stop,
        grace=shell.policy.grace,
        sequential=shell.sequential,
        max_result=shell.max_result,
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
    not_kept = f"not kept: {', '.join(result.not_kept)}; " if result.not_kept else ""
    if left:
        raise UndoConflict(", ".join(left), f"is not what the command left; {not_kept}{others}")
    if not_kept:
        raise ToolError(f"{not_kept}{others}.")
