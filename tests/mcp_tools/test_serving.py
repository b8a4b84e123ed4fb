"""An agent as an MCP server: real clients, over real pipes and sockets, whose cancellation stops the run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from quiesce import Agent
from quiesce.errors import ConfigurationError
from quiesce.events import ToolProgress
from quiesce.mcp import MCPServer
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.protocols.mcp_server import AgentServer

SERVER = str(Path(__file__).parent.parent / "support" / "agent_server.py")


@asynccontextmanager
async def client_of(kind: str, log: Path, mode: str = "auto"):
    if kind == "stdio":
        async with Client(StdioServerParameters(command=sys.executable, args=[SERVER, str(log)]), mode=mode) as client:
            yield client
        return
    process = subprocess.Popen([sys.executable, SERVER, str(log), "--http"], stdout=subprocess.PIPE, text=True)
    try:
        async with Client(f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", mode=mode) as client:
            yield client
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def lines(log: Path, count: int) -> list[dict]:
    async with asyncio.timeout(20):
        while not log.exists() or len(log.read_text().splitlines()) < count:
            await asyncio.sleep(0.005)
    return [json.loads(line) for line in log.read_text().splitlines()]


KINDS = pytest.mark.parametrize("kind", ["stdio", "http"])
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


@KINDS
@pytest.mark.promise("P4")
def test_an_agent_answers_and_goes_on_with_a_conversation(kind: str, tmp_path: Path):
    async def main():
        async with client_of(kind, tmp_path / "log") as client:
            (listed,) = (await client.list_tools()).tools
            assert listed.name == "helper"
            said: list[str] = []

            async def progress(_, __, message):
                said.append(message)

            first = await client.call_tool("helper", {"prompt": "hello"}, progress_callback=progress)
            assert (first.content[0].text, first.is_error) == ("Answer 1.", False)
            assert "".join(said) == "Answer 1."
            key = first.structured_content["conversation"]
            second = await client.call_tool("helper", {"prompt": "and?", "conversation": key})
            assert second.content[0].text == "Answer 2."
            for wrong in ({"prompt": "x", "conversation": "nope"}, {}, {"prompt": " "}):
                assert (await client.call_tool("helper", wrong)).is_error

    asyncio.run(main())


@MODES
@pytest.mark.promise("P1", "P3")
async def test_a_client_hears_the_words_while_the_model_writes_them(mode: str):
    said: list[str] = []
    heard = asyncio.Event()

    async def progress(_, __, message):
        said.append(message)
        heard.set()

    server = AgentServer(Agent(ScriptedModel([Say("It is "), Stall()]), name="helper"))
    async with Client(server.sdk_server, mode=mode) as client:
        call = asyncio.create_task(client.call_tool("helper", {"prompt": "?"}, progress_callback=progress))
        await asyncio.wait_for(heard.wait(), 10)
        assert said == ["It is "], "and the model has not ended"
        await server.close()
        assert "It is" in (await call).content[0].text


@KINDS
@MODES
@pytest.mark.promise("P1", "P4")
def test_a_client_that_cancels_stops_the_run(kind: str, mode: str, tmp_path: Path):
    async def main():
        log = tmp_path / "log"
        async with client_of(kind, log, mode) as client:
            started = asyncio.Event()

            async def progress(_, __, message):
                if message.startswith("Running"):
                    started.set()

            call = asyncio.create_task(client.call_tool("helper", {"prompt": "wait"}, progress_callback=progress))
            await started.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            (line,) = await lines(log, 1)
            assert line == {"stop_reason": "cancelled", "cause": "remote", "calls": ["cancelled"]}
            again = await client.call_tool("helper", {"prompt": "still there?"})
            assert again.content[0].text == "Answer 1."

    asyncio.run(main())


@pytest.mark.promise("P1", "P4")
def test_a_stop_crosses_from_our_agent_to_our_server(tmp_path: Path):
    async def main():
        log = tmp_path / "log"
        async with MCPServer.stdio(sys.executable, SERVER, str(log)) as server:
            agent = Agent(ScriptedModel([Call("helper", {"prompt": "wait"})]), tools=[server])
            run = agent.start("go")
            async for event in run:
                if isinstance(event, ToolProgress) and event.progress["message"].startswith("Running"):
                    run.cancel("enough")
            assert (await run.stopped()).calls[0].outcome is Outcome.UNKNOWN
            (line,) = await lines(log, 1)
            assert line["cause"] == "remote"

    asyncio.run(main())


@pytest.mark.promise("P4")
def test_a_server_needs_agents_with_different_names():
    with pytest.raises(ConfigurationError):
        AgentServer()
    with pytest.raises(ConfigurationError):
        AgentServer(Agent(ScriptedModel()), Agent(ScriptedModel()))
