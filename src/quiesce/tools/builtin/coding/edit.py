"""`edit_file`: exact replacements in one file, all of them or none.

A stop waits for an edit, as for a write: it takes milliseconds and happens in one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....errors import ToolError
from ...tool import Tool
from ...tool_return import ToolReturn
from ..diff import unified_diff
from ..files import one_path_in_order, undo_write, write
from ..folder import Folder


@dataclass(frozen=True)
class Edit:
    """One replacement: `old` is there exactly once, or `all` is true."""

    old: str
    new: str
    all: bool = False


def make_edit_file(folder: Folder, max_size: int) -> Tool:
    """A tool that replaces text in a file."""

    def edit_file(path: str, edits: list[Edit]) -> ToolReturn:
        """Replace parts of a text file, one after the other. If one cannot be replaced, the file stays as it is.

        Args:
            path: the file
            edits: what to replace: the exact old text, which must be there exactly once, and the new text; with all,
                every occurrence is replaced
        """
        content, mode = folder.read(path, max_size)
        before = _text(path, content)
        after = edited(path, before, edits)
        written = write(folder, path, after.encode(), (content, mode))
        return ToolReturn(unified_diff(path, before, after), data=written)

    def preview(arguments: dict[str, Any]) -> str:
        before = _text(arguments["path"], folder.read(arguments["path"], max_size)[0])
        return unified_diff(arguments["path"], before, edited(arguments["path"], before, arguments["edits"]))

    tool = Tool(edit_file, on_stop="finish", grace=10, sequential=one_path_in_order(folder), preview=preview)
    tool.undo(undo_write)
    return tool


def edited(path: str, text: str, edits: list[Edit]) -> str:
    """The text after the edits. Raises `ToolError`, in words for the model, when one is not possible."""
    if not edits:
        raise ToolError("There is no edit.")
    for number, edit in enumerate(edits, 1):
        old, new = edit.old, edit.new
        if "\r\n" in text and "\r" not in old:  # models write LF
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        count = text.count(old) if old else 0
        if count == 0:
            raise ToolError(f"Edit {number}: its old text is not in {path}. Nothing was changed. Read the file again.")
        if count > 1 and not edit.all:
            raise ToolError(
                f"Edit {number}: its old text is {count} times in {path}. Nothing was changed. Give more of the text"
                " around it, or set all to true."
            )
        text = text.replace(old, new)
    return text


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not text in UTF-8.") from None
