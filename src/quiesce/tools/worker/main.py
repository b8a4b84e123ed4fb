"""What runs inside a worker process: one call after the other, in its main thread.

TERM raises `Terminated` in the tool, so that its `finally` blocks run. Code that ignores it (C code that holds the
interpreter, a tool that catches everything) is killed by the supervisor when the grace is over. After TERM the process
always ends.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from types import AsyncGeneratorType, CoroutineType, FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from ...processes.forks import Forks
from ...processes.frames import encode_plain, receive
from ...processes.limits import ResourceLimits
from ...processes.loaded_types import is_a
from ...processes.plain_values import error_to_plain, to_plain
from .environment import CallEnvironment, lasting
from .function_transfer import TransferredFunction, import_modules, unpack
from .log_forwarding import LogForwarding
from .output import redirect_output
from .stop_channel import StopChannel
from .trace_context import make_trace_current

if TYPE_CHECKING:
    from ..context import Shield
    from ..questions import CallQuestions


class CallFrame(NamedTuple):
    """A call as it is sent to a worker.

    `arguments`, `questions`, `state` and `context` are pickled apart, so that a fault in one of them can be reported.
    """

    transferred: TransferredFunction | str
    arguments: bytes
    name: str
    call_id: str
    run_id: str
    idempotency_key: str
    context_parameter: str | None
    questions: bytes
    state: bytes
    context: bytes
    environment: CallEnvironment | None
    """None when they are those of the call before."""
    limits: ResourceLimits


class WarmFrame(NamedTuple):
    """The modules of a function that will be called soon, each with its file: time to import them."""

    origins: tuple[tuple[str, str], ...]


class Terminated(SystemExit):
    """Raised in a tool's function when its call is stopped: a last chance to clean up, within the grace."""


def serve(channel: int, stop_channel: int, stdout: int, stderr: int) -> NoReturn:
    """Answer calls until the host is gone."""
    redirect_output(stdout, stderr)
    worker = _Worker(socket.socket(fileno=channel), StopChannel(stop_channel))
    try:
        while True:
            worker.answer(receive(worker.channel))
    except (EOFError, OSError):
        os._exit(0)


class _ProcessState:
    """What this process looked like before a call: its streams, its threads, and what lasts in its modules."""

    def __init__(self) -> None:
        self._streams: Final = (sys.stdout, sys.stderr)
        self._identities: Final = (_identity(1), _identity(2))
        self._threads: Final = threading.active_count()
        self._lasting = lasting()

    def renew(self) -> None:
        """Take what the modules of a tool have changed while they were imported as what belongs there."""
        self._lasting = lasting()

    def is_unchanged(self) -> bool:
        """Whether the next call finds this process as the last one did."""
        stdout, stderr = self._streams
        try:
            stdout.flush()
            stderr.flush()
            same = sys.stdout is stdout and sys.stderr is stderr and (_identity(1), _identity(2)) == self._identities
        except (OSError, ValueError):
            return False
        return same and threading.active_count() == self._threads and not _has_children() and lasting() == self._lasting


