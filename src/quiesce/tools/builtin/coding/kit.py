"""`coding_tools`: the tools of a coding agent, for one folder."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ....errors import ConfigurationError
from ...tool import Tool
from ..files import MAX_SIZE, make_files
from ..folder import Folder
from ..programs import make_shell
from .edit import make_edit_file
from .listing import make_list_files
from .processes import make_process_tools
from .search import make_search_files
from .undoable_shell import make_undoable

Approve: TypeAlias = Literal["writes", "all", "none"]
Snapshot: TypeAlias = Literal["copy"]

_APPROVE: Final = ("writes", "all", "none")
_READING: Final = frozenset(("read_file", "list_files", "search_files", "read_process", "stop_process"))


def coding_tools(
    root: str, *, approve: Approve = "writes", snapshot: Snapshot | None = None, max_size: int = MAX_SIZE
) -> list[Tool]:
    """The tools of a coding agent for the folder `root`, each with a stop policy, and an undo where that is possible.

    read_file, list_files, search_files      they change nothing
    edit_file, write_file                    with an undo and a diff as preview
    shell                                    one command, in `root`
    start_process, read_process, write_process, stop_process
                                             programs that go on in the background, until the run ends

    `approve` says which calls a person decides about: `"writes"` (all that change something), `"all"` or `"none"`.
    `snapshot="copy"` gives `shell` an undo: the files are copied before each command and compared after it.
    `max_size` is the size of the largest file that is read, in bytes. The file tools stay in `root`; programs have all
    rights of their user. Raises `ConfigurationError` when `root` is no folder.
    """
    if approve not in _APPROVE:
        raise ConfigurationError(f"approve={approve!r} is not possible.", todo=f"Use one of: {', '.join(_APPROVE)}.")
    folder = Folder(root)
    if not folder.exists:
        raise ConfigurationError(f"There is no folder {root!r}.", todo="Make it first.")
    if snapshot not in (None, "copy"):
        raise ConfigurationError(
            f"snapshot={snapshot!r} is not possible.", todo="Use 'copy', or None for no snapshots."
        )
    shell = make_shell(cwd=folder.root, sequential=True)
    tools = [
        *make_files(root, max_size=max_size),
        make_list_files(folder),
        make_search_files(folder, max_size),
        make_edit_file(folder, max_size),
        shell if snapshot is None else make_undoable(shell, folder, max_size),
        *make_process_tools(folder.root),
    ]
    return [each.with_(requires_approval=True) if _needs_approval(each, approve) else each for each in tools]


def _needs_approval(tool: Tool, approve: Approve) -> bool:
    return approve == "all" or (approve == "writes" and tool.name not in _READING)
