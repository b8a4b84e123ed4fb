"""Programs that go on in the background after the tool call that started them, until their task ends."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec import Struct, field

from ..cancellation import BoundedShield
from ..errors import ToolError
from ..processes.environment import program_environment
from .closed_loop import close_coroutine, end_process
from .policy import EXIT_GRACE
from .program import absolute_cwd, checked_argv, start_supervised

# The seconds between TERM and KILL.
_GRACE: Final = 2.0
# The characters of unread output that are kept: the last ones.
_MAX_UNREAD: Final = 100_000


class BackgroundProcess:
    """One program under a supervisor, with an open standard input. For the event loop of its run.

    Raises `ToolError` when it cannot be started.
    """

    def __init__(self, name: str, argv: tuple[str, ...], cwd: str, env: dict[str, str], *, sandbox: bool) -> None:
        self.name: Final = name
        self._argv: Final = argv
        loop = asyncio.get_running_loop()
        self.ended: Final[asyncio.Future[None]] = loop.create_future()
        """Done when it has ended, with all that it started."""
        self._changed: Final = asyncio.Event()
        self._unread = ""
        self._left_out = 0
        self._process, self._stdin, *outputs = start_supervised(argv, cwd, env, sandbox=sandbox)
        self._outputs: Final = [(stream, self._decoded()) for stream in outputs]
        for stream, add in self._outputs:
            stream.attach(loop, add)
        self._stdin.attach_writer(loop)
        self._process.attach(loop, self._on_change)

    @property
    def status(self) -> str:
        """What is known about it, in words."""
        exit_status = self._process.exit
        if self._process.failure is not None:
            return f"not started ({self._process.failure})"
        if not self.ended.done():
            return "running"
        if exit_status is None:  # its supervisor was killed
            return "ended, it is not known how"
        code = exit_status.code
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    @property
    def label(self) -> str:
        """Its name on the receipt."""
        return f"process {self._process.child} ({self.command})"

    @property
    def command(self) -> str:
        """The command, shortened."""
        return self._argv[-1][:80]

    async def begun(self) -> None:
        """Wait until it runs. Raises `ToolError` when it could not be started."""
        await self._until(lambda: self._process.child is not None)
        if self._process.failure is not None:
            raise ToolError(f"It could not be started ({self._process.failure}).")

    async def read(self, seconds: float) -> str:
        """The output since the last time. Waits up to so many seconds for some, or for the end."""
        try:
            async with asyncio.timeout(seconds):
                await self._until(lambda: bool(self._unread))
        except TimeoutError:
            pass
        text, left_out = self._unread, self._left_out
        self._unread, self._left_out = "", 0
        return f"[... {left_out} characters left out ...]\n{text}" if left_out else text

    def write(self, text: str) -> None:
        """Send text to its standard input. Raises `ToolError` when it does not read any more."""
        if self.ended.done() or self._stdin.closed or self._stdin.broken:
            raise ToolError(f"{self.name} does not read any more: it is {self.status}.")
        self._stdin.post(text.encode("utf-8", "surrogateescape"))

    def stop(self, grace: float = _GRACE) -> None:
        """End it with everything that it started: TERM now, KILL after `grace` seconds."""
        if not self.ended.done():
            self._process.stop(grace)

    def end_with_loop(self) -> None:
        """The loop was closed: end it and wait for that."""
        if not self.ended.done():
            end_process(self._process)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, or the program has ended."""
        while not is_so() and not self.ended.done():
            self._changed.clear()
            await self._changed.wait()

    def _decoded(self) -> Callable[[bytes], None]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        def add(data: bytes) -> None:
            text = self._unread + decoder.decode(data, final=not data)
            self._left_out += max(0, len(text) - _MAX_UNREAD)
            self._unread = text[-_MAX_UNREAD:]
            self._changed.set()

        return add

    def _on_change(self) -> None:
        if self._process.gone and not self.ended.done():
            for stream, add in self._outputs:
                stream.drain(add)
                stream.close()
            self._stdin.close()
            self._process.close()
            self.ended.set_result(None)
        self._changed.set()


