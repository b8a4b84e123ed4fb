"""What happens to TERM when a tool forks: in the child, it ends the process at once, as in any other program.

The child gets the default handler back. Python's own would only note the signal, which C code that is about to wait
does not see: a child of a `multiprocessing.Pool` that was told to end waited for ever. TERM is blocked until then,
because Python forgets the signals that a child got before its fork was complete.

In the parent, a TERM that came during the fork is raised when the fork is over: the hooks of a fork swallow what is
raised in them.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import _signal  # not `signal`: each fork would pay for its enumerations
import _thread
import functools
import os
import threading
from types import FrameType
from typing import Any, Final, Protocol


class Terminable(Protocol):
    """A worker, as far as it matters here."""

    def on_term(self, _: int, frame: FrameType | None) -> None:
        """The handler of TERM."""

    @property
    def owes_terminated(self) -> bool:
        """Whether TERM has come, and is still to be raised in the tool."""
        ...


class Forks:
    """Looks after the forks of one worker process."""

    def __init__(self, worker: Terminable) -> None:
        self._worker: Final = worker
        self._main: Final = threading.main_thread().ident
        self._masks: Final[dict[int, Any]] = {}
        self._forking = False
        os.register_at_fork(before=self._begin, after_in_parent=self._end, after_in_child=self._let_go)
        # A C function, and after the others: what it does shows in the frame that forked, and not in that of a hook.
        again: Any = functools.partial(_thread.interrupt_main, self)  # pyright: ignore[reportArgumentType]
        os.register_at_fork(after_in_parent=again)

    def holds(self, frame: FrameType) -> bool:
        """Whether the main thread is in a fork: what is raised in this frame now would be lost."""
        return self._forking or frame.f_code.co_filename == __file__

    def _begin(self) -> None:
        if threading.get_ident() == self._main:
            self._forking = True
        self._masks[threading.get_ident()] = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTERM,))

    def _end(self) -> None:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._masks.pop(threading.get_ident()))
        if threading.get_ident() == self._main:
            self._forking = False

    def _let_go(self) -> None:
        if _signal.getsignal(_signal.SIGTERM) == self._worker.on_term:
            _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._masks.pop(threading.get_ident()))
        self._forking = False

    def __index__(self) -> int:
        """The signal to handle once more after a fork. KILL stands for none: no handler can be set for it."""
        return int(_signal.SIGTERM if self._worker.owes_terminated else _signal.SIGKILL)
