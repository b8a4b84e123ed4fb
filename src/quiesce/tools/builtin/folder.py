"""Files below one folder, which no path and no symbolic link leaves.

A path is walked folder by folder, each opened relative to the one before and never through a link; links are read and
followed here. So a link that another process swaps in while a path is being checked leads nowhere: there is no moment
between a check and a use.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import uuid
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final

from ...errors import ToolError
from ...run_context import RunContext
from ..current_run import current_run

_MAX_LINKS: Final = 40
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# A pipe would wait for its other end.
_FILE: Final = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0)


# What `files` does not look into.
_LEFT_OUT: Final = frozenset((".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"))


class Folder:
    """The files below `root`. Without `root` every path is allowed, and relative ones begin in the current folder."""

    def __init__(self, root: str | None) -> None:
        self._fixed: Final = os.sep if root is None else os.path.realpath(root), root and os.path.abspath(root)

    def _places(self) -> tuple[str, str | None]:
        """The real path of the folder, and the path as it was given; None without a limit."""
        return self._fixed

    @property
    def root(self) -> str:
        """The real path of the folder."""
        return self._places()[0]

    def key(self, path: str) -> str:
        """The same for every spelling of a path: it orders the calls that touch one file."""
        return os.path.realpath(self.absolute(path))

    def absolute(self, path: str) -> str:
        """The path from the root of the file system. Raises `ToolError` for what is no path, or outside."""
        return os.path.join(self.root, *self._parts(path))

    @property
    def exists(self) -> bool:
        """Whether the folder is there."""
        return os.path.isdir(self.root)

    @property
    def limit(self) -> str | None:
        """The folder that no path leaves; None without such a limit."""
        real, given = self._places()
        return None if given is None else real

    def read(self, path: str, max_size: int) -> tuple[bytes, int]:
        """The content and the mode of a file. Raises `ToolError` when it cannot be read, or is larger."""
        try:
            with self._parent(path) as (parent, name):
                return read_opened(parent, name, path, max_size)
        except OSError as error:
            raise ToolError(f"{path} cannot be read: {error.strerror}.") from None

    def read_if_there(self, path: str, max_size: int) -> tuple[bytes | None, int | None]:
        """The same; None for a file that is not there."""
        try:
            with self._parent(path) as (parent, name):
                return read_opened(parent, name, path, max_size)
        except FileNotFoundError:
            return None, None
        except OSError as error:
            raise ToolError(f"{path} cannot be written: {error.strerror}.") from None

    def files(self, path: str) -> Generator[tuple[str, int, str]]:
        """Every plain file below a path, in order: its path from the root, the open folder that it is in, and its name.

        Links are not followed, and folders of version control and of caches are left out. Raises `ToolError`.
        """
        shown = os.path.relpath(self.absolute(path), self.root)
        try:
            with self._parent(path) as (parent, name), _opened(name, parent) as start:
                if stat.S_ISREG(os.fstat(start).st_mode):
                    yield shown, parent, name
                    return
                for place, folders, names, folder in os.fwalk(".", dir_fd=start):
                    folders[:] = sorted(set(folders) - _LEFT_OUT)
                    for each in sorted(names):
                        if _is_file(each, folder):
                            yield os.path.normpath(os.path.join(shown, place, each)), folder, each
        except OSError as error:
            raise ToolError(f"{path} cannot be read: {error.strerror}.") from None

    def folders(self) -> set[str]:
        """The folders below the root, as paths from there, with the same ones left out as in `files`."""
        found: set[str] = set()
        for place, folders, _ in os.walk(self.root):
            folders[:] = set(folders) - _LEFT_OUT
            found.update(os.path.relpath(os.path.join(place, each), self.root) for each in folders)
        return found

    def digest(self, path: str) -> str | None:
        """The SHA-256 of a file's content; None when there is no such file. Raises `OSError` or `ToolError`."""
        try:
            with self._parent(path) as (parent, name), open(os.open(name, _FILE, dir_fd=parent), "rb") as file:
                is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                return hashlib.file_digest(file, "sha256").hexdigest() if is_file else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def replace(self, path: str, content: bytes, mode: int | None) -> tuple[str, ...]:
        """Replace a file in one step: a reader sees the old or the new content, never a part.

        Returns the folders that were made for it. Raises `OSError` or `ToolError`.
        """
        made: list[str] = []
        with self._parent(path, made) as (parent, name):
            temporary = f".{name[:50]}.{uuid.uuid4().hex[:12]}"
            try:
                new = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666, dir_fd=parent)
                with open(new, "wb") as file:
                    if mode is not None:
                        os.fchmod(new, mode)
                    file.write(content)
                    file.flush()
                    os.fsync(new)
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
                raise
        return tuple(made)

    def remove(self, path: str) -> None:
        """Remove a file. Raises `OSError` or `ToolError`."""
        with self._parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def remove_empty(self, folders: tuple[str, ...]) -> None:
        """Remove these folders, the last one first, as far as they are empty."""
        for folder in reversed(folders):
            with suppress(OSError, ToolError), self._parent(folder) as (parent, name):
                os.rmdir(name, dir_fd=parent)

    @contextmanager
    def _parent(self, path: str, made: list[str] | None = None) -> Generator[tuple[int, str]]:
        """A descriptor of the folder that a path is in, and the last name. With `made`, missing folders are made."""
        if sys.platform == "win32":
            raise ToolError("The file tools do not work on Windows: a path cannot be kept inside of its folder there.")
        walk = _Walk(self.root, path, made)
        try:
            name = walk.go(self._parts(path))
            yield walk.folders[-1], name
        finally:
            walk.close()

    def _parts(self, path: str) -> list[str]:
        """The names on the way from the root. Raises `ToolError` for what is no path, or outside."""
        if "\0" in path or not path:
            raise ToolError("That is no path.")
        real, given = self._places()
        if given is None:
            return _split(os.path.abspath(os.path.expanduser(path)))
        return relative_parts(path, (real, given), path)


