"""An MCP server that we start: its pipes, and how it is ended together with everything that it started.

The server runs in a session and process group of its own. To end it, its stdin is closed, which asks it to leave; then
the whole group gets TERM, and what is left KILL, each within a bound. On Linux, processes of the server that left its
group are found by a mark in their environment, and ended too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, Final

import anyio
from msgspec import Struct

from ..cancellation import BoundedShield
from ..errors import ConfigurationError
from ..processes.environment import MARK, small_environment
from ..processes.kill_tree import LINUX, descendants, is_dead, process_ids

# How long a server may take to leave by itself once its stdin is closed, to heed TERM, and to be gone after KILL.
LEAVE_GRACE: Final = 1.0
TERM_GRACE: Final = 1.0
KILL_GRACE: Final = 1.0

_KEPT_STDERR: Final = 50
_LONGEST_COMPLAINT: Final = 10_000
# A server that is not read from must wait, not fill our memory.
_UNREAD: Final = 1_000_000
# What one message may have: room for every picture, and an end for a server that never ends its line.
LONGEST_MESSAGE: Final = 64 * 1024 * 1024
# Goes with an error that we answer in the place of a server that did not.
NO_ANSWER: Final = "quiesce: no answer"


class Command(Struct, frozen=True):
    """How a server is started."""

    argv: tuple[str, ...]
    env: dict[str, str] | None = None
    cwd: str | None = None


class ServerProcess(asyncio.SubprocessProtocol):
    """A running server: its messages line by line, and its end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.exited: Final[asyncio.Future[None]] = loop.create_future()
        self.read_out: Final[asyncio.Future[None]] = loop.create_future()
        """Done when all that the server wrote has been read, and there will be no more."""
        self.stderr: Final[deque[str]] = deque(maxlen=_KEPT_STDERR)
        self.returncode: int | None = None
        self.fault = ""
        """What the server did that cannot be borne, in words."""
        self._lines: Final[deque[bytes]] = deque()
        self._rest = bytearray()
        self._rest_of_stderr = b""
        self._unread = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._eof = False
        self._transport: asyncio.SubprocessTransport | None = None
        self.mark: Final = uuid.uuid4().hex

    @classmethod
    async def start(cls, command: Command) -> ServerProcess:
        """Start a server. Raises `ConfigurationError` when that is not possible."""
        if sys.platform == "win32":
            raise ConfigurationError(
                "MCP servers cannot be started on Windows: they could not be ended there with all that they started.",
                todo="Start the server yourself, and use MCPServer.http(...).",
            )
        loop = asyncio.get_running_loop()
        process = cls()
        # Only what is harmless is inherited: the keys in this process's environment are none of the server's business.
        environment = {**small_environment(), **(command.env or {}), MARK: process.mark}
        try:
            await loop.subprocess_exec(
                lambda: process, *command.argv, env=environment, cwd=command.cwd, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"The MCP server {command.argv[0]!r} cannot be started: {error}.", todo="Check the command."
            ) from error
        return process

    @property
    def pid(self) -> int:
        """The server's process id, which is its group's too."""
        assert self._transport is not None
        return self._transport.get_pid()

    # --- What asyncio calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process has started."""
        assert isinstance(transport, asyncio.SubprocessTransport) or hasattr(transport, "get_pid")
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue]

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """The server wrote something."""
        if fd == 2:
            *lines, self._rest_of_stderr = (self._rest_of_stderr + data).split(b"\n")
            if len(self._rest_of_stderr) > _LONGEST_COMPLAINT:
                lines, self._rest_of_stderr = [*lines, self._rest_of_stderr], b""
            self.stderr.extend(line.decode(errors="replace") for line in lines)
            return
        if b"\n" in data:
            first, *lines, rest = data.split(b"\n")
            lines.insert(0, bytes(self._rest) + first)
            self._rest[:] = rest
            self._take(lines)
        else:  # a long message comes in many pieces
            self._rest += data
            if len(self._rest) > LONGEST_MESSAGE:
                self._give_up(f"it sent a message of more than {LONGEST_MESSAGE >> 20} MB")

    def _take(self, lines: list[bytes]) -> None:
        whole = [line for line in lines if line.strip()]
        self._lines.extend(whole)
        self._unread += sum(map(len, whole))
        if self._unread > _UNREAD:
            self._pipe(1, "pause_reading")
        if self._lines:
            self._more.set()

    def _give_up(self, fault: str) -> None:
        self.fault = fault
        self._rest.clear()
        self._pipe(1, "close")

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """The server closed a pipe, or is gone."""
        del exc
        if fd == 1:
            self._eof = True
            self._more.set()
        if fd == 2 and self._rest_of_stderr:
            self.stderr.append(self._rest_of_stderr.decode(errors="replace"))
            self._rest_of_stderr = b""
        if fd == 0:
            self._room.set()

    def process_exited(self) -> None:
        """The server itself has ended; others may still hold its pipes."""
        self.returncode = None if self._transport is None else self._transport.get_returncode()
        if not self.exited.done():
            self.exited.set_result(None)

    def pause_writing(self) -> None:
        """The server does not read as fast as we write."""
        self._room.clear()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._room.set()

    # --- Talking ------------------------------------------------------------------------------------------------

    async def receive(self) -> bytes | None:
        """The next line; None once there will be no more."""
        while not self._lines:
            if self._eof:
                return None
            self._more.clear()
            await self._more.wait()
        line = self._lines.popleft()
        self._unread -= len(line)
        if not self._lines:
            self._pipe(1, "resume_reading")
        return line

    async def send(self, line: bytes) -> bool:
        """Write a line. Whether there is still somebody to write to."""
        await self._room.wait()
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        if pipe is None or pipe.is_closing() or self.exited.done():
            return False
        assert isinstance(pipe, asyncio.WriteTransport) or hasattr(pipe, "write")
        pipe.write(line + b"\n")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return True

    def _pipe(self, fd: int, method: str) -> None:
        pipe: Any = None if self._transport is None else self._transport.get_pipe_transport(fd)
        with suppress(RuntimeError, AttributeError):
            if pipe is not None and not pipe.is_closing():
                getattr(pipe, method)()

    # --- Ending -------------------------------------------------------------------------------------------------

    async def end(self, shield: BoundedShield) -> None:
        """End the server and everything that it started. Bounded; a cancellation from outside does not break it."""
        transport = self._transport
        if transport is None:
            return
        family = Family(self.pid, self.mark)
        try:
            stdin = transport.get_pipe_transport(0)
            if stdin is not None:
                stdin.close()
            await shield.wait((self.exited,), seconds=LEAVE_GRACE)
            if family.signal(signal.SIGTERM):
                await shield.wait((self.exited, *family.ends()), seconds=TERM_GRACE)
            if family.signal(signal.SIGKILL):
                await shield.wait((self.exited, *family.ends()), seconds=KILL_GRACE)
        finally:
            family.close()
        with suppress(PermissionError):
            transport.close()


