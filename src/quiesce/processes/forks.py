"""What happens to TERM when a tool forks: in the child, it ends the process at once, as in any other program.

The child gets the default handler back. Python's own would only note the signal, which C code that is about to wait
does not see: a child of a `multiprocessing.Pool` that was told to end waited for ever. TERM is blocked until then,
because Python forgets the signals that a child got before its fork was complete.

In the parent, a TERM that came during the fork is raised when the fork is over: the hooks of a fork swallow what is
raised in them.
"""

from __future__ import annotations

import _thread
import functools
import os
import signal
import threading
from types import FrameType
from typing import Any, Final, Protocol


class Terminable(Protocol):
    """A worker, as far as it matters here."""

    def on_term(self, _: int, __: FrameType | None, /) -> None:
        """The handler of TERM."""

    def on_fork_over(self, _: int, __: FrameType | None, /) -> None:
        """The handler of `FORK_OVER`: raises what a TERM during the fork has to raise, if one came."""


# No process sends this signal. Its handler is called after each fork, in the frame that forked.
FORK_OVER: Final = int(getattr(signal, "SIGRTMAX", signal.SIGURG))


class Forks:
    """Handles TERM around the forks of one worker process."""

    def __init__(self, worker: Terminable) -> None:
        self._worker: Final = worker
        self._masks: Final[dict[int, Any]] = {}
        self._in_progress: Final[list[None]] = []
        # The hooks that begin and end the state "forking" are C functions: no signal is handled inside of one.
        # `before` hooks run last to first, the others first to last, so these two enclose the hooks in Python.
        begin: Any = functools.partial(self._in_progress.append, None)
        end: Any = self._in_progress.pop
        os.register_at_fork(before=self._begin, after_in_parent=self._end, after_in_child=self._let_go)
        os.register_at_fork(before=begin, after_in_parent=end, after_in_child=self._in_progress.clear)
        # Also a C function, of the documented module `_thread`: what its handler raises shows in the frame that forked.
        # `signal.raise_signal`, `signal.pthread_kill` and `os.kill` raise at once, in the hook, where that is lost. So
        # would a TERM that comes while a hook in Python looks whether one has come: nothing is looked at here.
        signal.signal(FORK_OVER, worker.on_fork_over)
        over: Any = functools.partial(_thread.interrupt_main, FORK_OVER)  # pyright: ignore[reportArgumentType]
        os.register_at_fork(after_in_parent=over)

    @property
    def in_progress(self) -> bool:
        """Whether a thread is in a fork: what a signal raises now could be lost in a hook."""
        return bool(self._in_progress)

    def _begin(self) -> None:
        self._masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))

    def _end(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.pop(threading.get_ident()))

    def _let_go(self) -> None:
        if signal.getsignal(signal.SIGTERM) == self._worker.on_term:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.pop(threading.get_ident()))