class RunFolder(Folder):
    """The folder of the run that the caller is a part of, such as that of the run's owner.

    `find` is called with the run's context, in each tool call, and returns a path.
    """

    def __init__(self, find: Callable[[RunContext[Any]], str]) -> None:
        super().__init__(None)
        self._find: Final = find

    def _places(self) -> tuple[str, str | None]:
        run = current_run.get()
        if run is None:
            raise ToolError("The folder depends on the run, and this is not part of a run.")
        given = os.path.abspath(self._find(run.context))
        return os.path.realpath(given), given


class _Walk:
    """The open folders from the root to where a path has led so far."""

    def __init__(self, root: str, path: str, made: list[str] | None) -> None:
        self._root: Final = root
        self._path: Final = path
        self._made: Final = made
        self._names: Final[list[str]] = []
        self.folders: Final = [os.open(root, _FOLDER)]

    def go(self, parts: list[str]) -> str:
        """Go to the folder that the path ends in. Returns the last name, which is no link."""
        ahead = deque(parts)
        links = 0
        while ahead:
            name = ahead.popleft()
            if name == "..":
                self._up()
                continue
            target = self._link(name)
            if target is not None:
                links += 1
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if os.path.isabs(target):
                    self._back_to_root()
                    ahead.extendleft(reversed(relative_parts(target, (self._root,), self._path)))
                else:
                    ahead.extendleft(reversed(_split(target)))
            elif ahead:
                self._down(name)
            else:
                return name
        return "."

    def close(self) -> None:
        """Close the folders."""
        while self.folders:
            os.close(self.folders.pop())

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.folders[-1])
        except OSError:  # not a link, or not there
            return None

    def _down(self, name: str) -> None:
        here = self.folders[-1]
        try:
            folder = os.open(name, _FOLDER | _NO_LINK, dir_fd=here)
        except FileNotFoundError:
            if self._made is None:
                raise
            os.mkdir(name, dir_fd=here)
            self._made.append(os.path.join(self._root, *self._names, name))
            folder = os.open(name, _FOLDER | _NO_LINK, dir_fd=here)
        self.folders.append(folder)
        self._names.append(name)

    def _up(self) -> None:
        if len(self.folders) == 1:
            if self._root == os.sep:
                return
            raise _outside(self._path)
        os.close(self.folders.pop())
        self._names.pop()

    def _back_to_root(self) -> None:
        while len(self.folders) > 1:
            self._up()


def relative_parts(path: str, roots: tuple[str, ...], shown: str) -> list[str]:
    """The names on the way from one of the roots, which are spellings of one folder. Raises `ToolError` if outside."""
    if not os.path.isabs(path):
        return _split(path)
    for root in roots:
        if path == root or path.startswith(root.rstrip(os.sep) + os.sep):
            return _split(path[len(root) :])
    raise _outside(shown)


def _split(path: str) -> list[str]:
    return [part for part in path.split(os.sep) if part not in ("", ".")]


def _outside(path: str) -> ToolError:
    return ToolError(f"{path} is outside of the folder that may be used.")


def _is_file(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:  # it was removed meanwhile
        return False


@contextmanager
def _opened(name: str, parent: int) -> Generator[int]:
    handle = os.open(name, _FILE, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def read_opened(parent: int, name: str, path: str, max_size: int) -> tuple[bytes, int]:
    """The content and the mode of a file in an open folder. Raises `OSError` or `ToolError`."""
    with _opened(name, parent) as opened:
        status = os.fstat(opened)
        if stat.S_ISDIR(status.st_mode):
            names = ", ".join(sorted(os.listdir(opened))[:100])
            raise ToolError(f"{path} is a folder; it holds: {names or 'nothing'}.")
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{path} is not a plain file.")
        with open(opened, "rb", closefd=False) as file:  # it may grow meanwhile, and files of /proc say size 0
            content = b"" if status.st_size > max_size else file.read(max_size + 1)
        if max(status.st_size, len(content)) > max_size:
            size = f"{status.st_size:,}" if status.st_size > max_size else "more"
            raise ToolError(f"{path} has {size} bytes; at most {max_size:,} are handled here.")
        return content, stat.S_IMODE(status.st_mode)
