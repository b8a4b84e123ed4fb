"""What a call finds around it in a worker process: the same as in the host, whatever the call before it did.

The host describes its own with each call. What a description cannot put back (a timer that goes off later, a handler of
a signal, a limit) makes the worker one that is not used again.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self

# Those that programs handle or ignore; to ask for each that there is would take longer than a call should.
_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGCHLD", "SIGALRM", "SIGPIPE", "SIGUSR1", "SIGUSR2")
_SIGNALS: Final = [int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)]
_TIMERS: Final = [
    getattr(signal, name) for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF") if hasattr(signal, name)
]


class CallEnvironment(NamedTuple):
    """A process as a function in it sees it. `cwd` is None when the folder is gone."""

    cwd: str | None
    env: dict[bytes, bytes]
    path: list[str]
    log_levels: dict[str, int]

    @classmethod
    def here(cls, *, inherit_env: bool | Collection[str] = True) -> Self:
        """Those of this process; of the environment, what a call is to inherit."""
        cwd = None
        with suppress(OSError):
            cwd = os.getcwd()
        from ...processes.environment import program_environment, trace_variables  # a worker has no use for them

        if inherit_env is True:
            env = _environment() | _encoded(trace_variables())
        else:
            env = _encoded(program_environment(None, inherit=inherit_env))
        return cls(cwd, env, [each for each in sys.path if isinstance(each, str)], _log_levels())  # pyright: ignore[reportUnnecessaryIsInstance]

    def go_there(self) -> None:
        """Enter the folder. Raises `OSError` when that is not possible."""
        if self.cwd is None:
            _go_nowhere()
        else:
            os.chdir(self.cwd)

    def restore(self) -> None:
        """Make the rest of this process look like that."""
        if _environment() != self.env:
            os.environb.clear()
            os.environb.update(self.env)
        if sys.path != self.path:
            sys.path[:] = self.path
            importlib.invalidate_caches()
        before = _log_levels()
        if before != self.log_levels:
            for name in {**before, **self.log_levels}:
                logging.getLogger(name).setLevel(self.log_levels.get(name, logging.NOTSET))


def _environment() -> dict[bytes, bytes]:
    """The environment as bytes: decoding all of it would take a tenth of the time of a call."""
    if not isinstance(os.environ, type(os.environb)):  # a program has put another mapping in its place
        return _encoded(os.environ)
    return dict(os.environb)


def _encoded(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}


def _log_levels() -> dict[str, int]:
    """The level of each logger that has one of its own; the root's is under the empty name."""
    known = list(logging.root.manager.loggerDict.items())  # other threads add to it
    levels = {name: logger.level for name, logger in known if isinstance(logger, logging.Logger) and logger.level}
    return {"": logging.root.level, **levels}


def _go_nowhere() -> None:
    """Be in a folder that is gone, as the host is: a relative path leads to nothing, rather than to another place."""
    import tempfile

    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def lasting() -> tuple[Any, ...]:
    """What a function may have changed in this process for good. The same as before it, if it has not."""
    import resource

    umask = os.umask(0o077)
    os.umask(umask)
    return (
        umask,
        [signal.getsignal(number) for number in _SIGNALS],
        [signal.getitimer(timer)[0] > 0 for timer in _TIMERS],
        [resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)],
    )
