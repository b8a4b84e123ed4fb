"""A snapshot by git: the files that it does not ignore, in an index of its own. The user's index is not touched."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from typing import Final

from ....errors import ToolError
from ...context import ToolContext
from ..files import WrittenFile
from ..folder import Folder
from .snapshot import CommandChanges, in_thread
from .tree_copy import new_folders

# The modes of plain files in git, and those that a restored file gets.
_MODES: Final = {"100644": 0o644, "100755": 0o755}
_MAX_OUTPUT: Final = 50_000_000


class GitSnapshot:
    """A tree object of the folder, with untracked files. git removes it in time, because nothing refers to it."""

    def __init__(self, folder: Folder, max_size: int, ctx: ToolContext) -> None:
        self._folder: Final = folder
        self._max_size: Final = max_size
        self._ctx: Final = ctx
        self._place: Final = tempfile.mkdtemp(prefix="quiesce-snapshot-")
        self._before: Final = os.path.join(self._place, "before")
        self._after: Final = os.path.join(self._place, "after")
        self._tree = ""
        self._over: Final = threading.Event()
        self._folders: set[str] = set()

    async def take(self) -> None:
        """Write the files as they are now into a tree object. Raises `ToolError` when git cannot do that."""
        index = await self._git("rev-parse", "--git-path", "index")
        _copy_if_there(os.path.join(self._folder.root, index.strip()), self._before)  # git then compares time stamps
        await self._git("add", "--all", "--", ".", index=self._before)
        self._tree = (await self._git("write-tree", index=self._before)).strip()
        self._folders = await in_thread(self._folder.folders, self._over)

    async def changes(self) -> CommandChanges:
        """Compare the files with the tree. Raises `ToolError` when git cannot do that."""
        _copy_if_there(self._before, self._after)
        await self._git("add", "--all", "--", ".", index=self._after)
        compare = ("diff-index", "--cached", "-r", "-z", "--no-renames", "--raw", "--relative", self._tree)
        old_modes = dict(_changed(await self._git(*compare, index=self._after)))
        there = [path for path, mode in old_modes.items() if mode in _MODES]
        prefix = (await self._git("rev-parse", "--show-prefix")).strip()
        kept = f"{self._place}/files/"
        if there:
            names = "".join(f"{path}\0" for path in there)
            await self._git("checkout-index", "-z", "--stdin", f"--prefix={kept}", index=self._before, input=names)
        return await in_thread(lambda: self._collect(old_modes, os.path.join(kept, prefix)), self._over)

    def _collect(self, old_modes: dict[str, str], kept: str) -> CommandChanges:
        files: list[WrittenFile] = []
        not_kept: list[str] = []
        for path, mode in old_modes.items():
            content = os.path.join(kept, path)
            if mode == "000000":
                files.append(self._as_written(path, None, None))
            elif mode not in _MODES or not os.path.isfile(content) or os.path.getsize(content) > self._max_size:
                not_kept.append(path)
            else:
                with open(content, "rb") as file:
                    files.append(self._as_written(path, file.read(), _MODES[mode]))
        return CommandChanges(tuple(files), tuple(not_kept))

    def close(self) -> None:
        """Remove the index, and the files that were read from it."""
        shutil.rmtree(self._place, ignore_errors=True)

    def _as_written(self, path: str, previous: bytes | None, mode: int | None) -> WrittenFile:
        folder = self._folder
        made = new_folders(path, self._folders) if previous is None else ()
        return WrittenFile(folder.limit, folder.absolute(path), previous, mode, folder.digest(path), made)

    async def _git(self, *arguments: str, index: str | None = None, input: str | None = None) -> str:
        env = {"GIT_OPTIONAL_LOCKS": "0"} if index is None else {"GIT_INDEX_FILE": index}
        ended = await self._ctx.run_process(
            ["git", *arguments], cwd=self._folder.root, env=env, input=input, max_output=_MAX_OUTPUT, report=False
        )
        if not ended.ok:
            raise ToolError(f"The snapshot failed (git {arguments[0]}): {ended.stderr.strip()[:500]}")
        return ended.stdout


def _changed(raw: str) -> Iterator[tuple[str, str]]:
    """The paths of a raw diff, each with its mode before."""
    fields = iter(raw.split("\0"))
    for field in fields:
        if field:
            yield next(fields), field[1:].split(" ", 1)[0]


def _copy_if_there(source: str, target: str) -> None:
    if os.path.exists(source):
        shutil.copyfile(source, target)
