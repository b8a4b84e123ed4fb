"""One connection to an MCP server: a task of its own that opens it, keeps it and closes it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar

import anyio
from msgspec import Struct

from ..cancellation import BoundedShield
from ..errors import ConfigurationError, ToolError
from .mcp_process import KILL_GRACE, LEAVE_GRACE, TERM_GRACE, Command, ServerProcess, stdio_transport
from .policy import LAST_BREATH

_log: Final = logging.getLogger("quiesce")

# How long saying goodbye to a server may take that we did not start.
_GOODBYE: Final = 2.0

_T = TypeVar("_T")


class Target(Protocol):
    """Where a server is, and how to get to it."""

    @property
    def label(self) -> str:
        """What errors call the server. Holds no secret."""
        ...

    @property
    def close_bound(self) -> float:
        """How long closing may take, at most."""
        ...

    def open(self, connection: Connection) -> Any:
        """An async context manager that gives the SDK's client."""
        ...


class StdioTarget(Struct, frozen=True):
    """A server that we start."""

    command: Command

    @property
    def label(self) -> str:
        """The name of the program."""
        return os.path.basename(self.command.argv[0])

    @property
    def close_bound(self) -> float:
        """The steps of `ServerProcess.end`, and time for a slow machine."""
        return LEAVE_GRACE + TERM_GRACE + KILL_GRACE + _GOODBYE

    @asynccontextmanager
    async def open(self, connection: Connection) -> AsyncGenerator[Any]:
        """Start the server and talk to it; end it, with all that it started, whatever happens."""
        from mcp import Client

        process = await ServerProcess.start(self.command)
        connection.process = process
        try:
            transport = stdio_transport(process)
            async with Client(transport, cache=None, message_handler=connection.on_message) as client:
                yield client
        finally:
            await process.end(connection.shield)


class HttpTarget(Struct, frozen=True):
    """A server that is somewhere else. The headers may hold a secret, so only the address is ever shown."""

    url: str
    headers: dict[str, str]

    @property
    def label(self) -> str:
        """The address, without what may be secret in it."""
        return self.url.partition("?")[0].rpartition("@")[2]

    @property
    def close_bound(self) -> float:
        """The server is told; it need not be there any more."""
        return _GOODBYE

    @asynccontextmanager
    async def open(self, connection: Connection) -> AsyncGenerator[Any]:
        """Talk to the server."""
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        # A tool may take its time, so reading has no limit of its own: a stop or a deadline ends it.
        timeout = httpx2.Timeout(30.0, read=None)
        async with (
            httpx2.AsyncClient(headers=self.headers, timeout=timeout) as http,
            Client(
                streamable_http_client(self.url, http_client=http),
                cache=None,
                message_handler=connection.on_message,
            ) as client,
        ):
            yield client


