"""An agent as an MCP server (extra: `quiesce[mcp]`): each agent is a tool that other programs can call.

    from quiesce.mcp_server import serve

    serve(agent)                                # over stdio
    serve(agent, transport="http", port=8000)   # over streamable HTTP, at /mcp

A call is a run. When the client cancels the call (`notifications/cancelled`, or by hanging up where the protocol says
so) the run is stopped, with cause `remote`, and has settled before the server forgets the call. A client that is gone
stops its runs too (cause `disconnect`), and so does the end of the server (cause `shutdown`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import anyio

from ..agent import Agent
from ..as_tool import tool_name
from ..cancellation import CancellationToken, Source
from ..errors import ConfigurationError, QuiesceError
from ..events import MessageAdded, ToolStarted
from ..messages import AssistantMessage
from ..processes.environment import hide_environment
from ..result import RunResult
from ..run.handle import Run
from ..sessions import Conversation

# How many conversations a server remembers; the one that was used longest ago is forgotten first.
KEPT_CONVERSATIONS: Final = 1000

_HUNG_UP: Final = "quiesce.hung_up"
# After a signal, what the runs have come to is sent; connections that only listen are not waited for any longer.
_LAST_WORDS: Final = 5

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
    """Some agents as the tools of an MCP server. `sdk_server` is the SDK's own server object, ready to run.

    Raises `ConfigurationError` without an agent, for two agents of one name, and when the extra is not installed.
    """

    def __init__(self, *agents: Agent, name: str = "quiesce", description: str | None = None) -> None:
        try:
            from mcp.server.lowlevel import Server
        except ImportError as error:
            raise ConfigurationError("MCP needs the extra 'mcp'.", todo="pip install 'quiesce[mcp]'") from error
        self._agents: Final = {tool_name(agent.name): agent for agent in agents}
        if len(self._agents) != len(agents) or not agents:
            raise ConfigurationError("A server needs agents with different names.", todo="Agent(..., name=...)")
        self._description: Final = description
        self._conversations: Final[OrderedDict[str, Conversation]] = OrderedDict()
        self._runs: Final[set[Run]] = set()
        self._closing = False
        self.sdk_server: Final[Any] = Server(name, on_list_tools=self._list_tools, on_call_tool=self._call_tool)

    def http_app(self, **options: Any) -> Any:
        """The server as an ASGI application, at /mcp. Options as for the SDK's `streamable_http_app`."""
        return _HangUps(self.sdk_server.streamable_http_app(**options))

    async def run_stdio(self) -> None:
        """Serve this process's stdin and stdout until the client closes them."""
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read, write), self._until_the_end_of(read) as messages:
            await self.sdk_server.run(messages, write, self.sdk_server.create_initialization_options())

    @asynccontextmanager
    async def _until_the_end_of(self, messages: Any) -> AsyncGenerator[Any]:
        """The messages as they come. When there are no more, the runs are told why before they are cut."""
        send, receive = anyio.create_memory_object_stream[Any](0)

        async def pass_on() -> None:
            async with send:
                async for message in messages:
                    await send.send(message)
                self._stop_runs("The client has left", "disconnect")

        async with anyio.create_task_group() as group, receive:
            group.start_soon(pass_on)
            yield receive
            group.cancel_scope.cancel()

    async def close(self) -> None:
        """Refuse new calls, stop the runs of the others, with cause `shutdown`, and wait until they are at rest."""
        self.stop()
        for run in tuple(self._runs):
            await run.stopped()

    def stop(self) -> None:
        """What `close()` does, without waiting. From a signal handler, too."""
        self._closing = True
        self._stop_runs("The server is shutting down", "shutdown")

    def _stop_runs(self, reason: str, source: Source) -> None:
        for run in tuple(self._runs):
            run.cancel(reason, source=source)

    # --- What clients ask for -----------------------------------------------------------------------------------

    async def _list_tools(self, context: Any, params: Any) -> Any:
        del context, params
        import mcp_types

        tools = [
            mcp_types.Tool(name=name, description=self._describe(agent), input_schema=_SCHEMA)
            for name, agent in self._agents.items()
        ]
        return mcp_types.ListToolsResult(tools=tools)

    def _describe(self, agent: Agent) -> str:
        return self._description or f"Ask the agent {agent.name!r} to do something, in plain words."

    async def _call_tool(self, context: Any, params: Any) -> Any:
        arguments: dict[str, Any] = params.arguments or {}
        agent, prompt = self._agents.get(params.name), arguments.get("prompt")
        if agent is None:
            return _refusal(f"There is no agent {params.name!r} here.")
        if not isinstance(prompt, str):
            return _refusal("A prompt is needed.")
        if self._closing:
            return _refusal("The server is shutting down.")
        key, conversation = self._conversation(arguments.get("conversation"))
        if conversation is None:
            return _refusal("There is no such conversation here; leave it out to begin a new one.")
        try:
            run = agent.start(prompt, conversation=conversation)
        except QuiesceError as error:
            return _refusal(str(error))
        self._runs.add(run)
        forget = _stop_when_hung_up(run, context)
        try:
            return _answer(await _play(run, context), key)
        finally:
            self._runs.discard(run)
            forget()

    def _conversation(self, key: Any) -> tuple[str, Conversation | None]:
        if key is not None:
            found = self._conversations.get(str(key))
            if found is not None:
                self._conversations.move_to_end(str(key))
            return str(key), found
        fresh = uuid.uuid4().hex
        self._conversations[fresh] = Conversation()
        while len(self._conversations) > KEPT_CONVERSATIONS:
            self._conversations.popitem(last=False)
        return fresh, self._conversations[fresh]


