"""Snapshots of a folder: what a command has changed, and what was there before."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from ....cancellation import BoundedShield
from ....errors import ToolError
from ...policy import EXIT_GRACE
from ...thread import ThreadCall, ThreadOutcome
from ..files import WrittenFile
from ..folder import Folder
from .tree_copy import TreeCopy

_T = TypeVar("_T")


class CommandChanges(Struct, frozen=True):
    """What a command has changed: the files as they were before, and those whose content was not kept.

    `fault` says why the changes are not known, when the files could not be compared.
    """

    files: tuple[WrittenFile, ...]
    not_kept: tuple[str, ...] = ()
    fault: str = ""


class FolderSnapshot(Protocol):
    """The files of a folder at one moment."""

    async def take(self) -> None:
        """Keep the files as they are now. A cancellation leaves nothing running."""

    async def changes(self) -> CommandChanges:
        """The changes to the files since `take()`."""
        ...

    def close(self) -> None:
        """Remove what was kept."""


class CopySnapshot:
    """A snapshot that is a copy of the files."""

    def __init__(self, folder: Folder, max_size: int) -> None:
        self._over: Final = threading.Event()
        self._copy: Final = TreeCopy(folder, max_size, self._checkpoint)

    async def take(self) -> None:
        """Copy the files, in a thread."""
        await in_thread(self._copy.take, self._over)

    async def changes(self) -> CommandChanges:
        """Compare the files with the copy, in a thread."""
        return CommandChanges(*await in_thread(self._copy.changes, self._over))

    def close(self) -> None:
        """Remove the copy."""
        self._copy.close()

    def _checkpoint(self) -> None:
        if self._over.is_set():
            raise ToolError("The command was stopped.")


async def in_thread(function: Callable[[], _T], over: threading.Event) -> _T:
    """Call a function that looks at `over` in a thread. A cancellation sets that, and waits for the thread's end."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_orphan(_: ThreadOutcome) -> None:
        if not ended.done():
            ended.set_result(None)

    thread = ThreadCall(function, "quiesce-snapshot", on_orphan)
    try:
        return await thread.wait()
    except asyncio.CancelledError:
        over.set()
        if thread.running:
            await BoundedShield("ending a snapshot").wait((ended,), seconds=EXIT_GRACE)
        raise


def is_in_git(root: str) -> bool:
    """Whether a folder belongs to a git working tree."""
    while not os.path.exists(os.path.join(root, ".git")):
        above = os.path.dirname(root)
        if above == root:
            return False
        root = above
    return True
