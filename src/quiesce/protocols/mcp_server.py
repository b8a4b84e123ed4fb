"""An agent as an MCP server (extra: `quiesce[mcp]`): each agent is a tool that other programs can call.

    from quiesce.protocols.mcp_server import serve

    serve(agent)                                # over stdio
    serve(agent, transport="http", port=8000)   # over streamable HTTP, at /mcp

A call is a run. When the client cancels the call (`notifications/cancelled`, or by disconnecting where the protocol
says so) the run is stopped, with cause `remote`, and has settled before the call ends. A client that disconnects stops
its runs too (cause `disconnect`), and so does the end of the server (cause `shutdown`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from ..agent import AnyAgent
from ..as_tool import tool_name
from ..cancellation import CancellationToken, Source
from ..errors import ConfigurationError, QuiesceError, public_text
from ..events import MessageAdded, TextDelta, ToolStarted
from ..messages import AssistantMessage
from ..processes.environment import hide_environment
from ..result import RunResult
from ..run.handle import Run, wait_for, wait_shielded
from ..sessions import Conversation
from .mcp_access import AccessCheck, check_public, owner_of

if TYPE_CHECKING:
    from ..server.keys import Keys

# The number of conversations that a server keeps for one owner; the least recently used one is dropped first.
KEPT_CONVERSATIONS: Final = 1000

_DISCONNECTED: Final = "quiesce.disconnected"
# The seconds after a signal in which the results of stopped runs are sent. Then all connections are closed.
_SHUTDOWN_TIMEOUT: Final = 5

# The seconds between two pieces of an answer that is being written.
_PROGRESS_INTERVAL: Final = 0.25

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What to do, in plain words."},
        "conversation": {
            "type": "string",
            "description": "To go on with an earlier conversation: the id that came with its answer.",
        },
    },
    "required": ["prompt"],
    "additionalProperties": False,
}


class AgentServer:
    """Agents as the tools of an MCP server. `sdk_server` is the SDK's server object, ready to run.

    Raises `ConfigurationError` without an agent, for two agents of one name, and when the extra is not installed.
    """

    def __init__(self, *agents: AnyAgent, name: str = "quiesce", description: str | None = None) -> None:
        try:
            from mcp.server.lowlevel import Server
        except ImportError as error:
            raise ConfigurationError("MCP needs the extra 'mcp'.", todo="pip install 'quiesce[mcp]'") from error
        self._agents: Final = {tool_name(agent.name): agent for agent in agents}
        if len(self._agents) != len(agents) or not agents:
            raise ConfigurationError("A server needs agents with different names.", todo="Agent(..., name=...)")
        self._description: Final = description
        self._conversations: Final[OrderedDict[tuple[str, str], Conversation]] = OrderedDict()
        self._runs: Final[set[Run]] = set()
        self._closing = False
        self.sdk_server: Final[Any] = Server(name, on_list_tools=self._list_tools, on_call_tool=self._call_tool)

    def http_app(self, *, keys: Keys | None = None, allowed_hosts: Sequence[str] = (), **options: Any) -> Any:
        """The server as an ASGI application, at /mcp. Other options as for the SDK's `streamable_http_app`.

        keys            the API keys: a request needs one, and conversations belong to its owner
        allowed_hosts   without keys, where something else checks the login: the values of `Host` that are accepted

        With neither, requests must come from this machine. Pages of other sites are refused.
        """
        from mcp.server.transport_security import TransportSecuritySettings

        # The SDK's own check knows only lists of hosts.
        options.setdefault("transport_security", TransportSecuritySettings(enable_dns_rebinding_protection=False))
        app = _DisconnectWatcher(self.sdk_server.streamable_http_app(**options))
        return AccessCheck(app, keys, allowed_hosts)

    async def run_stdio(self) -> None:
        """Serve this process's stdin and stdout until the client closes them."""
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read, write), self._messages_until_end(read) as messages:
            await self.sdk_server.run(messages, write, self.sdk_server.create_initialization_options())

    @asynccontextmanager
    async def _messages_until_end(self, messages: Any) -> AsyncGenerator[Any]:
        """The messages of the client. At their end, the runs are stopped, with a cause, before the SDK cancels them."""
        send, receive = anyio.create_memory_object_stream[Any](0)

        async def forward() -> None:
            async with send:
                async for message in messages:
                    await send.send(message)
                self._stop_runs("The client has left", "disconnect")

        async with anyio.create_task_group() as group, receive:
            group.start_soon(forward)
            yield receive
            group.cancel_scope.cancel()

    async def close(self) -> None:
        """Refuse new calls, stop all runs, with cause `shutdown`, and wait until they have settled."""
        self.stop()
        for run in tuple(self._runs):
            await run.stopped()

    def stop(self) -> None:
        """The same as `close()`, without waiting. Safe in a signal handler."""
        self._closing = True
        self._stop_runs("The server is shutting down", "shutdown")

    def _stop_runs(self, reason: str, source: Source) -> None:
        for run in tuple(self._runs):
            run.cancel(reason, source=source)

    # --- Requests -----------------------------------------------------------------------------------------------

    async def _list_tools(self, context: Any, params: Any) -> Any:
        del context, params
        import mcp_types

        tools = [
            mcp_types.Tool(name=name, description=self._describe(agent), input_schema=_SCHEMA)
            for name, agent in self._agents.items()
        ]
        return mcp_types.ListToolsResult(tools=tools)

    def _describe(self, agent: AnyAgent) -> str:
        return self._description or f"Ask the agent {agent.name!r} to do something, in plain words."

    async def _call_tool(self, context: Any, params: Any) -> Any:
        arguments: dict[str, Any] = params.arguments or {}
        agent, prompt = self._agents.get(params.name), arguments.get("prompt")
        if agent is None:
            return _error_result(f"There is no agent {params.name!r} here.")
        if not isinstance(prompt, str):
            return _error_result("A prompt is needed.")
        if self._closing:
            return _error_result("The server is shutting down.")
        owner = owner_of(context.request)
        key, conversation = self._conversation(owner, arguments.get("conversation"))
        if conversation is None:
            return _error_result("There is no such conversation here; leave it out to begin a new one.")
        try:
            run = agent.start(prompt, conversation=conversation, owner=owner)
        except QuiesceError as error:
            return _error_result(public_text(error))
        self._runs.add(run)
        unregister = _stop_on_disconnect(run, context)
        try:
            return _call_result(await _follow(run, context), key)
        finally:
            self._runs.discard(run)
            unregister()

    def _conversation(self, owner: str, key: Any) -> tuple[str, Conversation | None]:
        if key is not None:
            conversation = self._conversations.get((owner, str(key)))
            if conversation is not None:
                self._conversations.move_to_end((owner, str(key)))
            return str(key), conversation
        new = uuid.uuid4().hex
        conversation = self._conversations[owner, new] = Conversation()
        own = [each for each in self._conversations if each[0] == owner]
        for oldest in own[: max(0, len(own) - KEPT_CONVERSATIONS)]:
            del self._conversations[oldest]
        return new, conversation