async def _play(run: Run, context: Any) -> RunResult:
    """Tell the client how the run goes, and wait for its end. A cancellation of the call stops the run first."""
    steps = 0
    try:
        async for event in run:
            said = _progress(event)
            if said:
                steps += 1
                await context.session.report_progress(steps, message=said)
        return await run.outcome()
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            run.cancel("The client cancelled the call", source="remote")
        else:  # the client cannot be told any more: nobody waits for this run
            run.cancel("The client cannot be reached", source="disconnect")
        await run.end_with_caller()
        raise


def _stop_when_hung_up(run: Run, context: Any) -> Callable[[], object]:
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    hung_up: CancellationToken | None = getattr(context.request, "scope", {}).get(_HUNG_UP)
    if hung_up is None or context.protocol_version in MODERN_PROTOCOL_VERSIONS:  # there it is how a call is cancelled
        return lambda: None
    return hung_up.on_cancel(lambda _: run.cancel("The client hung up", source="disconnect"))


def _progress(event: object) -> str:
    match event:
        case ToolStarted(call):
            return f"Running {call.name}."
        case MessageAdded(AssistantMessage() as message):
            return message.text
        case _:
            return ""


def _answer(result: RunResult, key: str) -> Any:
    import mcp_types

    about: dict[str, Any] = {"conversation": key, "stop_reason": result.stop_reason, "run_id": result.run_id}
    words = result.text
    if result.error is not None:
        words = f"The agent failed: {getattr(result.error, 'what', result.error)}"
    elif result.receipt.cause is not None:
        words = f"Stopped ({result.receipt.cause}). {words}".strip()
    elif result.interrupts:
        asked = "; ".join(f"{each.tool_name} ({each.kind})" for each in result.interrupts)
        words = f"{words}\nNot finished: a person has to answer first: {asked}. That cannot be done over MCP.".strip()
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text=words or "(no output)")],
        structured_content=about,
        is_error=result.error is not None or result.receipt.cause is not None or bool(result.interrupts),
    )


def _refusal(why: str) -> Any:
    import mcp_types

    return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=why)], is_error=True)


def serve(
    *agents: Agent,
    transport: Literal["stdio", "http"] = "stdio",
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str = "quiesce",
) -> None:
    """Serve some agents until the client leaves (stdio) or the process is told to end (http). Blocks.

    Over HTTP the address is http://host:port/mcp. There is no login: keep it on this machine, or put it behind
    something that has one. Other processes can no longer read this one's environment: see `hide_environment`.
    """
    hide_environment()  # from what tools start
    server = AgentServer(*agents, name=name)
    if transport == "stdio":
        asyncio.run(_serve_stdio(server))
    else:
        _serve_http(server, host, port)


async def _serve_stdio(server: AgentServer) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    if sys.platform != "win32":
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told.set)
    serving, waiting = asyncio.create_task(server.run_stdio()), asyncio.create_task(told.wait())
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


def _serve_http(server: AgentServer, host: str, port: int) -> None:
    import uvicorn

    class Listening(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002
            """The runs end, their clients hear of it, and the process ends by itself."""
            server.stop()
            self.force_exit = self.should_exit
            self.should_exit = True

    options: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": _LAST_WORDS}
    Listening(uvicorn.Config(server.http_app(host=host), host=host, port=port, **options)).run()


class _HangUps:
    """Around an ASGI application: whoever handles a request can hear that its client has hung up.

    Before 2026-07-28 the protocol does not take that for a cancellation, because a client may come back for what it
    missed. Here it cannot, so nobody waits for the run any more.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app: Final = app

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        hung_up = scope[_HUNG_UP] = CancellationToken()

        async def listen() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                hung_up.cancel(source="disconnect")
            return message

        await self._app(scope, listen, send)