class Connection:
    """Keeps a connection open in a task of its own, until `close()`. Calls come from any task of any event loop.

    `on_new_tools` is awaited, with this, each time that the server says that its tools are others now.
    """

    def __init__(self, target: Target, on_new_tools: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        _need_sdk()
        self._target: Final = target
        self._loop: Final = asyncio.get_running_loop()
        self._ready: Final[asyncio.Future[Any]] = self._loop.create_future()
        self._closing: Final = asyncio.Event()
        self._on_new_tools: Final = on_new_tools
        self._tools_changed: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._client: Any = None
        self.shield: Final = BoundedShield(f"closing {target.label}")
        self.process: ServerProcess | None = None

    # --- Living -------------------------------------------------------------------------------------------------

    async def open(self, seconds: float) -> None:
        """Connect. Raises `ConfigurationError` when that fails or takes too long."""
        self._task = asyncio.create_task(self._live(), name=f"quiesce mcp {self._target.label}")
        await asyncio.wait((self._ready, self._task), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            raise ConfigurationError(
                f"The MCP server {self._target.label} did not answer within {seconds:g} s.",
                todo="Check that it speaks MCP, or raise connect_timeout.",
            )
        self._client = self._ready.result()

    async def _live(self) -> None:
        try:
            async with self._target.open(self) as client:
                self._ready.set_result(client)
                async with anyio.create_task_group() as watching:
                    watching.start_soon(self._watch_tools, client)
                    await self._closing.wait()
                    watching.cancel_scope.cancel()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever ended it, those who call from now on are told that it has ended
            self._refuse(error)
        finally:
            self._client = None
        if self.shield.interrupted:
            raise asyncio.CancelledError

    def _refuse(self, error: BaseException) -> None:
        if self._ready.done():
            return
        refusal = ConfigurationError(
            f"The MCP server {self._target.label} cannot be used: {_in_short(error)}.",
            todo="Check the command or address, and the server's stderr.",
        )
        refusal.__cause__ = error
        self._ready.set_exception(error if isinstance(error, ConfigurationError) else refusal)

    async def close(self) -> None:
        """Disconnect, within a bound. From any event loop."""
        if asyncio.get_running_loop() is not self._loop:
            if not self._loop.is_closed():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.close(), self._loop))
            return
        if self._task is None:
            return
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # somebody has heard of it, or has stopped waiting
            self._closing.set()
        else:
            self._task.cancel()
        shield = BoundedShield(f"waiting for {self._target.label} to close")
        await shield.wait((self._task,), seconds=self._target.close_bound)
        if not self._task.done():
            self._task.cancel()
            await shield.wait((self._task,), seconds=self._target.close_bound + LAST_BREATH)
        if shield.interrupted:
            raise asyncio.CancelledError

    # --- Hearing of new tools -----------------------------------------------------------------------------------

    async def on_message(self, message: object) -> None:
        """What the SDK's client calls with what the server says unasked. Nothing may be asked of the server here."""
        import mcp_types

        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._tools_changed.set()

    async def _watch_tools(self, client: Any) -> None:
        """Where the protocol says that changes have to be asked for (2026-07-28 and later), ask for them; then wait."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        offered = client.server_capabilities.tools
        if offered is None or not offered.list_changed:
            return
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    await self._renew()  # what changed before this is not told any more
                    async for _ in changes:
                        await self._renew()
            except Exception as error:  # one who does not tell of changes is as good a server as before
                _log.debug("The MCP server %s tells no more of changes: %s", self._target.label, _in_short(error))
            return
        while True:
            await self._tools_changed.wait()
            self._tools_changed.clear()
            await self._renew()

    async def _renew(self) -> None:
        try:
            await self._on_new_tools(self)
        except ToolError as error:
            _log.warning("The new tools of an MCP server cannot be read: %s", error)

    # --- Calling ------------------------------------------------------------------------------------------------

    async def call(self, request: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        """Make a request. Raises `ToolError` for what the server refuses, and when there is no server any more."""
        if asyncio.get_running_loop() is self._loop:
            return await self._call_here(request)
        if self._loop.is_closed():
            raise ToolError(f"The MCP server {self._target.label} is not connected any more.")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._call_here(request), self._loop))

    async def _call_here(self, request: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        client = self._client
        if client is None:
            raise await self._gone()
        try:
            return await request(client)
        except asyncio.CancelledError:
            raise
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED:
                raise await self._gone() from error
            raise ToolError(f"The MCP server {self._target.label} says: {error.error.message}") from error
        except Exception as error:
            if self._client is None:
                raise await self._gone() from error
            raise ToolError(f"The call of MCP server {self._target.label} failed: {_in_short(error)}.") from error

    async def _gone(self) -> ToolError:
        if self.process is not None:  # its pipes close a moment before its exit code is known
            await asyncio.wait((self.process.exited,), timeout=LAST_BREATH)
        code = None if self.process is None else self.process.returncode
        how = "" if code is None else f" (exit code {code})"
        return ToolError(f"The MCP server {self._target.label} has ended{how}.")

    # --- Looking ------------------------------------------------------------------------------------------------

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's stderr."""
        return () if self.process is None else tuple(self.process.stderr)

    @property
    def instructions(self) -> str | None:
        """What the server says about how to use it."""
        return None if self._client is None else self._client.instructions


def _in_short(error: BaseException) -> str:
    """The first real error of what may be a group of them, in one line."""
    first: Any = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    text = str(first).splitlines()  # pyright: ignore[reportUnknownArgumentType]
    name = type(first).__name__  # pyright: ignore[reportUnknownArgumentType]
    return f"{name}: {text[0]}" if text else name


def _need_sdk() -> None:
    try:
        import mcp  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise ConfigurationError("MCP needs the extra 'mcp'.", todo="pip install 'quiesce[mcp]'") from error
