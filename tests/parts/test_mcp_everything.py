"""The MCP project's own test server, `server-everything`, on the TypeScript SDK: over stdio and HTTP."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quiesce import Agent, RunResult
from quiesce.events import ToolProgress
from quiesce.mcp import MCPServer
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, ScriptedModel

from ..support.programs import ROOT
from .programs import free_port, listening

SERVER = ROOT / ".venv/node/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(NODE is None or not SERVER.exists(), reason="`make proof` installs it, where there is npm"),
]
KINDS = pytest.mark.parametrize("kind", ["stdio", "http"])
LONG = Call("trigger-long-running-operation", {"duration": 60, "steps": 600})


@asynccontextmanager
async def everything(kind: str, folder: Path, **options: bool) -> AsyncIterator[MCPServer]:
    assert NODE is not None
    if kind == "stdio":
        async with MCPServer.stdio(NODE, str(SERVER), "stdio", **options) as server:
            yield server
        return
    port = free_port()
    with listening((NODE, str(SERVER), "streamableHttp"), folder / "log", port, PORT=str(port)):
        async with MCPServer.http(f"http://127.0.0.1:{port}/mcp", **options) as server:
            yield server


async def call(server: MCPServer, *calls: Call) -> RunResult:
    return await Agent(ScriptedModel(list(calls), "done"), tools=[server]).invoke_async("go")


@KINDS
@pytest.mark.promise("P1", "P4")
async def test_a_stop_in_a_long_operation_leaves_the_server_usable(kind: str, tmp_path: Path) -> None:
    async with everything(kind, tmp_path) as server:
        run = Agent(ScriptedModel([LONG], "done"), tools=[server]).start("go")
        async for event in run:
            if isinstance(event, ToolProgress):
                run.cancel("enough")
        receipt = await run.stopped()
        assert [line.outcome for line in receipt.calls] == [Outcome.UNKNOWN]
        assert receipt.still_running == ()
        assert receipt.latency is not None
        assert receipt.latency < 2
        after = await call(server, Call("get-sum", {"a": 2, "b": 3}))
        assert "5" in after.messages[2].results[0].text


@KINDS
@pytest.mark.promise("P3")
async def test_annotations_and_structured_content(kind: str, tmp_path: Path) -> None:
    async with everything(kind, tmp_path) as server:
        tools = {tool.name: tool for tool in server.tools}
        assert tools["get-sum"].annotations.read_only
        assert tools["get-sum"].annotations.title == "Get Sum Tool"
        assert not tools["toggle-simulated-logging"].annotations.read_only
        (weather,) = (await call(server, Call("get-structured-content", {"location": "Chicago"}))).messages[2].results
        assert weather.structured_content is not None
        assert set(weather.structured_content) == {"temperature", "conditions", "humidity"}
        assert "temperature" in weather.text


@KINDS
@pytest.mark.promise("P2", "P4")
async def test_the_question_of_the_server_is_an_interrupt(kind: str, tmp_path: Path) -> None:
    async with everything(kind, tmp_path, elicitation=True) as server:
        agent = Agent(ScriptedModel([Call("trigger-elicitation-request", {})], "done"), tools=[server])
        result = await agent.invoke_async("go")
        (interrupt,) = result.interrupts
        assert "name" in interrupt.reason["schema"]["properties"]
        result = await agent.answer_async({interrupt.id: {"name": "Ada"}})
        assert result.text == "done"
        assert "Ada" in result.messages[2].results[0].text


@pytest.mark.promise("P4", "P8")
async def test_a_server_that_was_restarted_is_connected_again(tmp_path: Path) -> None:
    assert NODE is not None
    port = free_port()
    command, log = (NODE, str(SERVER), "streamableHttp"), tmp_path / "log"
    server = MCPServer.http(f"http://127.0.0.1:{port}/mcp")
    with listening(command, log, port, PORT=str(port)) as process:
        await server.connect()
        run = Agent(ScriptedModel([LONG], "done"), tools=[server]).start("go")
        async for event in run:
            if isinstance(event, ToolProgress):
                process.kill()  # in the middle of a call, whose effect is not known then
        cut = await run
        assert cut.text == "done"
        assert cut.messages[2].results[0].is_error
    away = await call(server, Call("get-sum", {"a": 2, "b": 3}))
    assert "cannot be reached" in away.messages[2].results[0].text
    with listening(command, log, port, PORT=str(port)):
        back = await call(server, Call("get-sum", {"a": 2, "b": 3}), Call("echo", {"message": "here"}))
        assert [each.is_error for each in back.messages[2].results] == [False, False]
        await server.close()
