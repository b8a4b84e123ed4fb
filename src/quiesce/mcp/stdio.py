"""An MCP server that this process starts: its pipes, and its end together with everything that it started.

The server is a program under a supervisor, like the programs that tools run. To end it, its stdin is closed, which asks
it to exit; then its whole process tree gets TERM, and what is left KILL, each within a time limit. What a server leaves
running when it exits is killed with it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec import Struct

from ..cancellation import BoundedShield
from ..errors import ConfigurationError
from ..processes.environment import small_environment

if TYPE_CHECKING:
    from ..processes.stream_end import StreamEnd
    from ..processes.supervised import SupervisedProcess
    from ..processes.supervisor import ProgramJob

# How long a server may take to exit once its stdin is closed, to obey TERM, and to be gone after KILL.
LEAVE_GRACE: Final = 1.0
TERM_GRACE: Final = 1.0
KILL_GRACE: Final = 1.0

_KEPT_STDERR_LINES: Final = 50
_LONGEST_STDERR_LINE: Final = 10_000
# Reading pauses above this many unread bytes: a server that writes too fast waits.
_MOST_UNREAD: Final = 1_000_000
# The size limit of one message: enough for large images, and an end for a server that never ends its line.
LONGEST_MESSAGE: Final = 64 * 1024 * 1024
# Marks an error answer that this process made because the server gave none.
NO_ANSWER: Final = "quiesce: no answer"


class ServerCommand(Struct, frozen=True):
    """How a server is started."""

    argv: tuple[str, ...]
    env: dict[str, str] | None = None
    cwd: str | None = None


class _MessageLines:
    """The lines of a server's stdout. Reading pauses while too many of them are unread."""

    def __init__(self, stream: StreamEnd, on_too_long: Callable[[], None]) -> None:
        self._stream: Final = stream
        self._on_too_long: Final = on_too_long
        self._lines: Final[deque[bytes]] = deque()
        self._incomplete = bytearray()
        self._unread = 0
        self._changed: Final = asyncio.Event()
        self._at_end = False

    def add(self, data: bytes) -> None:
        """More output of the server; empty bytes mean the end."""
        if not data:
            self.end()
        elif b"\n" in data:
            first, *lines, rest = data.split(b"\n")
            lines.insert(0, bytes(self._incomplete) + first)
            self._incomplete[:] = rest
            self._add_lines([line for line in lines if line.strip()])
        else:  # a long message comes in many pieces
            self._incomplete += data
            if len(self._incomplete) > LONGEST_MESSAGE:
                self._incomplete.clear()
                self._on_too_long()

    def _add_lines(self, lines: list[bytes]) -> None:
        self._lines.extend(lines)
        self._unread += sum(map(len, lines))
        if self._unread > _MOST_UNREAD:
            self._stream.pause()
        if self._lines:
            self._changed.set()

    def end(self) -> None:
        """There will be no more."""
        self._at_end = True
        self._changed.set()

    async def receive(self) -> bytes | None:
        """The next line; None after the last one."""
        while not self._lines:
            if self._at_end:
                return None
            self._changed.clear()
            await self._changed.wait()
        line = self._lines.popleft()
        self._unread -= len(line)
        if not self._lines:
            self._stream.resume()
        return line


class _LastLines:
    """The last lines of a server's stderr."""

    def __init__(self) -> None:
        self.lines: Final[deque[str]] = deque(maxlen=_KEPT_STDERR_LINES)
        self._incomplete = b""

    def add(self, data: bytes) -> None:
        """More output; empty bytes mean the end."""
        *lines, self._incomplete = (self._incomplete + data).split(b"\n")
        if self._incomplete and (not data or len(self._incomplete) > _LONGEST_STDERR_LINE):
            lines, self._incomplete = [*lines, self._incomplete], b""
        self.lines.extend(line.decode(errors="replace") for line in lines)


