"""`list_files`: the files below a folder. Reading changes nothing, so a stop does not wait for it."""

from __future__ import annotations

from fnmatch import fnmatch
from itertools import islice
from typing import Final

from ...context import ToolContext
from ...tool import Tool
from ..folder import Folder

_MAX_FILES: Final = 1000


def make_list_files(folder: Folder) -> Tool:
    """A tool that lists the files below a folder."""

    def list_files(ctx: ToolContext, path: str = ".", pattern: str = "*") -> str:
        """List the files below a folder, one path per line. Folders of version control and caches are left out.

        Args:
            path: the folder
            pattern: a pattern for the paths or the names, such as *.py or src/*
        """
        found: list[str] = []
        for name in islice(_matching(folder, path, pattern), _MAX_FILES + 1):
            ctx.token.raise_if_cancelled()
            found.append(name)
        if len(found) > _MAX_FILES:
            found[_MAX_FILES] = f"[more than {_MAX_FILES} files: give another path or pattern]"
        return "\n".join(found) or "There are no such files."

    return Tool(list_files, on_stop="abandon", grace=0.25)


def _matching(folder: Folder, path: str, pattern: str):
    for shown, _, name in folder.files(path):
        if fnmatch(shown, pattern) or fnmatch(name, pattern):
            yield shown