class _Worker:
    def __init__(self, channel: socket.socket, stop_channel: StopChannel) -> None:
        self.channel: Final = channel
        self.stop_channel: Final = stop_channel
        self.pid: Final = os.getpid()
        self._functions: Final[dict[str, Any]] = {}
        self._sending: Final = threading.Lock()
        self._environment_of_call: CallEnvironment | None = None
        self.begun = False
        self.inside = False
        """Whether the tool's function runs: only then may TERM raise."""
        self._sending_now = False
        """Whether the main thread is writing a message to the host."""
        self._terminated = False
        self._raised = False
        self._shields = 0
        self._log_forwarding: Final = LogForwarding(self.send)
        signal.signal(signal.SIGTERM, self.on_term)
        self._forks: Final = Forks(self)
        self._state: Final = _ProcessState()

    # --- Being stopped ------------------------------------------------------------------------------------------

    def on_term(self, _: int, __: FrameType | None, /) -> None:
        """TERM: end at once while the function has not begun, and else let the tool clean up first."""
        if os.getpid() != self.pid:  # a child that C code of the tool has forked, so that `Forks` did not see it
            _end_by_term()
        if not self.begun:
            os._exit(0)
        if self._raised:  # once is enough: the tool is cleaning up
            return
        self._terminated = True
        # Not while a message is being written, which must arrive whole: `send` raises it after that. Nor in a fork,
        # whose hooks would lose it.
        if not self._sending_now and not self._forks.in_progress:
            self.raise_if_terminated()

    def on_fork_over(self, _: int, __: FrameType | None, /) -> None:
        """A fork is over: a TERM that came during it is raised now."""
        if os.getpid() == self.pid and not self._sending_now and not self._forks.in_progress:
            self.raise_if_terminated()

    @property
    def owes_terminated(self) -> bool:
        """Whether TERM has come, and `Terminated` is still to be raised in the tool."""
        return self._terminated and not self._raised and self.inside and not self._shields

    def raise_if_terminated(self) -> None:
        """Raises `Terminated` in the tool, once, when TERM has come and no shield holds it back."""
        if self.owes_terminated:
            self._raised = True
            raise Terminated("stopped")

    def shield(self, name: str) -> Shield:
        """A part of the tool that is not to be interrupted. The host notes it for the receipt."""
        from ..context import Shield

        return Shield(name, lambda: self._enter_shield(name), lambda: self._leave_shield(name))

    def _enter_shield(self, name: str) -> None:
        self.send("shield", name)
        self._shields += 1

    def _leave_shield(self, name: str) -> None:
        """A TERM that came meanwhile is raised now, after the host has learnt that the shield has ended."""
        self.send("unshield", name)
        self._shields -= 1
        self.raise_if_terminated()

    # --- Answering ----------------------------------------------------------------------------------------------

    def answer(self, frame: CallFrame | WarmFrame) -> None:
        """Do what the host asks for."""
        if isinstance(frame, WarmFrame):
            self._warm(frame)
            return
        reply = self._reply(frame)
        if os.getpid() != self.pid:  # a child that the tool forked, and that came out here
            os._exit(0)
        clean = self._state.is_unchanged() and not self._terminated
        try:
            self.send(*reply, clean)
        except (MemoryError, ValueError) as error:
            self.send("unsendable", f"{type(error).__name__}: {error}", clean)
        if self._terminated:
            if reply[0] == "terminated":  # it ends by that signal when it was what ended the call
                _end_by_term()
            os._exit(0)
        self.begun = False
        if self._terminated:  # it came between the two lines above
            os._exit(0)
        if clean and self._environment_of_call is not None:  # now, rather than when the next call is waiting for it
            self._environment_of_call.restore()

    def _warm(self, frame: WarmFrame) -> None:
        try:
            import_modules(frame.origins)
        except BaseException:  # the call itself will say what is wrong
            return
        self._accept_imports()

    def _load(self, transferred: TransferredFunction) -> None:
        self._functions[transferred.key] = unpack(transferred)
        self._accept_imports()

    def _accept_imports(self) -> None:
        signal.signal(signal.SIGTERM, self.on_term)  # whatever a module did that was imported
        self._state.renew()

    def _reply(self, frame: CallFrame) -> tuple[Any, ...]:
        try:
            function, arguments = self._prepared(frame)
        except BaseException as error:
            return ("unloadable", f"{type(error).__name__}: {error}")
        returned: list[Any] = []
        try:
            with frame.limits.applied():
                _call(function, arguments, self, returned)
        except Terminated:
            if not returned or isinstance(returned[0], CoroutineType | AsyncGeneratorType):
                return ("terminated",)
        except BaseException as error:
            return _error_reply(error)
        try:
            return ("value", to_plain(returned[0]))
        except BaseException as error:
            return ("unsendable", f"{type(returned[0]).__name__}: {type(error).__name__}: {error}")

    def _prepared(self, frame: CallFrame) -> tuple[Any, dict[str, Any]]:
        if frame.environment is not None:
            self._environment_of_call = frame.environment
            self._environment_of_call.restore()
        assert self._environment_of_call is not None
        self._environment_of_call.go_there()
        self._log_forwarding.install()
        make_trace_current(self._environment_of_call.env)
        transferred = frame.transferred
        if isinstance(transferred, TransferredFunction):
            if transferred.key not in self._functions:
                self._load(transferred)
            function = self._functions[transferred.key]
        else:
            function = self._functions[transferred]
        arguments = pickle.loads(frame.arguments)
        if frame.context_parameter is not None:
            arguments[frame.context_parameter] = self._context(frame)
        return function, arguments

    def _context(self, frame: CallFrame) -> Any:
        from ...cancellation import TokenView
        from ...run_context import RunContext
        from ..context import ToolContext

        names, deps, fault = pickle.loads(frame.context)
        token, deps = TokenView(self.stop_channel), _MissingDeps(fault) if fault else deps
        run = RunContext(deps=deps, state=pickle.loads(frame.state), run_id=frame.run_id, token=token, **names)
        return ToolContext(
            run,
            call_id=frame.call_id,
            idempotency_key=frame.idempotency_key,
            tool_name=frame.name,
            token=token,
            questions=_LazyQuestions(frame.questions),
            report=lambda progress: self.send("report", to_plain(progress)),
            cancel=lambda reason: self.send("cancel", reason),
            shield=self.shield,
        )

    def send(self, *message: Any) -> None:
        """Tell the host something that JSON can express, from whichever thread."""
        if os.getpid() != self.pid:  # a child that the tool forked shares this stream, and must not write to it
            return
        data = encode_plain(message)
        if threading.current_thread() is not threading.main_thread():
            with self._sending:
                self.channel.sendall(data)
            return
        self._sending_now = True
        try:
            with self._sending:
                self.channel.sendall(data)
        finally:
            self._sending_now = False
        self.raise_if_terminated()


