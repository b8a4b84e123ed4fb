"""Functions in worker processes: the pool in the host, and a call of it.

A worker serves one call at a time, and is used again as long as a call leaves it as it was: no child, no thread, no
closed output. Otherwise, and after every stop, it is ended with all that it started, and another takes its place.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import pickle
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ...cancellation import BoundedShield, CancellationToken, Cause
from ...errors import ConfigurationError, ToolError
from ..policy import REAPING
from .containment import Containment, live_processes, nursery
from .ended import ProcessEnded, RemoteError, RemoteTraceback
from .frames import Decoder, encode
from .keeper import WorkerJob
from .link import Link
from .parcel import Parcel
from .printed import Printed
from .rlimits import Allowance
from .worker import CallFrame, WarmFrame

if TYPE_CHECKING:
    from ..tool import Tool

# Workers that are kept for the next call. More are started when more calls run at once.
MOST_IDLE: Final = 4
# Characters of each output stream of a call that are kept, and reported.
KEPT_OUTPUT: Final = 100_000


class Worker:
    """One worker process with its keeper, as the host sees them."""

    def __init__(self) -> None:
        with ExitStack() as opened:
            ours, theirs = socket.socketpair()
            opened.callback(ours.close)
            pipes = [os.pipe() for _ in range(3)]
            (stop_reader, stop_writer), (out_reader, out_writer), (err_reader, err_writer) = pipes
            for handle in (stop_writer, out_reader, err_reader):
                opened.callback(os.close, handle)
            handles = (theirs.fileno(), stop_reader, out_writer, err_writer)
            try:
                self.containment: Final = Containment(WorkerJob(), handles)
            finally:
                theirs.close()
                for handle in handles[1:]:
                    os.close(handle)
            opened.pop_all()
        os.set_blocking(stop_writer, False)
        self._stop_writer = stop_writer
        self.containment.begin()
        self.channel: Final = Link(ours)
        self.stdout: Final = Link(out_reader)
        self.stderr: Final = Link(err_reader)
        self.known: Final[set[str]] = set()
        self.env: dict[str, str] | None = None
        self._told = False

    @property
    def usable(self) -> bool:
        """Whether it is still there. For a worker that is idle."""
        self.containment.look()
        return self.containment.exit is None and self.containment.failure is None and not self.containment.gone

    def warm(self, parcel: Parcel) -> None:
        """Have it import what a call will need."""
        if parcel.how == "name":
            self.known.add(parcel.key)
            self.channel.post(encode(WarmFrame(parcel)))

    def tell(self, cause: Cause) -> None:
        """Let the tool see that a stop was asked for."""
        if not self._told:
            self._told = True
            with suppress(OSError):
                os.write(self._stop_writer, pickle.dumps(cause))

    @property
    def told(self) -> bool:
        """Whether its token is closed, for good."""
        return self._told

    def detach(self) -> None:
        """Leave the loop of the call that has ended."""
        for link in (self.channel, self.stdout, self.stderr):
            link.detach()
        self.containment.detach()

    def close(self) -> None:
        """Let go of it. If it is still there, it ends now."""
        for link in (self.channel, self.stdout, self.stderr):
            link.close()
        self.containment.close()
        handle, self._stop_writer = self._stop_writer, -1
        if handle >= 0:
            os.close(handle)

    def drop(self) -> None:
        """After a fork of the host, in the child: this worker belongs to the parent."""
        for link in (self.channel, self.stdout, self.stderr, self.containment):
            link.drop()
        os.close(self._stop_writer)


class Pool:
    """The idle workers of this process. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: Final[list[Worker]] = []
        self._busy: Final[set[Worker]] = set()

    def lease(self, key: str) -> Worker:
        """A worker: one that knows the function, if possible; a new one, if need be."""
        with self._lock:
            while self._idle:
                place = next((n for n, idle in enumerate(self._idle) if key in idle.known), len(self._idle) - 1)
                worker = self._idle.pop(place)
                if worker.usable:
                    break
                worker.close()
            else:
                worker = Worker()
            self._busy.add(worker)
            return worker

    def give_back(self, worker: Worker) -> None:
        """Keep a worker for the next call."""
        worker.detach()
        with self._lock:
            self._busy.discard(worker)
            if len(self._idle) < MOST_IDLE:
                self._idle.append(worker)
                return
        worker.close()

    def discard(self, worker: Worker, parcel: Parcel) -> None:
        """Close a worker that has ended, and have another one ready for the next call of the same function."""
        worker.close()
        with self._lock:
            self._busy.discard(worker)
            if not self._idle:
                with suppress(OSError, ConfigurationError):  # the next call tries again, and says what is wrong
                    spare = Worker()
                    spare.warm(parcel)
                    self._idle.append(spare)

    def shut_down(self) -> None:
        """End every idle worker and the nursery. Calls that run go on; the next one starts new workers."""
        with self._lock:
            leaving = [*self._idle]
            self._idle.clear()
        for worker in leaving:
            worker.close()
        nursery.close()

    def forget(self) -> None:
        """After a fork of the host, in the child: these workers belong to the parent."""
        self._lock = threading.Lock()
        workers = {*self._idle, *self._busy}
        for owned in (*workers, *(live_processes - {worker.containment for worker in workers})):
            owned.drop()
        self._idle.clear()
        self._busy.clear()
        live_processes.clear()
        nursery.forget()


