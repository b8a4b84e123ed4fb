"""The pool of worker processes, in the host.

A worker serves one call at a time, and is used again as long as a call leaves it as it was: no child, no thread, no
closed output. Otherwise, and after every stop, it is ended with all that it started, and another takes its place.
What a call leaves in the modules of its process stays there, so a worker that has served one owner of a server never
serves another.
"""

from __future__ import annotations

import atexit
import os
import pickle
import threading
from contextlib import suppress
from typing import Final

from msgspec import structs

from ...cancellation import Cause
from ...processes.descriptors import DescriptorPairs
from ...processes.frames import encode
from ...processes.stream_end import StreamEnd
from ...processes.supervised import SupervisedProcess, fork_server
from ...processes.supervisor import WorkerJob
from .environment import CallEnvironment
from .function_transfer import TransferredFunction
from .main import WarmFrame

# Workers that are kept for the next call. More are started when more calls run at once.
MOST_IDLE: Final = 4
# Characters of the reason for a stop that a tool in a process sees: what surely passes in one piece.
_LONGEST_REASON: Final = 4000

# What each worker process runs.
_SERVE: Final = WorkerJob("quiesce.tools.worker.main", "serve")


class ToolProcess:
    """One worker process with its supervisor, as the host sees them."""

    def __init__(self) -> None:
        with DescriptorPairs() as ends:
            ours, theirs = ends.sockets()
            stop_socket, their_stop_socket = ends.sockets()
            out_reader, out_writer = ends.output()
            err_reader, err_writer = ends.output()
            self.supervised: Final = SupervisedProcess(_SERVE, (theirs, their_stop_socket, out_writer, err_writer))
        os.set_blocking(stop_socket.fileno(), False)
        self._stop_socket: Final = stop_socket
        self.supervised.begin()
        self.channel: Final = StreamEnd(ours)
        self.stdout: Final = StreamEnd(out_reader)
        self.stderr: Final = StreamEnd(err_reader)
        self._streams: Final = (self.channel, self.stdout, self.stderr)
        self.known: Final[set[str]] = set()
        self.environment: CallEnvironment | None = None
        self.owner: str | None = None
        """Whose calls it has served; None while it was never used."""
        self.stop_sent = False
        """Whether the tool can see a stop, which cannot be taken back: the worker is not used again."""

    @property
    def usable(self) -> bool:
        """Whether it is still there. For a worker that is idle."""
        self.supervised.look()
        return not self.supervised.has_exited

    def warm(self, transferred: TransferredFunction) -> None:
        """Import the modules of a function that will be called soon."""
        if not transferred.body:
            self.known.add(transferred.key)
        self.channel.post(encode(WarmFrame(transferred.origins)))

    def send_stop(self, cause: Cause) -> None:
        """Let the tool see that a stop was asked for."""
        if not self.stop_sent:
            self.stop_sent = True
            short = structs.replace(cause, reason=cause.reason[:_LONGEST_REASON], origin=None)
            with suppress(OSError):
                self._stop_socket.send(pickle.dumps(short))

    def take_begun(self) -> bool:
        """Whether the function of the call was begun. To be asked once for each call, when it is over."""
        try:
            return bool(self._stop_socket.recv(1))
        except OSError:
            return False

    def detach(self) -> None:
        """Leave the loop of the call that has ended."""
        for stream in self._streams:
            stream.detach()
        self.supervised.detach()

    def close(self) -> None:
        """Close all handles. A process that is still there ends now."""
        for stream in self._streams:
            stream.close()
        self.supervised.close()
        self._stop_socket.close()

    @property
    def handles(self) -> set[int]:
        """The handles that are open in this process."""
        return {self._stop_socket.fileno(), *(each.handle for each in (*self._streams, self.supervised))}

    def drop(self) -> None:
        """After a fork of the host, in the child: this worker belongs to the parent."""
        for each in (*self._streams, self.supervised):
            each.drop()
        self._stop_socket.close()


class Pool:
    """The idle workers of this process. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: Final[list[ToolProcess]] = []
        self._busy: Final[set[ToolProcess]] = set()

    def lease(self, key: str, owner: str = "") -> ToolProcess:
        """A worker for a call of this owner: one that knows the function, if possible; a new one, if need be."""
        with self._lock:
            while (worker := self._take_idle(key, owner)) is not None and not worker.usable:
                worker.close()
            worker = worker or ToolProcess()
            worker.owner = owner
            self._busy.add(worker)
            return worker

    def _take_idle(self, key: str, owner: str) -> ToolProcess | None:
        """An idle worker that has served this owner or none: one that knows the function, or else the last used."""
        fitting = [worker for worker in self._idle if worker.owner in (owner, None)]
        if not fitting:
            return None
        chosen = next((worker for worker in fitting if key in worker.known), fitting[-1])
        self._idle.remove(chosen)
        return chosen

    def lease_new(self, owner: str = "") -> ToolProcess:
        """A worker that was never used."""
        worker = ToolProcess()
        worker.owner = owner
        with self._lock:
            self._busy.add(worker)
        return worker

    def give_back(self, worker: ToolProcess) -> None:
        """Keep a worker for the next call, rather than one that was used longer ago: that may be another owner's."""
        worker.detach()
        with self._lock:
            self._busy.discard(worker)
            self._idle.append(worker)
            closing = self._idle.pop(0) if len(self._idle) > MOST_IDLE else None
        if closing is not None:
            closing.close()

    def discard(self, worker: ToolProcess) -> None:
        """Close a worker that has ended."""
        worker.close()
        with self._lock:
            self._busy.discard(worker)

    def refill(self, transferred: TransferredFunction) -> None:
        """Have a worker ready for the next call of the same function, if none is."""
        with self._lock:
            if not self._idle:
                with suppress(OSError):  # the next call tries again, and says what is wrong
                    spare = ToolProcess()
                    spare.warm(transferred)
                    self._idle.append(spare)

    def shut_down(self) -> None:
        """End every idle worker and the fork server. Calls that run go on; the next one starts new workers."""
        with self._lock:
            idle = [*self._idle]
            self._idle.clear()
        for worker in idle:
            worker.close()
        fork_server.close()

    def kept(self) -> set[int]:
        """The handles that stay open for the next call. A search for leaks leaves them out."""
        with self._lock:
            return fork_server.handles.union(*(worker.handles for worker in self._idle))

    def forget(self) -> None:
        """After a fork of the host, in the child: these workers belong to the parent."""
        self._lock = threading.Lock()
        for worker in (*self._idle, *self._busy):
            worker.drop()
        self._idle.clear()
        self._busy.clear()


pool: Final = Pool()
atexit.register(pool.shut_down)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.forget)