class Family:
    """A server's process group, and on Linux also those of its processes that have left the group.

    These are known by their mark, or because they were below the server when it still lived. One that leaves the group,
    has lost its parent and has an environment of its own is not found.
    """

    def __init__(self, leader: int, mark: str) -> None:
        self._leader: Final = leader
        self._needle: Final = f"{MARK}={mark}".encode()
        self._ends: Final[dict[int, tuple[int, asyncio.Future[None]]]] = {}
        for pid in descendants(leader) if LINUX else ():
            self._watch(pid)

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to everybody who is left. Whether there was anybody."""
        reached = False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, number)
            reached = True
        for pid in self._members():
            self._watch(pid)
        for handle, ended in self._ends.values():
            with suppress(ProcessLookupError, PermissionError):
                if not ended.done():  # through the handle, because the number may be another's by now
                    signal.pidfd_send_signal(handle, number)
                    reached = True
        return reached

    def _members(self) -> set[int]:
        if not LINUX:
            return set()
        return {pid for pid in process_ids() if self._belongs(pid)}

    def _belongs(self, pid: int) -> bool:
        try:
            environment = Path("/proc", str(pid), "environ").read_bytes()
        except OSError:  # it has ended, or is somebody else's
            return False
        return self._needle in environment.split(b"\0") and not is_dead(pid)

    def _watch(self, pid: int) -> None:
        """Have a future that is done when the process is gone."""
        if pid in self._ends or not hasattr(os, "pidfd_open"):
            return
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return
        self._ends[pid] = (handle, ended)

        def gone() -> None:
            loop.remove_reader(handle)
            if not ended.done():
                ended.set_result(None)

        loop.add_reader(handle, gone)

    def ends(self) -> list[asyncio.Future[None]]:
        """For each process that is watched, its end."""
        return [ended for _, ended in self._ends.values()]

    def close(self) -> None:
        """Stop watching."""
        loop = asyncio.get_running_loop()
        for handle, _ in self._ends.values():
            loop.remove_reader(handle)
            os.close(handle)
        self._ends.clear()


@asynccontextmanager
async def stdio_transport(process: ServerProcess) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams that the SDK's client talks through. Leaving the context stops the traffic, not the server."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    to_client, from_server = anyio.create_memory_object_stream[Any](0)
    # With room without end, telling the server to stop never has to wait for a server that does not read.
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
                    if not process.exited.done():  # it hears no more: whoever waits for an answer learns of it
                        await to_client.aclose()
                    return  # else what it had still said is read first

    async with anyio.create_task_group() as group, from_server, to_server:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield from_server, to_server
        finally:
            group.cancel_scope.cancel()


def as_command(argv: Sequence[str], env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None) -> Command:
    """A command from what a user gave. Raises `ConfigurationError` for an empty one."""
    if not argv or not argv[0]:
        raise ConfigurationError("An MCP server needs a command.", todo='MCPServer.stdio("uvx", "mcp-server-git")')
    return Command(
        tuple(map(os.fspath, argv)), None if env is None else dict(env), None if cwd is None else os.fspath(cwd)
    )
