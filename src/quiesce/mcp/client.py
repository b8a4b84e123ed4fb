"""Tools, resources and prompts from MCP servers (extra: `quiesce[mcp]`).

    async with MCPServer.stdio("uvx", "mcp-server-git") as git:
        agent = Agent(model, tools=[git])

A connection is bound to the task that opened it, so it has a task of its own; calls come from any run, in any event
loop. A call that is stopped notifies the server (`notifications/cancelled`, or by closing its request where the
protocol asks for that), does not wait for an answer, and leaves the connection usable.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Mapping
from os import PathLike
from typing import Any, Final, Self, TypeVar

from msgspec import Struct

from .._threads.background_loop import Portal, portal
from ..conversation.sealing import SENTENCES
from ..errors import ConfigurationError, ToolError
from ..messages import Outcome, ResultContent, Text, ToolResult
from ..tools.context import ToolContext
from ..tools.output import well_formed_value
from .connection import MCPConnection
from .content import block_content, resource_content, result_content
from .elicitation import Elicitation, UnansweredElicitation
from .stdio import as_command
from .tool import SchemaTool, ToolAnnotations, legal_names
from .transports import HttpTarget, StdioTarget, Target

_T = TypeVar("_T")

# The first version of the protocol without a handshake.
_FIRST_MODERN: Final = "2026-07-28"
CANCEL_SENT: Final = f"{SENTENCES[Outcome.UNKNOWN]} The server was told to stop."


class MCPResource(Struct, frozen=True):
    """A resource of a server."""

    uri: str
    name: str
    description: str = ""
    media_type: str | None = None


class MCPResourceTemplate(Struct, frozen=True):
    """A template for resources of a server: `read_resource` takes the address with the braces filled in."""

    uri_template: str
    name: str
    description: str = ""
    media_type: str | None = None


class MCPPrompt(Struct, frozen=True):
    """A prompt of a server, and the names of its arguments."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()


class PromptPart(Struct, frozen=True):
    """One message of a prompt."""

    role: str
    content: tuple[ResultContent, ...]