class _MissingDeps:
    """Stands for `deps` that could not be sent here: each use says why."""

    def __init__(self, fault: str) -> None:
        self.__dict__["_fault"] = fault

    def __getattr__(self, name: str) -> Any:
        from ...errors import ToolError

        raise ToolError(f"ctx.deps is not available in a tool with on_stop='kill': {self.__dict__['_fault']}.")


def _call(function: Any, arguments: dict[str, Any], worker: _Worker, returned: list[Any]) -> None:
    """Call the function; `returned` then holds what it returned, even if TERM came with its last step.

    The cache is written in C: there is no moment at which a signal finds the function ended and its value not kept.
    """
    call = functools.lru_cache(maxsize=None)(functools.partial(function, **arguments))
    worker.begun = worker.inside = True
    try:
        worker.raise_if_terminated()
        worker.stop_channel.mark_begun()
        call()
    finally:
        worker.inside = False
        if call.cache_info().currsize:
            returned.append(call())
    if isinstance(returned[0], CoroutineType | AsyncGeneratorType):
        import asyncio  # here, because most tools are plain functions and do without

        worker.inside = True
        try:
            worker.raise_if_terminated()
            asyncio.run(_await(returned.pop(), worker, returned))
        finally:
            worker.inside = False


async def _await(work: Any, worker: _Worker, returned: list[Any]) -> None:
    if isinstance(work, CoroutineType):
        returned.append(await work)
        return
    last: Any = None
    async for last in work:  # what an async generator yields is progress
        worker.send("report", to_plain(last))
    returned.append(last)


class _LazyQuestions:
    """What the call asks a person. Put together when the tool asks, which most never do."""

    def __init__(self, pending: bytes) -> None:
        self._pending: Final = pending

    @functools.cached_property
    def _questions(self) -> CallQuestions:
        from ..questions import CallQuestions

        pending = pickle.loads(self._pending)
        return CallQuestions(pending.call, pending)

    @property
    def kept(self) -> Any:
        return self._questions.kept

    @property
    def answers(self) -> dict[str, Any]:
        return self._questions.answers

    def ask(self, name: str, reason: Any, *, expires_in: float | None = None) -> Any:
        return self._questions.ask(name, reason, expires_in=expires_in)


def _error_reply(error: Any) -> tuple[Any, ...]:
    """The answer for an exception: as a line, as a traceback, and as itself where that is possible."""
    if is_a(error, "quiesce.interrupts", "InterruptSignal"):  # a person is asked there; then the call is made again
        return ("interrupt", [to_plain(each) for each in error.interrupts], to_plain(error.kept))
    trace = "".join(traceback.format_exception(error))
    line = type(error).__name__
    try:
        text = str(error)
        line = f"{line}: {text}" if text else line
        return ("error", line, trace, error_to_plain(error))
    except BaseException:
        return ("error", line, trace, None)


def _end_by_term() -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(0)  # where TERM is blocked


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)  # one that it reaps was a child too: this process is not used again
    except ChildProcessError:
        return False
    return True
