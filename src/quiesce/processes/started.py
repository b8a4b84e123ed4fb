"""Programs that a tool starts by itself, with `subprocess` or with asyncio: which ones they are, and how they end.

They have no supervisor. Python tells an audit hook of each `subprocess.Popen`, in the context of the code that makes
it; uvloop, which forks by itself, tells the fork hooks. What a program itself has started is found below it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final

from ..cancellation import BoundedShield
from .kill_tree import LINUX, children_of_thread, descendants, program_name, send, terminate_tree

started_by: Final[ContextVar[list[StartedProgram] | None]] = ContextVar("quiesce_started_programs", default=None)
"""Where the programs are noted that the current code starts; None outside of tools."""


class StartedProgram:
    """A program that a tool has started: a `Popen`, or the number of a child process."""

    def __init__(self, name: str, process: subprocess.Popen[Any] | int, *, in_loop: bool) -> None:
        self._name: Final = name
        self._process: Final = process
        self._in_loop: Final = in_loop

    @property
    def pid(self) -> int | None:
        """The number of its process; None when it could not be started."""
        return self._process if isinstance(self._process, int) else getattr(self._process, "pid", None)

    @property
    def label(self) -> str:
        """Its name on the receipt."""
        name = self._name if self.pid is None or self._name else program_name(self.pid)
        return f"process {self.pid} ({name[:80]})"

    @property
    def running(self) -> bool:
        """Whether it has not ended. Its exit status is left to the code that started it."""
        pid, popen = self.pid, None if isinstance(self._process, int) else self._process
        if pid is None or (popen is not None and popen.returncode is not None):
            return False
        if sys.platform == "win32":
            return popen is not None and popen.poll() is None
        try:
            if hasattr(os, "waitid"):
                return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            os.kill(pid, 0)
        except (ChildProcessError, ProcessLookupError):
            return False
        return True

    def kill(self) -> None:
        """End it at once, with all that it started."""
        pid = self.pid
        if pid is not None and self.running:
            send((pid, *descendants(pid)), signal.SIGKILL)

    def reap(self) -> None:
        """Let the system forget a program that has ended. An event loop does that for its own."""
        if not self._in_loop and not isinstance(self._process, int):
            self._process.poll()

    def kill_and_wait(self, seconds: float) -> None:
        """End it at once, and block this thread until it has ended: for a loop that was closed."""
        pid = self.pid
        if pid is None or not self.running:
            return
        handle = _handle(pid)
        self.kill()
        if handle is not None:
            poll = select.poll()  # not `select`, which refuses high descriptor numbers
            poll.register(handle, select.POLLIN)
            poll.poll(seconds * 1000)
            os.close(handle)
        self.reap()


class _Ending:
    """One process while it is ended: held by a descriptor where the system has them, so that it is no other one."""

    def __init__(self, pid: int) -> None:
        self.pid: Final = pid
        self._loop: Final = asyncio.get_running_loop()
        self.ended: Final[asyncio.Future[None]] = self._loop.create_future()
        self._handle: int | None = _handle(pid)
        if self._handle is not None:
            self._loop.add_reader(self._handle, self._on_end)
        else:
            threading.Thread(target=self._wait, name=f"quiesce-ending-{pid}", daemon=True).start()

    def send(self, number: int) -> None:
        if self._handle is None:
            send((self.pid,), number)
        else:
            with suppress(OSError):  # it has ended
                signal.pidfd_send_signal(self._handle, number)

    def close(self) -> None:
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

    def _on_end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        self.close()

    def _wait(self) -> None:
        """In a thread, where there are no descriptors for processes: wait for a child, and leave its status."""
        with suppress(OSError, AttributeError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._on_end)


def _handle(pid: int) -> int | None:
    """A descriptor of a process, which can be read from when it has ended. None where there are none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


async def end_programs(programs: Iterable[StartedProgram], grace: float, exit_grace: float) -> None:
    """End programs with all that they started: TERM now, KILL after `grace` seconds. Cancelling it changes nothing.

    Returns when they have ended, or `exit_grace` seconds after the KILL. Raises `CancelledError` when it was cancelled.
    """
    living = [each for each in programs if each.running]
    roots = [each.pid for each in living if each.pid is not None]
    endings = {pid: _Ending(pid) for root in roots for pid in (root, *descendants(root))}
    shield = BoundedShield("ending the programs of a tool")
    try:
        for root in roots:
            terminate_tree(root, root)
        await shield.wait([each.ended for each in endings.values()], seconds=grace)
        late = {pid for root in roots for pid in descendants(root)} - endings.keys()
        endings |= {pid: _Ending(pid) for pid in late}  # started meanwhile
        for each in endings.values():
            each.send(signal.SIGKILL)
        await shield.wait([each.ended for each in endings.values()], seconds=exit_grace)
    finally:
        for each in endings.values():
            each.close()
        for each in living:
            each.reap()
    if shield.interrupted:
        raise asyncio.CancelledError


# --- Noticing them ----------------------------------------------------------------------------------------------------


@functools.cache
def watch_programs() -> None:
    """Note the programs that code with `started_by` starts. An audit hook stays for the life of the process."""
    sys.addaudithook(_on_audit)
    if LINUX:
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)


def _on_audit(event: str, details: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        programs = started_by.get()
        if programs is not None:
            # The event comes from a method that the constructor calls.
            frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # documented
            process: Any = frame.f_locals.get("self")
            if isinstance(process, subprocess.Popen):
                programs.append(StartedProgram(_name(details[1]), process, in_loop=_is_called_by_asyncio(frame)))  # pyright: ignore[reportUnknownArgumentType]


def _is_called_by_asyncio(frame: FrameType | None) -> bool:
    while frame is not None and "self" in frame.f_locals and isinstance(frame.f_locals["self"], subprocess.Popen):
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("asyncio.")


def _name(argv: Any) -> str:
    return os.fsdecode(argv if isinstance(argv, str | bytes | os.PathLike) else next(iter(argv), ""))  # pyright: ignore[reportUnknownArgumentType]


_forking: Final[dict[int, frozenset[int]]] = {}
"""The children of each thread that is about to fork."""


def _before_fork() -> None:
    # Other forks are those of `multiprocessing`, whose pools may serve many calls: they are not this call's alone.
    if started_by.get() is not None and _runs_in_uvloop():
        _forking[threading.get_native_id()] = children_of_thread()


def _after_fork() -> None:
    before, programs = _forking.pop(threading.get_native_id(), None), started_by.get()
    if before is not None and programs is not None:
        programs.extend(StartedProgram("", pid, in_loop=True) for pid in children_of_thread() - before)


def _runs_in_uvloop() -> bool:
    try:
        return type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    except RuntimeError:
        return False
