"""`read_file` and `write_file`.

Reading changes nothing, so a stop abandons a read that blocks, for example on a network drive. Writing is `finish`: it
takes milliseconds and happens in one step, the renaming of a finished file, so a stop waits for it and the result is
certain. A `kill` in between leaves the old content unchanged.

The calls of one turn that concern one file run in their order, so the last write of a turn is the one that stays.
"""

from __future__ import annotations

import hashlib
import io
from typing import Any, Final

from msgspec import Struct

from ...errors import ToolError, UndoConflict
from ..tool import Sequential, Tool
from ..tool_return import ToolReturn
from .diff import unified_diff
from .folder import Folder

MAX_SIZE: Final = 1_000_000


class WrittenFile(Struct, frozen=True):
    """What is needed to undo a write: the file as it was before, and how to tell whether it changed since.

    `previous` and `mode` are None when there was no such file. `digest` is the SHA-256 of what was written, None for a
    file that was removed; `folders` are those that were made for it. `root` is the folder that the path may not leave,
    None for no such limit.
    """

    root: str | None
    path: str
    previous: bytes | None
    mode: int | None
    digest: str | None
    folders: tuple[str, ...] = ()


def make_files(root: str | None = None, *, max_size: int = MAX_SIZE) -> tuple[Tool, Tool]:
    """A `read_file` and a `write_file`. With `root`, neither touches anything outside that folder.

    `max_size` is the size of the largest file that is read, or kept for an undo, in bytes.
    """
    return make_files_in(Folder(root), max_size)


def make_files_in(folder: Folder, max_size: int) -> tuple[Tool, Tool]:
    """The same two tools, for a folder."""

    def read_file(path: str, first_line: int = 1, lines: int = 2000) -> str:
        """Read a text file, or some lines of it.

        Args:
            path: the file
            first_line: where to begin, counted from 1
            lines: how many lines at most
        """
        text = folder.read(path, max_size)[0].decode("utf-8", "replace")
        all_lines = list(io.StringIO(text))  # lines end at LF or CRLF only, as for `search_files`
        if first_line > max(1, len(all_lines)):
            raise ToolError(f"{path} has {len(all_lines)} lines.")
        chosen = "".join(all_lines[max(0, first_line - 1) :][: max(0, lines)])
        lines_left = len(all_lines) - max(0, first_line - 1) - max(0, lines)
        return f"{chosen}[{lines_left} more lines]" if lines_left > 0 else chosen

    def write_file(path: str, content: str) -> ToolReturn:
        """Write a text file, as a whole, in the place of what was there. Folders are made as needed.

        Args:
            path: the file
            content: all of its text
        """
        previous, mode = folder.read_if_there(path, max_size)
        written = write(folder, path, content.encode("utf-8", "surrogateescape"), (previous, mode))
        return ToolReturn(f"Wrote {len(content)} characters to {path}.", data=written)

    def preview(arguments: dict[str, Any]) -> str:
        previous, _ = folder.read_if_there(arguments["path"], max_size)
        return unified_diff(arguments["path"], (previous or b"").decode("utf-8", "replace"), arguments["content"])

    by_path = one_path_in_order(folder)
    writer = Tool(write_file, on_stop="finish", grace=10, sequential=by_path, preview=preview)
    writer.undo(undo_write)
    return Tool(read_file, on_stop="abandon", grace=0.25, sequential=by_path), writer


def one_path_in_order(folder: Folder) -> Sequential:
    """The calls of one turn with the same file as `path` run in their order."""

    def key(arguments: dict[str, Any]) -> str:
        return folder.key(arguments["path"])

    return key


def write(folder: Folder, path: str, content: bytes, before: tuple[bytes | None, int | None]) -> WrittenFile:
    """Write a file, in one step; `before` is its content and mode so far. Raises `ToolError` when it cannot be."""
    previous, mode = before
    full_path = folder.absolute(path)
    try:
        folders = folder.replace(path, content, mode)
    except OSError as error:
        raise ToolError(f"{path} cannot be written: {error.strerror}.") from None
    return WrittenFile(folder.limit, full_path, previous, mode, hashlib.sha256(content).hexdigest(), folders)


def undo_write(result: WrittenFile) -> None:
    """Restore the content that a write has replaced, unless the file was changed since.

    Raises `UndoConflict` when it was, and `OSError` when the content cannot be restored.
    """
    folder = Folder(result.root)
    found = folder.digest(result.path)
    if found != result.digest:
        how = "is there again" if result.digest is None else "has other content than the tool left"
        raise UndoConflict(result.path, "is gone" if found is None else how)
    if result.previous is not None:
        folder.replace(result.path, result.previous, result.mode)
        return
    folder.remove(result.path)
    folder.remove_empty(result.folders)


read_file, write_file = make_files()