class ServerProcess:
    """A running server: its messages line by line, and its end."""

    def __init__(self, supervised: SupervisedProcess, stdin: StreamEnd, stdout: StreamEnd, stderr: StreamEnd) -> None:
        loop = asyncio.get_running_loop()
        self.started: Final[asyncio.Future[None]] = loop.create_future()
        """Done when the server runs, or could not be started."""
        self.exited: Final[asyncio.Future[None]] = loop.create_future()
        self.read_out: Final[asyncio.Future[None]] = loop.create_future()
        """Done when all output of the server has been read, and there will be no more."""
        self._gone: Final[asyncio.Future[None]] = loop.create_future()
        self.fault = ""
        """Why the connection was ended from this side, in words."""
        self.supervised: Final = supervised
        self._stdin: Final = stdin
        self._stdout: Final = stdout
        self._stderr: Final = stderr
        self._messages: Final = _MessageLines(stdout, self._on_too_long)
        self._last_lines: Final = _LastLines()
        self._writable: Final = asyncio.Event()
        stdout.attach(loop, self._messages.add)
        stderr.attach(loop, self._last_lines.add)
        stdin.attach_writer(loop, self._writable.set)
        # A server is up for as long as its user likes: a virtual clock does not wait for it.
        supervised.attach(loop, self._on_change, awaited=False)

    @classmethod
    async def start(cls, command: ServerCommand) -> ServerProcess:
        """Start a server. Raises `ConfigurationError` when that is not possible."""
        if sys.platform == "win32":
            raise ConfigurationError(
                "MCP servers cannot be started on Windows: they could not be ended there with all that they started.",
                todo="Start the server yourself, and use MCPServer.http(...).",
            )
        from ..processes.supervised import start_program

        try:
            process = cls(*start_program(_job(command)))
        except (OSError, ValueError) as error:
            raise _cannot_start(command, str(error)) from error
        try:
            await asyncio.wait((process.started,))
        except asyncio.CancelledError:
            process.close()
            raise
        if process.supervised.failure is not None:
            process.close()
            raise _cannot_start(command, process.supervised.failure)
        return process

    def _on_change(self) -> None:
        supervised = self.supervised
        started = supervised.child is not None or supervised.failure is not None
        for future, is_done in (
            (self.started, started or supervised.gone),
            (self.exited, supervised.exit is not None or supervised.gone),
            (self._gone, supervised.gone),
        ):
            if is_done and not future.done():
                future.set_result(None)

    @property
    def pid(self) -> int:
        """The server's process id, which is its group's too."""
        assert self.supervised.child is not None
        return self.supervised.child

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while the server runs."""
        return None if self.supervised.exit is None else self.supervised.exit.code

    @property
    def stderr(self) -> deque[str]:
        """The last lines of the server's stderr."""
        return self._last_lines.lines

    # --- Messages -----------------------------------------------------------------------------------------------

    async def receive(self) -> bytes | None:
        """The next line; None once there will be no more."""
        return await self._messages.receive()

    async def send(self, line: bytes) -> bool:
        """Write a line, and wait until the pipe has taken it. Whether the server still reads."""
        if self.exited.done() or self._stdin.closed:
            return False
        self._writable.clear()
        self._stdin.post(line + b"\n")
        if self._stdin.pending:
            await self._writable.wait()
        return not self._stdin.broken

    def _on_too_long(self) -> None:
        self.fault = f"it sent a message of more than {LONGEST_MESSAGE >> 20} MB"
        self._stdout.close()
        self._messages.end()

    # --- Ending -------------------------------------------------------------------------------------------------

    async def end(self, shield: BoundedShield) -> None:
        """End the server and everything that it started. Bounded; a cancellation from outside does not break it."""
        try:
            self._stdin.close()
            await shield.wait((self.exited,), seconds=LEAVE_GRACE)
            self.supervised.stop(TERM_GRACE)
            await shield.wait((self._gone,), seconds=TERM_GRACE + KILL_GRACE)
        finally:
            self._stderr.drain(self._last_lines.add)
            self.close()

    def close(self) -> None:
        """Close the pipes. A process that is still there is killed."""
        for stream in (self._stdin, self._stdout, self._stderr, self.supervised):
            stream.close()
        self._messages.end()
        self._writable.set()


def _job(command: ServerCommand) -> ProgramJob:
    from ..processes.supervisor import ProgramJob

    # Only what is harmless is inherited: a server must not see the keys in this process's environment.
    environment = {**small_environment(), **(command.env or {})}
    return ProgramJob(command.argv, str(Path(command.cwd or ".").absolute()), environment)


def _cannot_start(command: ServerCommand, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"The MCP server {command.argv[0]!r} cannot be started: {reason}.", todo="Check the command."
    )


@asynccontextmanager
async def stdio_transport(process: ServerProcess) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams that the SDK's client talks through. Leaving the context stops the traffic, not the server."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    to_client, from_server = anyio.create_memory_object_stream[Any](0)
    # Unbounded, so that a request to stop never waits for a server that does not read.
    to_server, from_client = anyio.create_memory_object_stream[Any](inf)

    async def read() -> None:
        async with to_client:
            while (line := await process.receive()) is not None:
                try:
                    message: Any = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except ValueError as error:
                    message = error
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await to_client.send(message)
        process.read_out.set_result(None)

    async def write() -> None:
        async with from_client:
            async for message in from_client:
                text: str = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                if not await process.send(text.encode()):
                    if not process.exited.done():  # it reads no more: pending requests fail now
                        await to_client.aclose()
                    return  # the last messages of a server that has exited are read first

    async with anyio.create_task_group() as group, from_server, to_server:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield from_server, to_server
        finally:
            group.cancel_scope.cancel()


def as_command(argv: Sequence[str], env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None) -> ServerCommand:
    """A command from what a user gave. Raises `ConfigurationError` for an empty one, and for what is no text."""
    if not argv or not argv[0]:
        raise ConfigurationError("An MCP server needs a command.", todo='MCPServer.stdio("uvx", "mcp-server-git")')
    try:
        return ServerCommand(
            tuple(map(os.fspath, argv)), None if env is None else dict(env), None if cwd is None else os.fspath(cwd)
        )
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"The MCP server {argv[0]!r} cannot be started like this: {error}.",
            todo="Use texts, env as a dictionary of texts, and a folder.",
        ) from None