async def _follow(run: Run, context: Any) -> RunResult:
    """Report the run's progress to the client, and wait for its result. A cancelled call stops the run first."""
    steps, progress = 0, _Progress()
    try:
        async for event in run:
            text = progress.of(event)
            if text:
                steps += 1
                await context.session.report_progress(steps, message=text)
        return await wait_for(run)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            run.cancel("The client cancelled the call", source="remote")
        else:  # progress cannot be sent any more: the client is gone
            run.cancel("The client cannot be reached", source="disconnect")
        await wait_shielded(run)
        raise


def _stop_on_disconnect(run: Run, context: Any) -> Callable[[], object]:
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    disconnected: CancellationToken | None = getattr(context.request, "scope", {}).get(_DISCONNECTED)
    # In modern versions a disconnect cancels the call.
    if disconnected is None or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return lambda: None
    return disconnected.on_cancel(lambda _: run.cancel("The client hung up", source="disconnect"))


class _Progress:
    """What a client is told while a run goes on: the text of the answers, in pieces, and the tools that begin.

    The pieces of an answer make up its text. Each has what was written since the one before it, and they come no more
    often than a person can read.
    """

    def __init__(self) -> None:
        self._clock: Final = asyncio.get_running_loop().time
        self._unsent = ""
        self._next = 0.0

    def of(self, event: object) -> str:
        """What to send after this event, if anything."""
        match event:
            case TextDelta(text):
                self._unsent += text
                return self._take() if self._clock() >= self._next else ""
            case MessageAdded(AssistantMessage()):
                return self._take()
            case ToolStarted(call):
                return f"Running {call.name}."
            case _:
                return ""

    def _take(self) -> str:
        self._next = self._clock() + _PROGRESS_INTERVAL
        text, self._unsent = self._unsent, ""
        return text


