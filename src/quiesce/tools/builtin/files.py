"""`read_file` and `write_file`.

Reading changes nothing, so a read that a stop finds waiting (a network drive, say) is abandoned: nobody needs to wait
for it. Writing is `finish`: it takes milliseconds and happens in one step, the renaming of a finished file, so a stop
waits for it and the result says for certain that it was written. A `kill` in between leaves the old content, whole.
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
    """What `write_file` returns: a sentence for the model, and what an undo needs.

    `previous` is the content that was there before, or None when there was no such file; `path` is where.
    """

    __slots__ = ("mode", "path", "previous")

    path: Path
    previous: bytes | None
    mode: int | None

    def __new__(cls, text: str, path: Path, previous: bytes | None, mode: int | None) -> Self:
        """The sentence, with the rest beside it."""
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
        place = _inside(root, path)
        text = _read(place, max_size).decode("utf-8", "replace")
        wanted = list(io.StringIO(text))  # a line ends as it does for an editor or a compiler, and nowhere else
        if first_line > max(1, len(wanted)):
            raise ToolError(f"{path} has {len(wanted)} lines.")
        chosen = "".join(wanted[max(0, first_line - 1) :][: max(0, lines)])
        left = len(wanted) - max(0, first_line - 1) - max(0, lines)
        return f"{chosen}[{left} more lines]" if left > 0 else chosen

    def write_file(path: str, content: str) -> Written:
        """Write a text file, as a whole, in the place of what was there. Folders are made as needed.

        Args:
            path: the file
            content: all of its text
        """
        place = _inside(root, path)
        previous, mode = _before(place, max_size)
        replace_content(place, content.encode("utf-8", "surrogateescape"), mode)
        size = len(content)
        return Written(f"Wrote {size} characters to {path}.", place, previous, mode)

    writing = Tool(write_file, on_stop="finish", grace=10)
    writing.undo(undo_write)
    return Tool(read_file, on_stop="abandon", grace=0.25), writing


def undo_write(result: Written) -> None:
    """Put back what `write_file` replaced. Raises `OSError` when that is not possible."""
    if result.previous is None:
        result.path.unlink(missing_ok=True)
    else:
        replace_content(result.path, result.previous, result.mode)


def replace_content(place: Path, content: bytes, mode: int | None) -> None:
    """Give a file new content in one step: others see the old or the new, never a part."""
    place = place.resolve()  # a link stays a link; what it points to is replaced
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{place.name[:50]}.{uuid.uuid4().hex[:12]}")
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            draft.chmod(mode)
        draft.replace(place)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _before(place: Path, max_size: int) -> tuple[bytes | None, int | None]:
    try:
        found = place.stat()
    except FileNotFoundError:
        return None, None
    except OSError as error:
        raise ToolError(f"{place} cannot be written: {error.strerror}.") from None
    return _read(place, max_size), stat.S_IMODE(found.st_mode)


def _read(place: Path, max_size: int) -> bytes:
    try:
        found = place.stat()
        if stat.S_ISDIR(found.st_mode):
            raise ToolError(
                f"{place} is a folder; it holds: {', '.join(sorted(os.listdir(place))[:100]) or 'nothing'}."
            )
        if not stat.S_ISREG(found.st_mode):
            raise ToolError(f"{place} is not a plain file.")
        if found.st_size > max_size:
            raise ToolError(f"{place} has {found.st_size:,} bytes; at most {max_size:,} are handled here.")
        return place.read_bytes()
    except OSError as error:
        raise ToolError(f"{place} cannot be read: {error.strerror}.") from None


def _inside(root: str | None, path: str) -> Path:
    if "\0" in path or not path:
        raise ToolError("That is no path.")
    place = Path(root or ".", path).expanduser()
    if root is not None and not place.resolve().is_relative_to(Path(root).resolve()):
        raise ToolError(f"{path} is outside of the folder that may be used.")
    return place


read_file, write_file = make_files()
