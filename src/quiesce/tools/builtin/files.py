"""`read_file` and `write_file`.

Reading changes nothing, so a stop abandons a read that blocks, for example on a network drive. Writing is `finish`: it
takes milliseconds and happens in one step, the renaming of a finished file, so a stop waits for it and the result is
certain. A `kill` in between leaves the old content unchanged.
"""

from __future__ import annotations

import io
import os
import stat
import uuid
from pathlib import Path
from typing import Final, Self

from ...errors import ToolError
from ..tool import Tool

_MAX_SIZE: Final = 1_000_000


class Written(str):
    """The result of `write_file`: a sentence for the model, and the data for an undo.

    `previous` is the content that was there before, or None when there was no such file; `path` is where.
    """

    __slots__ = ("mode", "path", "previous")

    path: Path
    previous: bytes | None
    mode: int | None

    def __new__(cls, text: str, path: Path, previous: bytes | None, mode: int | None) -> Self:
        """The sentence, with the data for an undo as attributes."""
        made = super().__new__(cls, text)
        made.path, made.previous, made.mode = path, previous, mode
        return made


def make_files(root: str | None = None, *, max_size: int = _MAX_SIZE) -> tuple[Tool, Tool]:
    """A `read_file` and a `write_file`. With `root`, neither touches anything outside that folder.

    `max_size` is the size of the largest file that is read, or kept for an undo, in bytes.
    """

    def read_file(path: str, first_line: int = 1, lines: int = 2000) -> str:
        """Read a text file, or some lines of it.

        Args:
            path: the file
            first_line: where to begin, counted from 1
            lines: how many lines at most
        """
        file_path = _checked_path(root, path)
        text = _read(file_path, max_size).decode("utf-8", "replace")
        all_lines = list(io.StringIO(text))  # lines end at LF, CR and CRLF only, as in editors and compilers
        if first_line > max(1, len(all_lines)):
            raise ToolError(f"{path} has {len(all_lines)} lines.")
        chosen = "".join(all_lines[max(0, first_line - 1) :][: max(0, lines)])
        lines_left = len(all_lines) - max(0, first_line - 1) - max(0, lines)
        return f"{chosen}[{lines_left} more lines]" if lines_left > 0 else chosen

    def write_file(path: str, content: str) -> Written:
        """Write a text file, as a whole, in the place of what was there. Folders are made as needed.

        Args:
            path: the file
            content: all of its text
        """
        file_path = _checked_path(root, path)
        previous, mode = _previous_content(file_path, max_size)
        replace_content(file_path, content.encode("utf-8", "surrogateescape"), mode)
        size = len(content)
        return Written(f"Wrote {size} characters to {path}.", file_path, previous, mode)

    writer = Tool(write_file, on_stop="finish", grace=10)
    writer.undo(undo_write)
    return Tool(read_file, on_stop="abandon", grace=0.25), writer


def undo_write(result: Written) -> None:
    """Restore the content that `write_file` replaced. Raises `OSError` when that is not possible."""
    if result.previous is None:
        result.path.unlink(missing_ok=True)
    else:
        replace_content(result.path, result.previous, result.mode)


def replace_content(file_path: Path, content: bytes, mode: int | None) -> None:
    """Replace a file's content in one step: a reader sees the old or the new content, never a part."""
    file_path = file_path.resolve()  # a link stays a link; its target is replaced
    file_path.parent.mkdir(parents=True, exist_ok=True)
    temporary = file_path.with_name(f".{file_path.name[:50]}.{uuid.uuid4().hex[:12]}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(file_path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _previous_content(file_path: Path, max_size: int) -> tuple[bytes | None, int | None]:
    try:
        status = file_path.stat()
    except FileNotFoundError:
        return None, None
    except OSError as error:
        raise ToolError(f"{file_path} cannot be written: {error.strerror}.") from None
    return _read(file_path, max_size), stat.S_IMODE(status.st_mode)


def _read(file_path: Path, max_size: int) -> bytes:
    try:
        status = file_path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ToolError(
                f"{file_path} is a folder; it holds: {', '.join(sorted(os.listdir(file_path))[:100]) or 'nothing'}."
            )
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{file_path} is not a plain file.")
        if status.st_size > max_size:
            raise ToolError(f"{file_path} has {status.st_size:,} bytes; at most {max_size:,} are handled here.")
        return file_path.read_bytes()
    except OSError as error:
        raise ToolError(f"{file_path} cannot be read: {error.strerror}.") from None


def _checked_path(root: str | None, path: str) -> Path:
    if "\0" in path or not path:
        raise ToolError("That is no path.")
    file_path = Path(root or ".", path).expanduser()
    if root is not None and not file_path.resolve().is_relative_to(Path(root).resolve()):
        raise ToolError(f"{path} is outside of the folder that may be used.")
    return file_path


read_file, write_file = make_files()