def _call_result(result: RunResult, key: str) -> Any:
    import mcp_types

    about: dict[str, Any] = {"conversation": key, "stop_reason": result.stop_reason, "run_id": result.run_id}
    text = result.text
    if result.error is not None:
        text = f"The agent failed: {getattr(result.error, 'what', result.error)}"
    elif result.receipt.cause is not None:
        text = f"Stopped ({result.receipt.cause}). {text}".strip()
    elif result.interrupts:
        questions = "; ".join(f"{each.tool_name or each.name} ({each.kind})" for each in result.interrupts)
        text = f"{text}\nNot finished: a person has to answer first: {questions}. That cannot be done over MCP.".strip()
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text=text or "(no output)")],
        structured_content=about,
        is_error=result.error is not None or result.receipt.cause is not None or bool(result.interrupts),
    )


def _error_result(why: str) -> Any:
    import mcp_types

    return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=why)], is_error=True)


def serve(
    *agents: AnyAgent,
    transport: Literal["stdio", "http"] = "stdio",
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str = "quiesce",
    keys: Keys | None = None,
    allowed_hosts: Sequence[str] = (),
) -> None:
    """Serve some agents until the client leaves (stdio) or the process is told to end (http). Blocks.

    Over HTTP the address is http://host:port/mcp; `keys` and `allowed_hosts` are those of `AgentServer.http_app`.
    Raises `ConfigurationError` when other machines can reach the host and there is neither. Other processes can no
    longer read this one's environment: see `hide_environment`.
    """
    if transport == "http":
        check_public(host, keys, allowed_hosts)
    hide_environment()  # from processes that tools start
    server = AgentServer(*agents, name=name)
    if transport == "stdio":
        asyncio.run(_serve_stdio(server))
    else:
        _serve_http(server, server.http_app(host=host, keys=keys, allowed_hosts=allowed_hosts), host, port)


async def _serve_stdio(server: AgentServer) -> None:
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    if sys.platform != "win32":
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop_requested.set)
    serving, waiting = asyncio.create_task(server.run_stdio()), asyncio.create_task(stop_requested.wait())
    await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        waiting.cancel()
        await serving
        return
    await server.close()
    # A thread reads stdin, and nothing but the client can end that.
    logging.shutdown()
    sys.stderr.flush()
    os._exit(0)


def _serve_http(server: AgentServer, app: Any, host: str, port: int) -> None:
    import uvicorn

    class HttpServer(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002
            """Stop the runs, send their results to the clients, and end the process."""
            server.stop()
            self.force_exit = self.should_exit
            self.should_exit = True

    options: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": _SHUTDOWN_TIMEOUT}
    # Without `proxy_headers` the address of the client is that of the connection, not what a header says.
    options["proxy_headers"] = False
    HttpServer(uvicorn.Config(app, host=host, port=port, **options)).run()


class _DisconnectWatcher:
    """ASGI middleware: gives each request a token that is cancelled when its client disconnects.

    Before 2026-07-28 the protocol does not take a disconnect for a cancellation, because a client may reconnect and
    read what it missed. This server does not support that, so the result has no reader any more.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app: Final = app

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        disconnected = scope[_DISCONNECTED] = CancellationToken()

        async def receive_watched() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                disconnected.cancel(source="disconnect")
            return message

        await self._app(scope, receive_watched, send)
