"""Where an MCP server is, and how to get to it: one that we start, or one that is somewhere else."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from .stdio import (
    KILL_GRACE,
    LEAVE_GRACE,
    LONGEST_MESSAGE,
    TERM_GRACE,
    ServerCommand,
    ServerProcess,
    stdio_transport,
)

if TYPE_CHECKING:
    from .connection import MCPConnection

# The seconds that closing a connection may take to a server that we did not start.
_GOODBYE: Final = 2.0
_KEY_IN_PATH: Final = re.compile(r"(?<!/)/(?=[^/]*\d)[^/]{16,}")


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

    @property
    def comes_back(self) -> bool:
        """Whether a new connection may be made without being asked, because nothing is started for it."""
        ...

    def open(self, connection: MCPConnection) -> Any:
        """An async context manager that gives the SDK's client."""
        ...


class StdioTarget(Struct, frozen=True):
    """A server that we start."""

    command: ServerCommand

    @property
    def label(self) -> str:
        """The name of the program."""
        return os.path.basename(self.command.argv[0])

    @property
    def close_bound(self) -> float:
        """The steps of `ServerProcess.end`, and time for a slow machine."""
        return LEAVE_GRACE + TERM_GRACE + KILL_GRACE + _GOODBYE

    @property
    def comes_back(self) -> bool:
        """False: only `restart()` starts a server again."""
        return False

    @asynccontextmanager
    async def open(self, connection: MCPConnection) -> AsyncGenerator[Any]:
        """Start the server and talk to it; end it, with all that it started, whatever happens."""
        from mcp import Client

        loop = asyncio.get_running_loop()
        process = await ServerProcess.start(self.command)
        connection.process = process
        # It has said all that it will ever say; or it has ended, and only what it started still holds its stdout.
        process.read_out.add_done_callback(connection.leave)
        process.exited.add_done_callback(lambda _: loop.call_later(LEAVE_GRACE, connection.leave))
        try:
            async with Client(stdio_transport(process), **connection.client_options()) as client:
                yield client
        finally:
            await process.end(connection.shield)


class HttpTarget(Struct, frozen=True):
    """A server that is somewhere else. The headers may hold a secret, so only the address is ever shown."""

    url: str
    headers: dict[str, str]

    @property
    def label(self) -> str:
        """The address, without what may be secret in it: some servers have a key in the path."""
        return _KEY_IN_PATH.sub("/***", re.split("[?#]", self.url)[0].rpartition("@")[2])

    @property
    def close_bound(self) -> float:
        """The time limit for ending the session: the server may not answer any more."""
        return _GOODBYE

    @property
    def comes_back(self) -> bool:
        """True: a server that was away, or has forgotten the session, gets a new connection."""
        return True

    @asynccontextmanager
    async def open(self, connection: MCPConnection) -> AsyncGenerator[Any]:
        """Connect to the server; gives the SDK's client."""
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        from .http import ServerClient

        async with (
            ServerClient(self.headers, connection.on_session_expired) as http,
            Client(
                streamable_http_client(self.url, http_client=http, max_sse_event_size=LONGEST_MESSAGE),
                **connection.client_options(),
            ) as client,
        ):
            yield client
