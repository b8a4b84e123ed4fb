"""The host's side of a supervisor: start one, end it, and hear when nothing is left."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from .descriptors import DescriptorPairs
from .environment import interpreter_environment
from .exit_status import ExitStatus
from .frames import PlainDecoder, encode
from .kill_tree import LINUX, children, send_group
from .stream_end import StreamEnd
from .supervisor import ProgramJob, WorkerJob

_START: Final = "import sys; sys.path[:] = sys.argv[2:]; from quiesce.processes.fork_server import main; main({})"
# How long the end of the fork server is waited for, which has nothing to do but to exit.
_EXIT_TIMEOUT: Final = 5.0

# The options of an interpreter that have a flag in `sys.flags`.
_OPTIONS: Final = {
    "debug": "-d",
    "dont_write_bytecode": "-B",
    "no_site": "-S",
    "verbose": "-v",
    "bytes_warning": "-b",
    "optimize": "-O",
}


def _interpreter_options() -> list[str]:
    """The options that make another interpreter start as this one did."""
    repeated = [option for name, option in _OPTIONS.items() for _ in range(getattr(sys.flags, name))]
    if sys.flags.isolated:
        repeated.append("-I")
    else:
        named = {"ignore_environment": "-E", "no_user_site": "-s", "safe_path": "-P"}
        repeated += [option for name, option in named.items() if getattr(sys.flags, name)]
    modes = [f"-X{name}" for name, flag in (("dev", "dev_mode"), ("utf8", "utf8_mode")) if getattr(sys.flags, flag)]
    return [*repeated, *modes, *(f"-W{rule}" for rule in sys.warnoptions)]


class ForkServer:
    """The one program per host process that forks supervisors. Started when first needed; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def adopt(self, control: int) -> None:
        """Fork a supervisor that listens on `control`. A fork server that has died is replaced.

        Raises `OSError` when there can be none: too many processes, or too many open files.
        """
        with self._lock:
            try:
                self._send_control(control)
            except OSError:
                self._drop()
                self._send_control(control)

    def _send_control(self, control: int) -> None:
        socket.send_fds(self._started(), [b"k"], [control])

    def _started(self) -> socket.socket:
        if self._socket is None:
            with DescriptorPairs() as handles:
                ours, number = handles.sockets()
                # In an empty context: it is not a program of the tool that is the first to need it.
                self._process = contextvars.Context().run(
                    subprocess.Popen,
                    [
                        sys.executable,
                        *_interpreter_options(),
                        "-c",
                        _START.format(number),
                        "quiesce-fork-server",
                        *sys.path,
                    ],
                    pass_fds=(number,),
                    stdin=subprocess.DEVNULL,
                    # What it forks shows this environment to every tool; a worker gets the host's with each call.
                    env=interpreter_environment(),
                    start_new_session=True,
                )
            self._socket = ours
        return self._socket

    def close(self) -> None:
        """End it, and with it every supervisor that is not in use."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            try:
                self._process.wait(_EXIT_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._socket = self._process = None

    @property
    def pid(self) -> int | None:
        """Its process id, while it runs."""
        return None if self._process is None else self._process.pid

    @property
    def handles(self) -> set[int]:
        """What it keeps open in this process."""
        return set() if self._socket is None else {self._socket.fileno()}

    def forget(self) -> None:
        """After a fork of the host, in the child: this fork server belongs to the parent."""
        self._lock = threading.Lock()
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.returncode = 0  # not this process's child: there is nothing to wait for
        self._socket = self._process = None


fork_server: Final = ForkServer()
live_processes: Final[set[SupervisedProcess]] = set()
"""The workers and programs of this process that a call waits for right now."""
open_processes: Final[set[SupervisedProcess]] = set()
"""All supervised processes of this process that are not closed."""


class SupervisedProcess:
    """A worker or a program with its supervisor. Its descriptors are closed by `close`."""

    def __init__(self, job: WorkerJob | ProgramJob, handles: Sequence[int]) -> None:
        with DescriptorPairs() as ends:
            ours, theirs = ends.sockets()
            fork_server.adopt(theirs)
            socket.send_fds(ours, [b"j"], list(handles))
        open_processes.add(self)
        self._control: Final = StreamEnd(ours)
        self._decoder: Final = PlainDecoder()
        self._on_change: Callable[[], None] = _ignore
        self._job: Final = encode(job)
        self._sent = False
        self.supervisor: int | None = None
        self.child: int | None = None
        self.failure: str | None = None
        self.exit: ExitStatus | None = None
        self.leftovers = 0
        self.gone = False
        self.proved = False
        """Whether the supervisor itself has said that nothing is left, or that nothing could be started."""

    def attach(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[], None], *, awaited: bool = True) -> None:
        """Call `on_change` on `loop` whenever something below has changed.

        A process that is `awaited` is in `live_processes`: a virtual clock waits for it.
        """
        self._on_change = on_change
        if awaited:
            live_processes.add(self)
        self._control.attach(loop, self._take)
        self.begin()

    def begin(self) -> None:
        """Send the job, if that has not been done."""
        if not self._sent:
            self._sent = True
            self._control.post(self._job)

    def detach(self) -> None:
        """Leave the loop."""
        live_processes.discard(self)
        self._on_change = _ignore
        self._control.detach()

    def look(self) -> None:
        """Read what the supervisor has sent meanwhile."""
        self._control.drain(self._take)

    def stop(self, grace: float) -> None:
        """End everything: TERM now, KILL after `grace` seconds. A later call can only shorten the grace."""
        if not self.gone:
            self._control.post(encode(("stop", grace)))

    def close(self) -> None:
        """Let go. A supervisor that is still there ends its tree at once."""
        live_processes.discard(self)
        open_processes.discard(self)
        self._on_change = _ignore
        self._control.close()

    @property
    def handle(self) -> int:
        """The number of the socket to the supervisor."""
        return self._control.handle

    def drop(self) -> None:
        """After a fork of the host, in the child: this belongs to the parent."""
        self._control.drop()

    def wait_blocking(self, seconds: float) -> bool:
        """Block this thread until the process has exited, at most so long. Whether it has. Not while attached."""
        self._look_until(lambda: self.has_exited, seconds)
        return self.has_exited

    def wait_gone_blocking(self, seconds: float) -> bool:
        """The same for the process and everything that it started."""
        self._look_until(lambda: self.gone, seconds)
        return self.gone

    def _look_until(self, is_done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self.look()
        while not is_done() and (left := deadline - time.monotonic()) > 0:
            poll = select.poll()  # not `select`, which refuses high descriptor numbers
            poll.register(self._control.handle, select.POLLIN)
            poll.poll(left * 1000)
            self.look()

    @property
    def has_exited(self) -> bool:
        """Whether the process has exited, or was never started. What it left running may still be there."""
        return self.exit is not None or self.failure is not None or self.gone

    def has_leftovers(self) -> bool:
        """Whether something may have come loose below the child and hang at the supervisor."""
        if not LINUX:  # nothing is adopted; what is left in the group ends with the worker
            return False
        if self.supervisor is None:
            self.look()
        return self.supervisor is None or any(pid != self.child for pid in children(self.supervisor))

    def _take(self, data: bytes) -> None:
        if not data:
            self._on_end()
            return
        for message in self._decoder.feed(data):
            self._note(message)
        self._on_change()

    def _note(self, message: list[Any]) -> None:
        match message:
            case ("started", supervisor, child):
                self.supervisor, self.child = supervisor, child
            case ("failed", failure):
                self.failure = failure
                self.proved = True
            case ("exited", status):
                self.exit = ExitStatus(status)
            case ("gone", leftovers):
                self.leftovers = leftovers
                self.proved = True
                self._end()
            case _:
                raise AssertionError(f"A supervisor does not say {message!r}.")

    def _on_end(self) -> None:
        """The supervisor has ended. If it was killed, its child's process group is ended from here."""
        if self.exit is None and self.failure is None and self.child is not None:
            send_group(self.child, signal.SIGKILL)
            self.exit = ExitStatus(signal.SIGKILL)
        if not self.gone:
            self._end()
            self._on_change()

    def _end(self) -> None:
        self.gone = True
        live_processes.discard(self)


def start_program(job: ProgramJob) -> tuple[SupervisedProcess, StreamEnd, StreamEnd, StreamEnd]:
    """A program, with its input, its output and its error output. Raises `OSError` when there can be no pipes."""
    with DescriptorPairs() as ends:
        in_writer, in_reader = ends.input()
        out_reader, out_writer = ends.output()
        err_reader, err_writer = ends.output()
        process = SupervisedProcess(job, (in_reader, out_writer, err_writer))
    return process, StreamEnd(in_writer), StreamEnd(out_reader), StreamEnd(err_reader)


def _ignore() -> None:
    pass


def _forget() -> None:
    """After a fork of the host, in the child: the fork server and its processes belong to the parent."""
    for owned in open_processes:
        owned.drop()
    open_processes.clear()
    live_processes.clear()
    fork_server.forget()


atexit.register(fork_server.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
