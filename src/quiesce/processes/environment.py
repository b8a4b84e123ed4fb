"""The environment of the processes that tools start, and how the host's own is kept from them.

A process inherits its parent's environment unless told otherwise, with every key in it. So programs and MCP servers get
a small part of it that holds no secret, and what the developer names. On Linux a process can also read what another
process of the same user was started with, in /proc; `hide_environment()` removes that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from ..errors import ToolError

_NO_TRACE: Final[Mapping[str, str]] = {}
_trace: Final[ContextVar[Mapping[str, str]]] = ContextVar("quiesce trace", default=_NO_TRACE)
# What programs need to find others, their user's files, and the user's language.
_HARMLESS: Final = frozenset(("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR"))
_LOCALE: Final = "LC_"
# What a Python interpreter and the loader need to start in the same way as this process did.
_INTERPRETER: Final = frozenset(
    (
        "DYLD_FALLBACK_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "PYTHONCOERCECLOCALE",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "PYTHONHOME",
        "PYTHONIOENCODING",
        "PYTHONMALLOC",
        "PYTHONPLATLIBDIR",
        "PYTHONPYCACHEPREFIX",
        "PYTHONUTF8",
        "PYTHON_GIL",
    )
)
# A shell function in a variable, which an old bash would run.
_SHELL_FUNCTION: Final = "()"
_PR_SET_DUMPABLE: Final = 4
# The places of `env_start` and `env_end` in /proc/<pid>/stat, counted from the field after the name.
_ENV_START, _ENV_END = 47, 48


def small_environment() -> dict[str, str]:
    """The part of this process's environment that any program may have: PATH, HOME, the language and the like."""
    return {
        name: value
        for name, value in os.environ.items()
        if _is_harmless(name) and not value.startswith(_SHELL_FUNCTION)
    }


def interpreter_environment() -> dict[str, str]:
    """`small_environment()` with the variables of the interpreter, so that a new Python starts as this one did."""
    kept = {name: value for name, value in os.environ.items() if name in _INTERPRETER}
    return {**small_environment(), **kept}


def set_trace_variables(variables: Mapping[str, str]) -> None:
    """Give these variables to all processes that this task starts from now on, so that they continue a trace."""
    _trace.set(variables)


def trace_variables() -> Mapping[str, str]:
    """The environment variables that let a process of this task continue the trace; empty without a trace."""
    return _trace.get()


def program_environment(given: Mapping[str, str] | None, *, inherit: bool | Collection[str]) -> dict[str, str]:
    """The environment of a program: the small one, what it is to inherit beside it, and on top what is `given`.

    `inherit` is a list of names, or True for all. Raises `ToolError` for one string, which is no list.
    """
    if isinstance(inherit, str):
        raise ToolError(f"inherit_env is True, or a list of names: [{inherit!r}].")
    if inherit is True:
        inherited = dict(os.environ)
    else:
        inherited = {name: os.environ[name] for name in inherit or () if name in os.environ}
    return {**small_environment(), **inherited, **trace_variables(), **(given or {})}


def hide_environment() -> bool:
    """Keep other processes of the same user from reading this one's environment. Whether that was possible.

    `os.environ`, and what child processes inherit, stay as they are. What goes is the copy that /proc/<pid>/environ
    shows: the variables that this process was started with, all but the harmless ones. Where the user is not root, the
    process is also made one whose memory no other may read: no debugger, no core dump. Linux only.

    Call it before the first tool runs. `quiesce serve`, `quiesce run` and `quiesce chat` do. Processes above this one
    (a shell, a process manager) have environments of their own, which this does not reach.
    """
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # only a command of the command line needs it

    try:
        for start, size in _secrets_in(*_first_environment()):
            ctypes.memset(start, 0, size)
        return ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    except (OSError, ValueError, IndexError, AttributeError):  # there is no /proc, so there is nothing to read in it
        return False


def _is_harmless(name: str) -> bool:
    return name in _HARMLESS or name.startswith(_LOCALE)


def _first_environment() -> tuple[int, int]:
    """The start and end address of the environment that the process was started with, which /proc shows."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[_ENV_START]), int(fields[_ENV_END])


def _secrets_in(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The address and size of each value there that is not harmless. The C library has a copy of its own by then."""
    import ctypes

    place = start
    for entry in ctypes.string_at(start, end - start).split(b"\0") if 0 < start < end else ():
        name, equals, value = entry.partition(b"=")
        known = os.fsdecode(name)
        if equals and value and not _is_harmless(known) and known not in _INTERPRETER:
            if known in os.environ:  # its value now, which may be another one
                os.putenv(known, os.environ[known])
            yield place + len(name) + 1, len(value)
        place += len(entry) + 1
