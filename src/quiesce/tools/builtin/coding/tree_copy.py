"""A copy of the files of a folder, to tell afterwards what a command has changed, and what was there before."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from ....errors import ToolError
from ..files import WrittenFile
from ..folder import Folder, read_opened

# A file that was changed so shortly before its copy may change again without another time stamp.
_CLOCK_STEP: Final = 100_000_000


class _Copied(Struct, frozen=True):
    """A file as it was: where its content is kept (None if it was too large), and how to see that it has changed.

    A file that was changed a moment ago has no signature; `digest` is for such a file without a copy.
    """

    kept: str | None
    mode: int
    signature: tuple[int, ...] | None
    digest: str | None = None


class TreeCopy:
    """The files of a folder at one moment. Blocking: for a thread.

    `checkpoint` is called before each file; it raises when the thread is no longer wanted.
    """

    def __init__(self, folder: Folder, max_size: int, checkpoint: Callable[[], None]) -> None:
        self._folder: Final = folder
        self._max_size: Final = max_size
        self._checkpoint: Final = checkpoint
        self._place: Final = tempfile.mkdtemp(prefix="quiesce-snapshot-")
        self._files: Final[dict[str, _Copied]] = {}
        self._folders: set[str] = set()

    def take(self) -> None:
        """Copy the files."""
        self._folders = self._folder.folders()
        for path, parent, name in self._folder.files("."):
            self._checkpoint()
            try:
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:  # it was removed meanwhile
                continue
            kept = self._keep(parent, name, path)
            settled = time.time_ns() - status.st_ctime_ns > _CLOCK_STEP
            signature = _signature(status) if settled else None
            digest = self._digest(path) if kept is None and not settled else None
            self._files[path] = _Copied(kept, status.st_mode & 0o7777, signature, digest)

    def _keep(self, parent: int, name: str, path: str) -> str | None:
        """Copy a file. None when it is too large, or cannot be read: it is reported if it changes."""
        try:
            content, _ = read_opened(parent, name, path, self._max_size)
        except (OSError, ToolError):
            return None
        kept = os.path.join(self._place, str(len(self._files)))
        with open(kept, "wb") as file:
            file.write(content)
        return kept

    def changes(self) -> tuple[tuple[WrittenFile, ...], tuple[str, ...]]:
        """The files that are other ones now, and those of them that cannot be restored."""
        other = dict(self._files)
        changed: dict[str, WrittenFile | None] = {}
        for path, parent, name in self._folder.files("."):
            self._checkpoint()
            try:
                signature = _signature(os.stat(name, dir_fd=parent, follow_symlinks=False))
            except FileNotFoundError:  # it was removed meanwhile
                continue
            before = other.pop(path, None)
            if before is None:
                changed[path] = self._as_written(path, None, new_folders(path, self._folders))
            elif before.signature != signature and self._differs(path, before, signature[-1] & 0o7777):
                other[path] = before
        changed |= {path: self._as_written(path, before) for path, before in other.items()}
        not_kept = tuple(path for path, written in changed.items() if written is None)
        return tuple(written for written in changed.values() if written is not None), not_kept

    def close(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self._place, ignore_errors=True)

    def _differs(self, path: str, before: _Copied, mode: int) -> bool:
        if before.mode != mode:
            return True
        if before.kept is None:
            return before.digest is None or before.digest != self._digest(path)
        return Folder(None).digest(before.kept) != self._digest(path)

    def _digest(self, path: str) -> str | None:
        """The digest of a file; None when it cannot be read."""
        try:
            return self._folder.digest(path)
        except (OSError, ToolError):
            return None

    def _as_written(self, path: str, before: _Copied | None, folders: tuple[str, ...] = ()) -> WrittenFile | None:
        """None for a file whose content was not kept, or that cannot be read now."""
        previous, mode = None, None
        try:
            if before is not None:
                if before.kept is None:
                    return None
                mode = before.mode
                with open(before.kept, "rb") as file:
                    previous = file.read()
            digest = self._folder.digest(path)
        except (OSError, ToolError):
            return None
        return WrittenFile(self._folder.limit, self._folder.absolute(path), previous, mode, digest, folders)


def _signature(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode


def new_folders(path: str, known: set[str]) -> tuple[str, ...]:
    """The folders on the way to a file that were not there before."""
    parts = path.split(os.sep)[:-1]
    ancestors = (os.path.join(*parts[: number + 1]) for number in range(len(parts)))
    return tuple(each for each in ancestors if each not in known)
