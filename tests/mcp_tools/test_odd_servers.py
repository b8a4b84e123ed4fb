"""Servers that we start and that misbehave: each is an error in words, for one call, and the run goes on."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from quiesce import Agent
from quiesce.errors import ConfigurationError, DuplicateTool, ToolError
from quiesce.events import ToolProgress
from quiesce.mcp import MCPServer
from quiesce.mcp.connection import MCPConnection
from quiesce.messages import Document, Outcome, Text, ToolResult
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.result import RunResult

from .test_servers import alive, until_there_is

SERVER = str(Path(__file__).parent.parent / "support" / "mcp_odd_server.py")


def odd(manner: str = "well-behaved", **options) -> MCPServer:
    return MCPServer.stdio(sys.executable, SERVER, manner, **options)


async def results(server: MCPServer, *calls: Call) -> list[ToolResult]:
    """What each call came to, one after the other, in a run that must come to its own end."""
    model = ScriptedModel(*([each] for each in calls), "done")
    result: RunResult = await Agent(model, tools=[server], max_result=None).invoke_async("go")
    assert result.text == "done"
    return [each for message in result.messages if hasattr(message, "results") for each in message.results]


@pytest.mark.promise("P3")
@pytest.mark.parametrize("size", [1_100_000, 20_000_000])
async def test_a_result_may_be_long(size: int):
    async with odd() as server:
        long, after = await results(server, Call("big", {"size": size}), Call("add"))
        assert long.text == "x" * size
        assert after.text == "2"


@pytest.mark.promise("P4", "P7")
async def test_a_message_without_end_is_a_tool_error():
    async with odd() as server:
        endless, after = await results(server, Call("endless"), Call("add"))
        assert "more than 64 MB" in endless.text
        assert "has ended" in after.text


@pytest.mark.promise("P3")
async def test_a_server_that_answers_and_ends_has_answered():
    async with odd() as server:
        answered, after = await results(server, Call("bye"), Call("add"))
        assert len(answered.text) == 3_000_000
        assert "has ended" in after.text


@pytest.mark.promise("P4", "P7")
@pytest.mark.parametrize("how", ["die", "hush"])
def test_a_server_that_breaks_off_is_a_tool_error_at_once(how: str):
    async def main():
        async with odd() as server:
            async with asyncio.timeout(20):
                broken, after = await results(server, Call(how), Call("add"))
            assert "whether it did what was asked is not known" in broken.text
            assert "has ended" in after.text
            assert "not known" not in after.text, "that call was never sent"

    asyncio.run(main())  # on uvloop a server has its pipes twice, and cannot close them


@pytest.mark.promise("P5")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
async def test_what_a_dead_server_had_started_is_ended_although_the_block_goes_on():
    async with odd() as server:
        spawned, _ = await results(server, Call("spawn"), Call("die"))
        async with asyncio.timeout(20):
            while alive(int(spawned.text)):
                await asyncio.sleep(0.01)


@pytest.mark.promise("P4")
@pytest.mark.parametrize(
    ("manner", "words"),
    [
        ("crash", r"cannot be used: it closed the connection \(exit code 1\)"),
        ("die early", r"\(exit code 7\)"),
        ("other times", "1999-01-01"),
        ("no list", "cannot be listed.*did not answer within 0.5 s"),
        ("endless pages", "cannot be listed.*without end"),
        ("nonsense", "cannot be listed.*does not allow.*inputSchema"),
    ],
)
async def test_a_server_that_cannot_be_used_is_refused_with_the_reason(manner: str, words: str):
    server = odd(manner, connect_timeout=0.5 if manner == "no list" else 20)
    with pytest.raises(ConfigurationError, match=words) as caught:
        await server.connect()
    if manner == "crash":
        assert any("there is no such module" in note for note in caught.value.__notes__)
        assert "module" not in str(caught.value), "stderr may hold what is not meant for a model"


@pytest.mark.promise("P4")
async def test_a_server_without_resources_and_prompts_has_none():
    async with odd() as server:
        assert await server.resources() == await server.resource_templates() == await server.prompts() == ()


@pytest.mark.promise("P4")
async def test_what_is_no_message_is_passed_over():
    async with odd("chatter") as server:
        assert [each.text for each in await results(server, Call("add"))] == ["2"]


@pytest.mark.promise("P4")
async def test_tools_come_in_pages():
    async with odd("pages") as server:
        assert len(server.tools) == 12


@pytest.mark.promise("P4")
async def test_every_tool_has_a_name_of_its_own_that_providers_take():
    async with odd("odd names") as server, odd("odd names") as again:
        names = [each.name for each in server.tools]
        assert len(set(names)) == 6
        assert all(name.isascii() and 0 < len(name) <= 64 for name in names)
        assert names[1] == "a_b", "a name that is legal stays as it is"
        assert names == [each.name for each in again.tools]
        calls = await results(server, *map(Call, names))
        assert [each.text for each in calls] == ["2"] * 6
        with pytest.raises(DuplicateTool, match="prefix="):
            Agent(ScriptedModel(), tools=[server, again])


@pytest.mark.promise("P4")
async def test_a_tool_that_is_listed_twice_is_one_tool():
    async with odd("twice") as server:
        assert len(server.tools) == 12
        assert [each.text for each in await results(server, Call("add"))] == ["2"]


@pytest.mark.promise("P4", "P8")
async def test_odd_new_tools_do_not_end_the_connection():
    async with odd() as server:
        await results(server, Call("rename"))
        await until_there_is(server, "fresh")
        assert [each.text for each in await results(server, Call("tool"))] == ["2"]


@pytest.mark.promise("P4", "P8")
@pytest.mark.parametrize(("how", "then"), [("wait", "2"), ("deafen", "The MCP server python has ended")])
def test_what_comes_after_a_stop(how: str, then: str):
    """An answer that comes too late is nobody's; a server that does not listen any more is found out."""

    async def main():
        async with odd() as server:
            agent = Agent(ScriptedModel([Call(how)], [Call("add")], "done"), tools=[server])
            run = agent.start("go")
            async for event in run:
                if isinstance(event, ToolProgress):
                    run.cancel("enough")
            assert (await run.stopped()).calls[0].outcome is Outcome.UNKNOWN
            result = await agent.invoke_async("go on")
            assert result.new_messages[2].results[0].text.startswith(then)

    asyncio.run(main())