pool: Final = Pool()
atexit.register(pool.shut_down)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.forget)


class WorkerRequest(Struct, frozen=True):
    """A call that is to be made in a worker."""

    tool: Tool
    arguments: dict[str, Any]
    call_id: str
    run_id: str
    token: CancellationToken
    cancel_run: Callable[[str], None]
    state: dict[str, Any]
    on_report: Callable[[Any], None]
    idempotency_key: str = ""


class WorkerCall:
    """A function that runs in a worker process.

    `settled` is true from the moment that nothing more can come of the call: its result is there and its process is
    free again, or its process and all that it started are gone.
    """

    def __init__(self, request: WorkerRequest) -> None:
        self._request: Final = request
        report = request.on_report
        self._loop: Final = asyncio.get_running_loop()
        self._done: Final[asyncio.Future[None]] = self._loop.create_future()
        self._reply: tuple[Any, ...] | None = None
        self._stopping = False
        self._worker: Worker | None = None
        self._parcel: Final = request.tool.parcel()
        self._forget_token: Callable[[], None] | None = None
        self._decoder: Final = Decoder()
        self.settled = False
        self.stdout: Final = Printed(KEPT_OUTPUT, lambda text: report({"stdout": text}))
        self.stderr: Final = Printed(KEPT_OUTPUT, lambda text: report({"stderr": text}))

    async def wait(self) -> Any:
        """Make the call and wait for what the function returns or raises.

        Raises `ProcessEnded` when the process ended first, by a stop or by itself. Cancelling this kills it.
        """
        frame = self._frame()
        worker = self._worker = pool.lease(self._parcel.key)
        worker.containment.attach(self._loop, self._on_change)
        worker.channel.attach(self._loop, self._on_data)
        worker.stdout.attach(self._loop, self.stdout.add)
        worker.stderr.attach(self._loop, self.stderr.add)
        worker.channel.post(encode(self._fitted(frame, worker)))
        self._forget_token = self._request.token.on_cancel(self._on_cancel)
        try:
            await asyncio.wait((self._done,))
        except asyncio.CancelledError:
            self.stop(0.0)
            await BoundedShield(f"ending tool {self._request.tool.name}").wait((self._done,), seconds=REAPING)
            raise
        return self._outcome()

    def _on_cancel(self, cause: Cause) -> None:
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._tell, cause)

    def _tell(self, cause: Cause) -> None:
        if self._worker is not None and not self.settled:
            self._worker.tell(cause)

    def stop(self, grace: float) -> None:
        """End the process and everything that it started: TERM now, KILL after `grace` seconds."""
        self._stopping = True
        if self._worker is not None and not self.settled:
            self._worker.containment.stop(grace)

    @property
    def where(self) -> str:
        """What is left, when something is."""
        worker = self._worker
        return f"process {worker.containment.child}" if worker is not None else "a process"

    # --- The call -----------------------------------------------------------------------------------------------

    def _frame(self) -> CallFrame:
        request = self._request
        tool = request.tool
        try:
            arguments = pickle.dumps(request.arguments, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise ToolError(
                f"The arguments of {tool.name} cannot be sent to its process ({type(error).__name__}: {error})."
            ) from None
        wants_context = tool.context_parameter is not None
        return CallFrame(
            parcel=self._parcel,
            arguments=arguments,
            name=tool.name,
            call_id=request.call_id,
            run_id=request.run_id,
            idempotency_key=request.idempotency_key,
            context_parameter=tool.context_parameter,
            state=_picklable(request.state) if wants_context else b"",
            log_level=logging.getLogger().getEffectiveLevel(),
            cwd=os.getcwd(),
            env=dict(os.environ),
            allowance=Allowance(tool.policy.max_memory, tool.policy.max_cpu),
        )

    def _fitted(self, frame: CallFrame, worker: Worker) -> CallFrame:
        """The call without what this worker has already."""
        from msgspec.structs import replace

        by_value = self._parcel.how != "name"
        parcel = self._parcel.key if by_value and self._parcel.key in worker.known else self._parcel
        env = None if frame.env == worker.env else frame.env
        worker.known.add(self._parcel.key)
        worker.env = frame.env
        return replace(frame, parcel=parcel, env=env)

    def _on_data(self, data: bytes) -> None:
        more = True
        while more:
            try:
                for message in self._decoder.feed(data):
                    self._take(message)
                more = False
            except Exception:  # what a tool reports may not come apart here as it went together there
                logging.getLogger("quiesce").exception("A message from a worker process could not be read.")
                data = b""

    def _take(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("report", progress):
                self._request.on_report(progress)
            case ("log", record):
                logger = logging.getLogger(record.get("name", "quiesce"))
                if logger.isEnabledFor(record.get("levelno", 0)):
                    logger.handle(logging.makeLogRecord(record))
            case ("cancel", reason):
                self._request.cancel_run(reason)
            case _:
                self._reply = message
                if message[0] == "unloadable" and self._worker is not None:
                    self._worker.known.discard(self._parcel.key)
                self._on_reply(clean=message[-1])

    def _on_reply(self, *, clean: bool) -> None:
        worker = self._worker
        if worker is None:
            return
        if self._stopping:
            if self._reply is not None and self._reply[0] != "terminated":  # it is over; its grace is not needed
                worker.containment.stop(0.0)
        elif clean and not worker.told and not worker.containment.has_strays():
            worker.stdout.drain(self.stdout.add)
            worker.stderr.drain(self.stderr.add)
            pool.give_back(worker)
            self._settle()
        else:  # what the call left behind ends with it
            worker.containment.stop(0.0)

    def _on_change(self) -> None:
        worker = self._worker
        if worker is None or not worker.containment.gone:
            return
        worker.channel.drain(self._on_data)
        worker.stdout.drain(self.stdout.add)
        worker.stderr.drain(self.stderr.add)
        pool.discard(worker, self._parcel)
        self._settle()

    def _settle(self) -> None:
        self.settled = True
        if self._forget_token is not None:
            self._forget_token()
        if not self._done.done():
            self._done.set_result(None)

    def _outcome(self) -> Any:
        worker = self._worker
        assert worker is not None
        match self._reply:
            case ("value", body, _):
                try:
                    return pickle.loads(body)
                except Exception as error:
                    raise ToolError(
                        f"The tool finished, but what it returned cannot be rebuilt here"
                        f" ({type(error).__name__}: {error})."
                    ) from None
            case ("error", line, trace, body, _):
                raise _rebuilt(line, trace, body)
            case ("unloadable", line, _):
                raise ToolError(f"Not run: the call could not be rebuilt in the tool's process ({line}).")
            case ("unsendable", line, _):
                raise ToolError(f"The tool finished, but what it returned cannot be sent from its process ({line}).")
            case _:
                ended = worker.containment
                raise ProcessEnded(ended.exit, ended.failure)


def _rebuilt(line: str, trace: str, body: bytes | None) -> BaseException:
    error: BaseException = RemoteError(line)
    if body is not None:
        with suppress(Exception):
            loaded = pickle.loads(body)
            if isinstance(loaded, BaseException) and not isinstance(loaded, asyncio.CancelledError):
                error = loaded
    error.__cause__ = RemoteTraceback(trace)
    return error


def _picklable(state: dict[str, Any]) -> bytes:
    """The part of the state that can be sent."""
    try:
        return pickle.dumps(state)
    except Exception:
        kept: dict[str, Any] = {}
        for key, value in state.items():
            with suppress(Exception):
                pickle.dumps(value)
                kept[key] = value
        return pickle.dumps(kept)
