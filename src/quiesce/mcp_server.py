"""An agent as an MCP server (extra: `quiesce[mcp]`): each agent is a tool that other programs can call.

    from quiesce.mcp_server import serve

    serve(agent)                                # over stdio
    serve(agent, transport="http", port=8000)   # over streamable HTTP, at /mcp

A call is a run. When the client cancels the call (`notifications/cancelled`, or by hanging up where the protocol says
so) the run is stopped, with cause `remote`, and has settled before the server forgets the call.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from typing import Any, Final, Literal

from .agent import Agent
from .errors import ConfigurationError, QuiesceError
from .events import MessageAdded, ToolStarted
from .messages import AssistantMessage
from .result import RunResult
from .run import Run
from .sessions import Conversation
from .subagents import tool_name

# How many conversations a server remembers; the one that was used longest ago is forgotten first.
KEPT_CONVERSATIONS: Final = 1000

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
        self.sdk_server: Final[Any] = Server(name, on_list_tools=self._list_tools, on_call_tool=self._call_tool)

    def http_app(self, **options: Any) -> Any:
        """The server as an ASGI application, at /mcp. Options as for the SDK's `streamable_http_app`."""
        return self.sdk_server.streamable_http_app(**options)

    async def run_stdio(self) -> None:
        """Serve this process's stdin and stdout until the client closes them."""
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read, write):
            await self.sdk_server.run(read, write, self.sdk_server.create_initialization_options())

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
        key, conversation = self._conversation(arguments.get("conversation"))
        if conversation is None:
            return _refusal("There is no such conversation here; leave it out to begin a new one.")
        try:
            run = agent.start(prompt, conversation=conversation)
        except QuiesceError as error:
            return _refusal(str(error))
        return _answer(await _play(run, context), key)

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

    about = {"conversation": key, "stop_reason": result.stop_reason, "run_id": result.run_id}
    words = result.text
    if result.error is not None:
        words = f"The agent failed: {getattr(result.error, 'what', result.error)}"
    elif result.receipt.cause is not None:
        words = f"Stopped ({result.receipt.cause}). {words}".strip()
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text=words or "(no output)")],
        structured_content=about,
        is_error=result.error is not None or result.receipt.cause is not None,
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
    something that has one.
    """
    server = AgentServer(*agents, name=name)
    if transport == "stdio":
        asyncio.run(server.run_stdio())
        return
    import uvicorn

    uvicorn.run(server.http_app(host=host), host=host, port=port, log_level="warning")