@pytest.mark.promise("P4")
async def test_what_a_server_logs_is_in_our_log(caplog):
    async with odd() as server:
        with caplog.at_level(logging.WARNING, "quiesce.mcp"):
            await results(server, Call("log"))
        assert [(each.levelname, each.message) for each in caplog.records if each.name == "quiesce.mcp"] == [
            ("WARNING", 'python: {"disk":"full"}')
        ]


@pytest.mark.promise("P2", "P4")
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"content": []}, (Text("(no output)"),)),
        ({"content": [], "structuredContent": {"a": 1}}, (Text('{"a":1}'),)),
        ({"content": [{"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}]}, (Document("audio/wav", b"hi"),)),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": "aGk=", "mimeType": "text/x"}}]},
            (Document("text/x", b"hi", name="a:b"),),
        ),
        ({"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "hi"}}]}, (Text("hi"),)),
    ],
)
async def test_results_of_every_kind(sent: dict, kept: tuple):
    async with odd() as server:
        (result,) = await results(server, Call("content", sent))
        assert result.content == kept
        assert not result.is_error


@pytest.mark.promise("P4")
@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"content": [{"type": "image", "data": "!!!", "mimeType": "image/png"}]}, "not base64"),
        ({"content": [{"type": "hologram"}]}, "does not allow"),
    ],
)
async def test_a_result_that_cannot_be_read_is_a_tool_error(sent: dict, words: str):
    async with odd() as server:
        (result,) = await results(server, Call("content", sent))
        assert words in result.text
        assert result.is_error


class Silent:
    """A server that is there and says nothing."""

    label, close_bound, comes_back = "silent", 1.0, False
    server_capabilities = SimpleNamespace(tools=None)

    @asynccontextmanager
    async def open(self, _):
        yield self


async def no_answer(_):
    await asyncio.get_running_loop().create_future()


@pytest.mark.promise("P4", "P8")
@pytest.mark.leaves("tasks")
@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_a_call_from_another_loop_ends_with_the_loop_of_the_connection(how: str):
    loop = asyncio.new_event_loop()

    async def connect() -> MCPConnection:
        connection = MCPConnection(Silent(), no_answer)
        await connection.open(5)
        return connection

    async def cancel_all() -> None:
        await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def end() -> None:
        if how == "cancelled":
            loop.run_until_complete(cancel_all())
        loop.close()

    async def main() -> None:
        waiting = asyncio.create_task(connection.call(no_answer))
        await asyncio.sleep(0)
        await asyncio.to_thread(end)
        with pytest.raises(ToolError, match="silent has ended"):
            async with asyncio.timeout(5):
                await waiting

    connection = loop.run_until_complete(connect())
    asyncio.run(main())
