"""A supervisor: the parent of one worker or one program, and of everything that comes loose below it.

It runs no code but this module, so nothing that a tool does can break it. As a subreaper it inherits whatever its
child leaves behind; it says `gone` only when the kernel says that it has no child left, and ends right after. When the
host disappears, even by kill -9, its socket closes, and the supervisor ends its tree in the same way.

    host -> supervisor   a job, once; then ("stop", grace), any number of times, each sooner than the one before
    supervisor -> host   ("started", supervisor, child) or ("failed", error); ("exited", status); ("gone", leftovers)
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn

from .frames import encode_plain, receive
from .kill_tree import (
    LINUX,
    alive_below,
    become_subreaper,
    die_with_parent,
    group_exists,
    kill_children,
    kill_group,
    members,
    send,
    terminate_tree,
)
from .limits import ResourceLimits

# Signals that the fork server and the supervisors ignore: they stay until their children have ended.
IGNORED_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Where there is no subreaper: how often to look whether what was killed is gone.
_LOOK_AGAIN: Final = 0.01


class WorkerJob(NamedTuple):
    """Call a function in a forked process, with its descriptors: channel, stop channel, output, error output."""

    module: str
    function: str


class ProgramJob(NamedTuple):
    """Run a program. Handles: its input, its output and its error output."""

    argv: tuple[str, ...]
    cwd: str | None = None
    env: dict[str, str] | None = None
    limits: ResourceLimits = ResourceLimits()


def supervise(control: socket.socket) -> NoReturn:
    """Do one job to its end. Never returns."""
    supervisor = _Supervisor(control)
    try:
        supervisor.run()
    except BaseException:  # nothing may fall back into the fork server's loop
        os._exit(70)
    os._exit(0)


def _fork_with_default_signals() -> int:
    """Fork a child that takes what it is sent as any program does, from its first moment: a stop may come at once."""
    signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_SIGNALS)
    _set_handlers(signal.SIG_DFL)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            _set_handlers(signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)
    return pid


def _set_handlers(how: signal.Handlers) -> None:
    for number in IGNORED_SIGNALS:
        signal.signal(number, how)


def _only_wake(_: int, __: FrameType | None) -> None:
    """SIGCHLD needs a handler for the wake-up handle to be written to."""


class _Supervisor:
    def __init__(self, control: socket.socket) -> None:
        self._control: Final = control
        self._host_gone = False
        self._child: int | None = None
        self._popen: Any = None
        self._exited = False
        self._leftovers = 0
        self._kill_at: float | None = None
        self._killed: Final[set[int]] = set()
        self._wake, self._woken = socket.socketpair()
        os.set_blocking(self._woken.fileno(), False)

    def run(self) -> None:
        """Start the child and stay until nothing is left of it."""
        become_subreaper()
        signal.signal(signal.SIGCHLD, _only_wake)
        os.set_blocking(self._wake.fileno(), False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        _, handles, _, _ = socket.recv_fds(self._control, 1, 4)
        for handle in handles:  # programs that a tool starts do not get them
            os.set_inheritable(handle, False)  # noqa: FBT003
        job = receive(self._control)
        try:
            self._child = self._start_worker(job, handles) if isinstance(job, WorkerJob) else self._start(job, handles)
        except BaseException as error:
            self._report("failed", f"{type(error).__name__}: {error}")
            return
        for handle in handles:
            os.close(handle)
        self._report("started", os.getpid(), self._child)
        while not self._collect_ended():
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill_all()
                break
            self._listen()
        self._report("gone", self._leftovers)

    def _start_worker(self, job: WorkerJob, handles: list[int]) -> int:
        serve = getattr(importlib.import_module(job.module), job.function)
        pid = _fork_with_default_signals()
        if pid:
            return pid
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with_parent()
            for own in (self._control, self._wake, self._woken):
                own.close()
            serve(*handles)
        finally:
            os._exit(70)

    def _start(self, job: ProgramJob, handles: list[int]) -> int:
        def prepare() -> None:
            _set_handlers(signal.SIG_DFL)
            die_with_parent()
            job.limits.apply()

        stdin, stdout, stderr = handles
        self._popen = subprocess.Popen(
            job.argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=job.cwd,
            env=job.env,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509  (this process has one thread)
        )
        return self._popen.pid

    def _report(self, *message: Any) -> None:
        with suppress(OSError):  # the host is gone; the work goes on without it
            self._control.sendall(encode_plain(message))

    # --- Until nothing is left ----------------------------------------------------------------------------------

    def _collect_ended(self) -> bool:
        """Reap what has ended. Whether no child is left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return LINUX or self._child is None or not group_exists(self._child)
            if pid == 0:
                return False
            self._note_end(pid, status)

    def _note_end(self, pid: int, status: int) -> None:
        self._killed.discard(pid)
        if pid == self._child:
            self._on_exit(status)

    def _on_exit(self, status: int) -> None:
        self._exited = True
        if self._kill_at is None:  # it ended by itself: what it left running ends with it
            assert self._child is not None
            self._leftovers = alive_below(os.getpid(), self._child)
            self._kill_at = 0.0
        self._report("exited", status)

    def _listen(self) -> None:
        sources = (self._woken,) if self._host_gone else (self._woken, self._control)
        left = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
        readable, _, _ = select.select(sources, (), (), left)
        if self._woken in readable:
            with suppress(BlockingIOError):
                self._woken.recv(4096)
        if self._control in readable:
            try:
                _, grace = receive(self._control)
            except (EOFError, OSError):
                self._host_gone, self._kill_at = True, 0.0
                return
            self._stop(grace)

    def _stop(self, grace: float) -> None:
        deadline = time.monotonic() + grace  # the grace runs from here, however many processes there are
        if self._kill_at is None and grace > 0 and self._child is not None:
            terminate_tree(os.getpid(), self._child)
        self._kill_at = deadline if self._kill_at is None else min(self._kill_at, deadline)

    # --- Killing ------------------------------------------------------------------------------------------------

    def _kill_all(self) -> None:
        """End everything, and return when nothing is left."""
        if LINUX:
            self._kill_adopted()
        else:
            self._kill_by_looking()

    def _kill_adopted(self) -> None:
        # Once the child is reaped, its number, which is also its group's, may be given away.
        if self._child is not None and not self._exited:
            kill_group(self._child)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # from here on, waiting for the children is all there is to do
        while not self._collect_ended():
            kill_children(self._killed)
            with suppress(ChildProcessError):
                self._note_end(*os.waitpid(-1, 0))  # what was killed ends: the kernel tells when

    def _kill_by_looking(self) -> None:
        """Orphans are no children of this process, so their end is not reported: look until the group is empty.

        Processes that have left the group are found below their parents while these live, so they come first.
        """
        assert self._child is not None
        found: Iterable[int] = members(os.getpid(), self._child)
        while not self._collect_ended():
            kill_group(self._child)
            send(found, signal.SIGKILL)
            found = ()
            select.select((self._woken,), (), (), _LOOK_AGAIN)
            with suppress(BlockingIOError):
                self._woken.recv(4096)