class MCPServer:
    """A connection to an MCP server, usable as a set of tools: `Agent(model, tools=[server])`.

    It is connected inside `async with`, or inside `with` for code without an event loop. A stdio server is ended, with
    everything that it started, when the block is left. After a server has died, calls of its tools return an error;
    `restart()` starts it again.

    prefix           goes before the name of each tool, for servers whose tools have the same names
    only             the tools to use, by the server's names; all of them unless given
    grace            seconds that a stopped call has to notify the server
    connect_timeout  seconds that connecting may take
    protocol         the version of the protocol: "auto" for the newest that the server speaks, "legacy" for the newest
                     before 2026-07-28, or a version from then on
    elicitation      whether the server may ask a person in the middle of a call: the run then ends with an interrupt,
                     and the call is made again, from its beginning, when there is an answer
    """

    def __init__(
        self,
        target: Target,
        *,
        prefix: str = "",
        only: Collection[str] | None = None,
        grace: float = 2.0,
        connect_timeout: float = 30.0,
        protocol: str = "auto",
        elicitation: bool = False,
    ) -> None:
        self._target: Final = target
        self._prefix: Final = prefix
        self._only: Final = only
        self._grace: Final = grace
        self._connect_timeout: Final = connect_timeout
        self._protocol: Final = _checked_protocol(protocol)
        self._may_elicit: Final = elicitation
        self._elicitation: Elicitation | None = None
        self._connection: MCPConnection | None = None
        self._tools: tuple[SchemaTool, ...] = ()
        self._portal: Portal | None = None

    @classmethod
    def stdio(
        cls,
        command: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """A server that is started as a process and used over stdio.

        Its environment has only PATH, HOME and the like from this process, so that no key leaks to it, and `env`.
        """
        return cls(StdioTarget(as_command((command, *args), env, cwd)), **options)

    @classmethod
    def http(cls, url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> Self:
        """A server that is used over streamable HTTP."""
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"{url!r} is not the address of an MCP server.", todo="Use http:// or https://.")
        return cls(HttpTarget(url, dict(headers or {})), **options)

    def __repr__(self) -> str:
        state = "not connected" if self._connection is None else f"{len(self._tools)} tools"
        return f"<MCPServer {self._target.label}, {state}>"

    # --- Connecting ---------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect and list the tools. Raises `ConfigurationError` when the server cannot be reached or started."""
        if self._connection is not None:
            raise ConfigurationError(f"{self!r} is connected already.", todo="Leave the first block before the next.")
        if self._may_elicit:
            self._elicitation = Elicitation(is_stdio=isinstance(self._target, StdioTarget))
        connection = MCPConnection(self._target, self._list_tools, self._elicitation, self._protocol)
        try:
            await connection.open(self._connect_timeout)
            async with asyncio.timeout(self._connect_timeout):
                await self._list_tools(connection)
        except BaseException as error:
            await connection.close()
            if isinstance(error, TimeoutError | ToolError):
                raise self._list_error(error) from error
            raise
        self._connection = connection

    def _list_error(self, error: TimeoutError | ToolError) -> ConfigurationError:
        why = str(error) or f"The MCP server {self._target.label} did not answer within {self._connect_timeout:g} s."
        return ConfigurationError(f"The tools of an MCP server cannot be listed. {why}", todo="Check the server.")

    async def _list_tools(self, connection: MCPConnection) -> None:
        """Read the server's tools: when connecting, and after each change."""
        every = await connection.call(lambda client: _listed(client, "tools", "tools"))
        listed = {each.name: each for each in every if self._only is None or each.name in self._only}
        self._tools = tuple(map(self._tool, listed.values(), legal_names(tuple(listed), self._prefix)))

    async def close(self) -> None:
        """Disconnect, and end a stdio server. Bounded in time; a cancellation is raised afterwards."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def restart(self) -> None:
        """Disconnect and connect again, after a server has died. The tools of existing agents keep working."""
        await self.close()
        await self.connect()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> Self:
        self._portal = portal()
        try:
            self._portal.run(self.connect)
            return self
        except BaseException:  # also an exception of a signal handler, after connecting
            self._portal.run(self.close)
            raise

    def __exit__(self, *_: object) -> None:
        assert self._portal is not None
        self._portal.run(self.close)

    # --- Using --------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> tuple[SchemaTool, ...]:
        """The server's current tools: a server may change them. An agent keeps those that it was made with.

        Raises `ConfigurationError` while it is not connected.
        """
        if self._connection is None:
            raise ConfigurationError(f"{self!r} has no tools yet.", todo="Use it inside `async with` or `with`.")
        return self._tools

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of a stdio server's stderr. Never sent to a model."""
        return () if self._connection is None else self._connection.stderr

    @property
    def instructions(self) -> str | None:
        """The server's instructions for its use."""
        return None if self._connection is None else self._connection.instructions

    async def resources(self) -> tuple[MCPResource, ...]:
        """The server's resources."""
        listed = await self._call(lambda client: _listed(client, "resources", "resources"))
        return tuple(MCPResource(str(r.uri), r.name, r.description or "", r.mime_type) for r in listed)

    async def resource_templates(self) -> tuple[MCPResourceTemplate, ...]:
        """The server's resource templates: addresses with names in braces to fill in."""
        listed = await self._call(lambda client: _listed(client, "resource_templates", "resources"))
        return tuple(MCPResourceTemplate(t.uri_template, t.name, t.description or "", t.mime_type) for t in listed)

    async def read_resource(self, uri: str) -> tuple[ResultContent, ...]:
        """Read a resource. Raises `ToolError` when the server refuses."""
        result = await self._call(lambda client: client.read_resource(well_formed_value(uri)))
        return tuple(resource_content(each) for each in result.contents)

    async def prompts(self) -> tuple[MCPPrompt, ...]:
        """The server's prompts."""
        listed = await self._call(lambda client: _listed(client, "prompts", "prompts"))
        return tuple(MCPPrompt(p.name, p.description or "", tuple(a.name for a in p.arguments or ())) for p in listed)

    async def prompt(self, name: str, /, **arguments: str) -> tuple[PromptPart, ...]:
        """Have the server fill in a prompt. Raises `ToolError` when it refuses."""
        result = await self._call(lambda client: client.get_prompt(name, well_formed_value(arguments)))
        return tuple(PromptPart(each.role, tuple(block_content(each.content))) for each in result.messages)

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run one of the methods above without an event loop: `server.wait_for(server.resources)`."""
        return (self._portal or portal()).run(work)

    async def _call(self, request: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        if self._connection is None:
            raise ToolError(f"The MCP server {self._target.label} is not connected.")
        return await self._connection.call(request)

    # --- Tools --------------------------------------------------------------------------------------------------

    def _tool(self, listed: Any, name: str) -> SchemaTool:
        server_name: str = listed.name

        async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
            return await self._call_tool(server_name, arguments, context)

        return SchemaTool(
            call,
            name=name,
            description=listed.description or listed.title or server_name,
            schema=listed.input_schema,
            grace=self._grace,
            annotations=_annotations(listed),
        )

    async def _call_tool(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        async def progress(done: float, total: float | None, message: str | None) -> None:
            context.report({"progress": done, "total": total, "message": message})

        async def request(client: Any) -> Any:
            def call() -> Coroutine[Any, Any, Any]:
                return client.call_tool(name, well_formed_value(arguments), progress_callback=progress)

            elicitation = self._elicitation
            return await (call() if elicitation is None else elicitation.make(client, call, context.answers))

        try:
            result = await self._call(request)
        except UnansweredElicitation as unanswered:
            return context.interrupt(unanswered.name, unanswered.reason)  # which leaves the tool
        except asyncio.CancelledError:
            # The SDK has notified the server. Whether the server stopped is not known, and the result says so.
            content = (Text(CANCEL_SENT),)
            return ToolResult(context.call_id, context.tool_name, content, Outcome.UNKNOWN, is_error=True)
        content, structured = result_content(result), result.structured_content
        if not isinstance(structured, dict):
            structured = None
        return ToolResult(
            context.call_id,
            context.tool_name,
            content,
            is_error=bool(result.is_error),
            structured_content=structured,  # pyright: ignore[reportUnknownArgumentType]
        )


def _checked_protocol(protocol: str) -> str:
    is_date = isinstance(protocol, str) and re.fullmatch(r"20\d\d-\d\d-\d\d", protocol)  # pyright: ignore[reportUnnecessaryIsInstance]
    if protocol in ("auto", "legacy") or (is_date and protocol >= _FIRST_MODERN):
        return protocol
    raise ConfigurationError(
        f"protocol={protocol!r} cannot be asked for.",
        todo=f'Use "auto", "legacy" for what was before {_FIRST_MODERN}, or a version from then on.',
    )


def _annotations(listed: Any) -> ToolAnnotations:
    said = listed.annotations
    names = {"read_only_hint": "read_only", "destructive_hint": "destructive", "idempotent_hint": "idempotent"}
    names["open_world_hint"] = "open_world"
    hints = {ours: getattr(said, theirs, None) for theirs, ours in names.items()}
    title = listed.title or getattr(said, "title", None) or ""
    return ToolAnnotations(title, **{name: hint for name, hint in hints.items() if hint is not None})


async def _listed(client: Any, what: str, capability: str) -> list[Any]:
    """All pages of one of the server's lists; empty when the server does not offer it."""
    if getattr(client.server_capabilities, capability) is None:
        return []
    found: list[Any] = []
    seen: set[str | None] = set()
    cursor: str | None = None
    while cursor not in seen:
        seen.add(cursor)
        page = await getattr(client, f"list_{what}")(cursor=cursor)
        found.extend(getattr(page, what))
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise ToolError(f"The server lists its {what} without end: the page {cursor!r} comes twice.")
