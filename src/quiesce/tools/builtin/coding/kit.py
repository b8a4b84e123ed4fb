"""`coding_tools`: the tools of a coding agent, for one folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from ....errors import ConfigurationError
from ....run_context import RunContext
from ...tool import Tool
from ..files import MAX_SIZE, make_files_in
from ..folder import Folder, RunFolder
from ..programs import make_shell_in
from .edit import make_edit_file
from .git_snapshot import GitSnapshot
from .listing import make_list_files
from .processes import make_process_tools
from .search import make_search_files
from .snapshot import CopySnapshot, is_in_git
from .undoable_shell import make_undoable

ApprovalScope: TypeAlias = Literal["writes", "all", "none"]
SnapshotKind: TypeAlias = Literal["copy", "git"]

_APPROVE: Final = ("writes", "all", "none")
_READING: Final = frozenset(("read_file", "list_files", "search_files", "read_process", "stop_process"))


def coding_tools(
    root: str | Callable[[RunContext[Any]], str],
    *,
    approve: ApprovalScope = "writes",
    snapshot: SnapshotKind | None = None,
    sandbox: bool = False,
    max_size: int = MAX_SIZE,
) -> list[Tool]:
    """The tools of a coding agent for the folder `root`, each with a stop policy, and an undo where that is possible.

    read_file, list_files, search_files      they change nothing
    edit_file, write_file                    with an undo and a diff as preview
    shell                                    one command, in `root`
    start_process, read_process, write_process, stop_process
                                             programs that go on in the background, until the task ends

    `root` may be a function: it is called in each tool call, with the run's context, and returns the folder, such as
    that of `ctx.owner`. Nothing else decides who may use a folder, so it may not depend on what the model says.
    `approve` says which calls a person decides about: `"writes"` (all that change something), `"all"` or `"none"`.
    `snapshot` gives `shell` an undo. `"copy"`: the files are copied before each command and compared after it. `"git"`:
    git does that, without files that it ignores; the user's index stays as it is.
    `sandbox` runs commands and processes under `bwrap`: no network, and everything read-only but the folder.
    `max_size` is the size of the largest file that is read, in bytes. The file tools stay in `root`; programs have all
    rights of their user, unless they are in a sandbox. Raises `ConfigurationError` when `root` is no folder.
    """
    if approve not in _APPROVE:
        raise ConfigurationError(f"approve={approve!r} is not possible.", todo=f"Use one of: {', '.join(_APPROVE)}.")
    folder = RunFolder(root) if callable(root) else Folder(root)
    if not callable(root) and not folder.exists:
        raise ConfigurationError(f"There is no folder {root!r}.", todo="Make it first.")
    shell = make_shell_in(lambda: folder.root, sequential=True, sandbox=sandbox)
    if snapshot is not None:
        shell = _undoable(shell, folder, snapshot, max_size)
    tools = [
        *make_files_in(folder, max_size),
        make_list_files(folder),
        make_search_files(folder, max_size),
        make_edit_file(folder, max_size),
        shell,
        *make_process_tools(folder, sandbox=sandbox),
    ]
    return [each.with_(requires_approval=True) if _needs_approval(each, approve) else each for each in tools]


def _undoable(shell: Tool, folder: Folder, snapshot: str, max_size: int) -> Tool:
    match snapshot:
        case "copy":
            return make_undoable(shell, lambda _: CopySnapshot(folder, max_size))
        case "git" if shutil.which("git") and (isinstance(folder, RunFolder) or is_in_git(folder.root)):
            return make_undoable(shell, lambda ctx: GitSnapshot(folder, max_size, ctx))
        case "git":
            raise ConfigurationError(
                f"{folder.root} is no git repository, or git is not installed.", todo="Use snapshot='copy'."
            )
        case _:
            raise ConfigurationError(
                f"snapshot={snapshot!r} is not possible.", todo="Use 'copy', 'git', or None for no snapshots."
            )


def _needs_approval(tool: Tool, approve: ApprovalScope) -> bool:
    return approve == "all" or (approve == "writes" and tool.name not in _READING)
