"""`search_files`: lines that match a regular expression, found by ripgrep where it is installed."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Generator, Iterator
from fnmatch import fnmatch
from itertools import islice
from typing import Final

from ....errors import ToolError
from ...context import ToolContext
from ...tool import Tool
from ..folder import Folder, read_opened

_MAX_MATCHES: Final = 200
_MAX_LINE: Final = 300
_MORE: Final = f"[more than {_MAX_MATCHES} matches: give another path or pattern]"
_NONE: Final = "Nothing was found."
_TIMEOUT: Final = 60.0


def make_search_files(folder: Folder, max_size: int) -> Tool:
    """A tool that searches the files below a folder: with `rg` if that is installed, else in Python."""
    ripgrep = shutil.which("rg")
    return _python_search(folder, max_size) if ripgrep is None else _ripgrep_search(folder, max_size, ripgrep)


def _ripgrep_search(folder: Folder, max_size: int, ripgrep: str) -> Tool:
    fixed = (ripgrep, "--no-config", "--line-number", "--no-heading", "--with-filename", "--color=never", "--sort=path")
    limits = (f"--max-columns={_MAX_LINE}", "--max-columns-preview", f"--max-filesize={max_size}")

    async def search_files(ctx: ToolContext, pattern: str, path: str = ".", files: str = "*") -> str:
        """Search files for a regular expression. The result has a line for each match: path:line number:text.

        Args:
            pattern: the regular expression
            path: the folder or file to search
            files: a pattern for the names of the files, such as *.py
        """
        place = _inside(folder, path)
        argv = (*fixed, *limits, "--glob", files, "--regexp", pattern, "--", place)
        ended = await ctx.run_process(argv, cwd=folder.root, timeout=_TIMEOUT, report=False)
        if ended.code not in (0, 1) or ended.timed_out:
            raise ToolError(f"The search failed: {ended.stderr.strip()[:500] or 'it took too long'}")
        return _shown([line.removeprefix(f".{os.sep}") for line in _lines(ended.stdout)])

    return Tool(search_files, on_stop="cancel", grace=0.5)


def _inside(folder: Folder, path: str) -> str:
    """The real path from the root, for a program that follows it by itself. Raises `ToolError` when it is outside."""
    real = folder.key(path)
    if real != folder.root and not real.startswith(folder.root.rstrip(os.sep) + os.sep):
        raise ToolError(f"{path} is outside of the folder that may be used.")
    return os.path.relpath(real, folder.root)


def _python_search(folder: Folder, max_size: int) -> Tool:
    def search_files(ctx: ToolContext, pattern: str, path: str = ".", files: str = "*") -> str:
        """Search files for a regular expression. The result has a line for each match: path:line number:text.

        Args:
            pattern: the regular expression
            path: the folder or file to search
            files: a pattern for the names of the files, such as *.py
        """
        try:
            wanted = re.compile(pattern)
        except re.error as error:
            raise ToolError(f"That is no regular expression: {error}.") from None
        return _shown(list(islice(_matches(ctx, folder, (path, files), wanted, max_size), _MAX_MATCHES + 1)))

    return Tool(search_files, on_stop="abandon", grace=0.25)


def _matches(
    ctx: ToolContext, folder: Folder, where: tuple[str, str], wanted: re.Pattern[str], max_size: int
) -> Generator[str]:
    path, files = where
    for shown, parent, name in folder.files(path):
        ctx.token.raise_if_cancelled()
        if not fnmatch(name, files):
            continue
        try:
            content, _ = read_opened(parent, name, shown, max_size)
        except (OSError, ToolError):  # gone since, not readable, or too large: as ripgrep does, on to the next
            continue
        if b"\0" in content[:8192]:
            continue
        for number, line in enumerate(_lines(content.decode("utf-8", "replace")), 1):
            if wanted.search(line):
                yield f"{shown}:{number}:{line[:_MAX_LINE]}"


def _lines(text: str) -> Iterator[str]:
    """The lines of a text. They end at LF or CRLF only, as for `read_file` and ripgrep."""
    return (line.rstrip("\r\n") for line in io.StringIO(text))


def _shown(lines: list[str]) -> str:
    return "\n".join(lines if len(lines) <= _MAX_MATCHES else [*lines[:_MAX_MATCHES], _MORE]) or _NONE
