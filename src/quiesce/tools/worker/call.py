"""One call of a function in a worker process."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import Struct

from ...cancellation import BoundedShield, CancellationToken, Cause
from ...errors import ToolError
from ...interrupts import Interrupt, InterruptSignal
from ...processes.exit_status import ProcessEnded, RemoteError, RemoteTraceback
from ...processes.frames import PlainDecoder, encode
from ...processes.limits import ResourceLimits
from ...processes.output import CapturedOutput
from ...processes.plain_values import error_from_plain, from_plain
from ...run_context import RunContext
from ..closed_loop import end_process
from ..policy import EXIT_GRACE
from ..questions import CallQuestions
from .environment import CallEnvironment
from .function_pickler import pickled
from .main import CallFrame
from .pool import ToolProcess, pool

if TYPE_CHECKING:
    from ..tool import Tool

# Characters of each output stream of a call that are kept, and reported.
KEPT_OUTPUT: Final = 100_000
# Another worker is started so much later than one was ended: a run that is being stopped comes to rest first.
_REFILL_AFTER: Final = 0.1


class WorkerRequest(Struct, frozen=True):
    """A call that is to be made in a worker."""

    tool: Tool
    arguments: dict[str, Any]
    call_id: str
    run_id: str
    token: CancellationToken
    cancel_run: Callable[[str], None]
    context: RunContext[Any]
    questions: CallQuestions
    on_report: Callable[[Any], None]
    on_shield: Callable[[str], None]
    on_unshield: Callable[[str], None]
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
        self._reply: list[Any] | None = None
        self._stopping = False
        self._worker: ToolProcess | None = None
        self._transferred: Final = request.tool.transferred_function()
        self._forget_token: Callable[[], None] | None = None
        self._decoder = PlainDecoder()
        self._frame: CallFrame | None = None
        self._made_again = False
        self.begun = True
        """Whether the function was begun; False only when that is certain."""
        self.settled = False
        self.stdout: Final = CapturedOutput(KEPT_OUTPUT, lambda text: report({"stdout": text}))
        self.stderr: Final = CapturedOutput(KEPT_OUTPUT, lambda text: report({"stderr": text}))

    async def wait(self) -> Any:
        """Make the call and wait for what the function returns or raises.

        Raises `ProcessEnded` when the process ended first, by a stop or by itself. Cancelling this kills it.
        """
        self._frame = self._new_frame()
        try:
            self._send_to(pool.lease(self._transferred.key, self._request.context.owner))
        except OSError as error:
            raise ToolError(f"Not run: its process could not be started ({error}).") from None
        self._forget_token = self._request.token.on_cancel(self._on_cancel)
        try:
            await asyncio.wait((self._done,))
        except asyncio.CancelledError:
            self.stop(0.0)
            await BoundedShield(f"ending tool {self._request.tool.name}").wait((self._done,), seconds=EXIT_GRACE)
            raise
        return self.outcome()

    def _send_to(self, worker: ToolProcess) -> None:
        assert self._frame is not None
        self._worker = worker
        self._decoder = PlainDecoder()
        worker.supervised.attach(self._loop, self._on_change)
        worker.channel.attach(self._loop, self._on_data)
        worker.stdout.attach(self._loop, self.stdout.add)
        worker.stderr.attach(self._loop, self.stderr.add)
        worker.channel.post(encode(self._fitted(self._frame, worker)))

    def _on_cancel(self, cause: Cause) -> None:
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._send_stop, cause)

    def _send_stop(self, cause: Cause) -> None:
        if self._worker is not None and not self.settled:
            self._worker.send_stop(cause)

    def stop(self, grace: float) -> None:
        """End the process and everything that it started: TERM now, KILL after `grace` seconds."""
        self._stopping = True
        if self._worker is not None and not self.settled:
            self._worker.supervised.stop(grace)

    def end_with_loop(self) -> None:
        """The loop was closed: end the process and wait for that. Its `outcome` is known if it is `settled` then."""
        self._stopping = True
        if self._worker is not None and not self.settled:
            end_process(self._worker.supervised)

    @property
    def where(self) -> str:
        """What is left, when something is."""
        worker = self._worker
        return f"process {worker.supervised.child}" if worker is not None else "a process"

    # --- The call -----------------------------------------------------------------------------------------------

    def _new_frame(self) -> CallFrame:
        request = self._request
        tool = request.tool
        try:
            arguments = pickled(request.arguments)
        except Exception as error:
            raise ToolError(
                f"The arguments of {tool.name} cannot be sent to its process ({type(error).__name__}: {error})."
            ) from None
        wants_context = tool.context_parameter is not None
        return CallFrame(
            transferred=self._transferred,
            arguments=arguments,
            name=tool.name,
            call_id=request.call_id,
            run_id=request.run_id,
            idempotency_key=request.idempotency_key,
            context_parameter=tool.context_parameter,
            questions=pickle.dumps(request.questions.pending(None)) if wants_context else b"",
            state=_picklable(request.context.state) if wants_context else b"",
            context=_run_context(request.context) if wants_context else b"",
            environment=CallEnvironment.here(inherit_env=tool.policy.inherit_env),
            limits=ResourceLimits(tool.policy.max_memory, tool.policy.max_cpu),
        )

    def _fitted(self, frame: CallFrame, worker: ToolProcess) -> CallFrame:
        """The call without what this worker has already."""
        by_value = bool(self._transferred.body)
        transferred = self._transferred.key if by_value and self._transferred.key in worker.known else self._transferred
        environment = None if frame.environment == worker.environment else frame.environment
        worker.known.add(self._transferred.key)
        worker.environment = frame.environment
        return frame._replace(transferred=transferred, environment=environment)

    def _on_data(self, data: bytes) -> None:
        more = True
        while more:
            try:
                for message in self._decoder.feed(data):
                    self._on_message(message)
                more = False
            except Exception:  # the code of a tool may have written to the stream
                logging.getLogger("quiesce").exception("A message from a worker process could not be read.")
                data = b""

    def _on_message(self, message: list[Any]) -> None:
        match message:
            case ["report", progress]:
                self._request.on_report(from_plain(progress))
            case ["log", record]:
                _log(from_plain(record))
            case ["shield", str(name)]:
                self._request.on_shield(name)
            case ["unshield", str(name)]:
                self._request.on_unshield(name)
            case ["cancel", str(reason)]:
                self._request.cancel_run(reason)
            case [str(kind), *_, bool(clean)]:
                self._reply = message
                if kind == "unloadable" and self._worker is not None:
                    self._worker.known.discard(self._transferred.key)
                self._on_reply(clean=clean)
            case _:
                raise ValueError(f"a worker does not send {message!r:.200}")

    def _on_reply(self, *, clean: bool) -> None:
        worker = self._worker
        if worker is None:
            return
        if self._reply is not None and self._reply[0] == "terminated":  # by the stop or by another: it is ending
            return
        if self._stopping:  # it is over; its grace is not needed
            worker.supervised.stop(0.0)
        elif clean and not worker.stop_sent and not worker.supervised.has_leftovers():
            worker.stdout.drain(self.stdout.add)
            worker.stderr.drain(self.stderr.add)
            worker.take_begun()
            pool.give_back(worker)
            self._settle()
        else:  # what the call left behind ends with it
            worker.supervised.stop(0.0)

    def _on_change(self) -> None:
        worker = self._worker
        if worker is None or not worker.supervised.gone:
            return
        worker.channel.drain(self._on_data)
        worker.stdout.drain(self.stdout.add)
        worker.stderr.drain(self.stderr.add)
        # A worker whose supervisor was killed may begin in this very moment.
        self.begun = worker.take_begun() or not worker.supervised.proved
        pool.discard(worker)
        if not self.begun and self._reply is None and self._make_again():
            return
        self._settle()
        self._loop.call_later(_REFILL_AFTER, pool.refill, self._transferred)

    def _make_again(self) -> bool:
        """The worker had died before it came to the call: once, the call is sent to another. Whether it was."""
        if self._stopping or self._made_again:
            return False
        self._made_again = self.begun = True
        try:
            self._send_to(pool.lease_new(self._request.context.owner))
        except OSError:  # no other worker: the end of the first one is reported
            return False
        cause = self._request.token.cause
        if cause is not None:
            self._send_stop(cause)
        return True

    def _settle(self) -> None:
        self.settled = True
        if self._forget_token is not None:
            self._forget_token()
        if not self._done.done():
            self._done.set_result(None)

    def outcome(self) -> Any:
        """What the function returned. Raises what it raised, or `ProcessEnded`. Only when it is `settled`."""
        worker = self._worker
        assert worker is not None
        match self._reply:
            case ["value", value, _]:
                try:
                    return from_plain(value)
                except Exception as error:
                    raise ToolError(
                        f"The tool finished, but what it returned cannot be rebuilt here"
                        f" ({type(error).__name__}: {error})."
                    ) from None
            case ["error", str(line), str(trace), error, _]:
                raise _rebuilt(line, trace, error)
            case ["interrupt", interrupts, kept, _]:
                raise InterruptSignal(*msgspec.convert(from_plain(interrupts), list[Interrupt]), kept=from_plain(kept))
            case ["unloadable", line, _]:
                raise ToolError(f"Not run: the call could not be rebuilt in the tool's process ({line}).")
            case ["unsendable", line, _]:
                raise ToolError(f"The tool finished, but what it returned cannot be sent from its process ({line}).")
            case _:
                ended = worker.supervised
                raise ProcessEnded(ended.exit, ended.failure)


def was_raised_in_process(error: BaseException) -> bool:
    """Whether the function of a call has raised this."""
    return isinstance(error.__cause__, RemoteTraceback)


def _rebuilt(line: str, trace: str, plain: object) -> BaseException:
    known = error_from_plain(cast("dict[str, Any]", plain)) if isinstance(plain, dict) else None
    # Those two mean something to the coroutine that this is raised in.
    error = RemoteError(line) if known is None or isinstance(known, asyncio.CancelledError | StopIteration) else known
    error.__cause__ = RemoteTraceback(trace)
    return error


def _log(record: dict[str, Any]) -> None:
    """Pass a log record of a worker on to the handlers here."""
    made = logging.makeLogRecord({**record, "args": None, "exc_info": None})
    logger = logging.getLogger(made.name)
    if logger.isEnabledFor(made.levelno):
        logger.handle(made)


def _run_context(context: RunContext[Any]) -> bytes:
    """The deps of the run and what else its context says; the reason why not, for deps that cannot be sent."""
    names = {"agent": context.agent, "session": context.session, "owner": context.owner, "task": context.task}
    try:
        return pickled((names, context.deps, ""))
    except Exception as error:  # whatever a type of the user's own raises
        return pickled((names, None, f"{type(context.deps).__name__} cannot be sent to a process: {error}"))


def _picklable(state: dict[str, Any]) -> bytes:
    """The part of the state that can be sent."""
    try:
        return pickled(state)
    except Exception:
        kept: dict[str, Any] = {}
        for key, value in state.items():
            with suppress(Exception):
                pickled(value)
                kept[key] = value
        return pickled(kept)