class BackgroundProcesses(Struct, eq=False):
    """The background processes of a task, by name. They end with the last run. For the run's event loop.

    While the task waits for a person, they go on; those of a sub-agent end with its run.
    """

    by_name: dict[str, BackgroundProcess] = field(default_factory=dict[str, BackgroundProcess])
    closed: bool = False

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        inherit_env: bool | Collection[str] = False,
        sandbox: bool = False,
    ) -> BackgroundProcess:
        """Start a program and wait until it runs. The options are those of `ToolContext.run_process`.

        Raises `ToolError` when it cannot be started, and when the run is ending.
        """
        if self.closed:
            raise ToolError("The run is ending: nothing is started any more.")
        name = f"p{len(self.by_name) + 1}"
        environment = program_environment(env, inherit=inherit_env)
        process = BackgroundProcess(name, checked_argv(argv), absolute_cwd(cwd), environment, sandbox=sandbox)
        self.by_name[name] = process
        await process.begun()
        return process

    def get(self, name: str) -> BackgroundProcess:
        """The process with this name. Raises `ToolError` when there is none."""
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none runs in this task now"
            raise ToolError(f"There is no process {name!r}. There are: {known}.")
        return self.by_name[name]

    async def end(self, shield: BoundedShield, urgent: asyncio.Future[None]) -> None:
        """End them all: TERM now, KILL after a grace, or at once when `urgent` is done."""
        ends = [each.ended for each in self.by_name.values()]
        for grace in (0.0,) if urgent.done() else (_GRACE, 0.0):
            for each in self.by_name.values():
                each.stop(grace)
            await shield.wait(ends, seconds=grace + EXIT_GRACE, unless=urgent if grace else None)

    def end_with_loop(self) -> None:
        """The loop was closed: end them all and wait for that."""
        self.closed = True
        for each in self.by_name.values():
            each.end_with_loop()

    def end_soon(self) -> None:
        """End them all, and start no more, unless that was done: TERM now, KILL after a grace. Returns at once."""
        if not self.closed:
            self.closed = True
            for each in self.by_name.values():
                each.stop()

    @property
    def states(self) -> tuple[str, ...]:
        """Each with its command and what is known about it, for the receipt."""
        return tuple(f"{name} ({each.command}): {each.status}" for name, each in self.by_name.items())

    def still_running(self) -> tuple[str, ...]:
        """The names, for the receipt, of those that have not ended."""
        return tuple(each.label for each in self.by_name.values() if not each.ended.done())


class PausedProcesses:
    """Background processes of a task that waits for a person. A task of their event loop ends them with the loop."""

    def __init__(self, processes: BackgroundProcesses) -> None:
        self._processes: Final = processes
        self._loop: Final = asyncio.get_running_loop()
        self._pid: Final = os.getpid()
        self._over: Final[asyncio.Future[bool]] = self._loop.create_future()
        self._guard: Final = self._loop.create_task(self._wait(), name="background processes of a task that waits")

    def take(self) -> BackgroundProcesses | None:
        """The processes, for the run that goes on. None when they belong to another event loop; they end then."""
        if self._pid != os.getpid() or asyncio.get_running_loop() is not self._loop or self._over.done():
            self.end()
            return None
        self._over.set_result(True)
        return self._processes

    def end(self) -> None:
        """End them: the task does not go on. From any thread. A forked child leaves them to its parent."""
        if self._pid != os.getpid():
            return
        if self._loop.is_closed():
            close_coroutine(self._guard)
        else:
            self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if not self._over.done():
            self._over.set_result(False)

    async def _wait(self) -> None:
        taken = False
        try:
            taken = await self._over
        except GeneratorExit:  # the loop was closed around it
            self._processes.end_with_loop()
            taken = True
            raise
        finally:
            if not taken:
                self._processes.closed = True
                await self._processes.end(BoundedShield("ending background processes"), self._loop.create_future())
