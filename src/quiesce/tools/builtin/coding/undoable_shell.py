"""A `shell` whose commands can be undone, from a snapshot of the files before each command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ....cancellation import BoundedShield
from ....errors import ToolError, UndoConflict
from ...context import ToolContext
from ...policy import EXIT_GRACE
from ...tool import Tool
from ...tool_return import ToolReturn
from ..files import undo_write
from .snapshot import CommandChanges, FolderSnapshot

# The seconds for the comparison after a stop. The stop waits for the command's grace and EXIT_GRACE, in mode `kill` for
# EXIT_GRACE alone.
_MAX_COMPARING: Final = EXIT_GRACE * 0.75


def make_undoable(shell: Tool, make_snapshot: Callable[[ToolContext], FolderSnapshot]) -> Tool:
    """The same tool, with an undo."""
    run: Callable[..., Any] = shell.function

    async def undoable_shell(command: str, ctx: ToolContext) -> ToolReturn:
        snapshot = make_snapshot(ctx)
        try:
            await snapshot.take()
            try:
                output = await run(command=command, ctx=ctx)
            except asyncio.CancelledError:
                await _compare_after_cut(snapshot, ctx)
                raise
            async with ctx.shield("comparing the files"):  # the command is over: what it did is to be known
                try:
                    changes = await snapshot.changes()
                except (ToolError, OSError) as error:  # which does not cost the output
                    changes = CommandChanges((), fault=str(error))
                ctx.keep_for_undo(changes)
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


async def _compare_after_cut(snapshot: FolderSnapshot, ctx: ToolContext) -> None:
    """A stop has ended the command: keep what it had changed until then, if that is known in time."""
    comparing = asyncio.ensure_future(snapshot.changes())
    shield = BoundedShield("comparing the files")
    await shield.wait((comparing,), seconds=_MAX_COMPARING)
    if not comparing.done():
        comparing.cancel()
        await shield.wait((comparing,), seconds=EXIT_GRACE)
    elif not comparing.cancelled() and comparing.exception() is None:
        ctx.keep_for_undo(comparing.result())


def undo_command(result: CommandChanges) -> None:
    """Restore the files that a command changed, each unless it was changed since. Raises `UndoConflict` for those.

    Raises `ToolError` when the changes are not known.
    """
    if result.fault:
        raise ToolError(f"What the command changed is not known. {result.fault}")
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
