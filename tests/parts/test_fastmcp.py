"""Servers on FastMCP, over stdio and HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent
from quiesce.events import ToolProgress
from quiesce.mcp import MCPServer
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, ScriptedModel

from .programs import free_port, listening

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(importlib.util.find_spec("fastmcp") is None, reason="`make proof` installs it"),
]
SERVER = str(Path(__file__).with_name("fastmcp_server.py"))
KINDS = pytest.mark.parametrize("kind", ["stdio", "http"])
PROTOCOLS = pytest.mark.parametrize("protocol", ["auto", "legacy"])


@asynccontextmanager
async def shop(kind: str, folder: Path, **options: Any) -> AsyncIterator[MCPServer]:
    log = str(folder / "told")
    if kind == "stdio":
        async with MCPServer.stdio(sys.executable, SERVER, log, **options) as server:
            yield server
        return
    port = free_port()
    with listening((sys.executable, SERVER, log, str(port)), folder / "log", port):
        async with MCPServer.http(f"http://127.0.0.1:{port}/mcp", **options) as server:
            yield server


@KINDS
@PROTOCOLS
@pytest.mark.promise("P1", "P4")
async def test_a_stop_reaches_the_tool_of_the_server(kind: str, protocol: str, tmp_path: Path) -> None:
    async with shop(kind, tmp_path, protocol=protocol) as server:
        model = ScriptedModel([Call("restock", {"seconds": 60})], [Call("stock", {"name": "hats"})], "done")
        agent = Agent(model, tools=[server])
        run = agent.start("go")
        async for event in run:
            if isinstance(event, ToolProgress):
                run.cancel("enough")
        receipt = await run.stopped()
        assert [line.outcome for line in receipt.calls] == [Outcome.UNKNOWN]
        assert receipt.latency is not None
        assert receipt.latency < 2
        async with asyncio.timeout(20):
            while not (tmp_path / "told").exists():
                await asyncio.sleep(0.01)
        result = await agent.invoke_async("How many hats?")
        (hats,) = result.messages[-2].results
        assert hats.structured_content == {"name": "hats", "count": 3}


@KINDS
@pytest.mark.promise("P4")
async def test_annotations(kind: str, tmp_path: Path) -> None:
    async with shop(kind, tmp_path) as server:
        tools = {tool.name: tool.annotations for tool in server.tools}
        assert tools["stock"].read_only
        assert tools["restock"].destructive
        assert not tools["restock"].read_only


@KINDS
@pytest.mark.promise("P2", "P4")
async def test_elicitation_with_an_older_protocol(kind: str, tmp_path: Path) -> None:
    async with shop(kind, tmp_path, elicitation=True, protocol="legacy") as server:
        agent = Agent(ScriptedModel([Call("order", {"name": "hat"})], "done"), tools=[server])
        (interrupt,) = (await agent.invoke_async("go")).interrupts
        assert interrupt.reason["message"] == "Which size of hat?"
        result = await agent.answer_async({interrupt.id: {"size": "M"}})
        assert result.messages[2].results[0].text == "ordered M"
