"""MCP servers as tools: real servers of the SDK, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from quiesce import Agent, Middleware, tool
from quiesce._threads.background_loop import close_portals
from quiesce.conversation.validity import faults
from quiesce.errors import ConfigurationError, ToolError
from quiesce.events import ToolProgress, ToolStarted
from quiesce.mcp import MCPServer
from quiesce.messages import Image, Outcome, Text
from quiesce.models.scripted import Call, ScriptedModel

SERVER = str(Path(__file__).parent.parent / "support" / "mcp_test_server.py")


def stdio(**options) -> MCPServer:
    return MCPServer.stdio(sys.executable, SERVER, **options)


@contextmanager
def http_process():
    process = subprocess.Popen([sys.executable, SERVER, "--http"], stdout=subprocess.PIPE, text=True)
    try:
        yield process, f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@asynccontextmanager
async def connected(kind: str):
    if kind == "stdio":
        async with stdio() as server:
            yield server
    else:
        with http_process() as (_, url):
            async with MCPServer.http(url) as server:
                yield server


class HalfACharacter(Middleware):
    async def tool_call(self, call, next, /):
        return await next(call.replace(arguments={"a": "\ud800", "b": 1}))


KINDS = pytest.mark.parametrize("kind", ["stdio", "http"])


def call(name: str, **arguments) -> list[Call]:
    return [Call(name, arguments)]


@KINDS
@pytest.mark.promise("P4")
def test_a_servers_tools_are_an_agents_tools(kind: str):
    async def main():
        async with connected(kind) as server:
            model = ScriptedModel(call("add", a=1, b=2), call("fail"), call("picture"), "done")
            agent = Agent(model, tools=[server])
            result = await agent.invoke_async("go")
            assert result.text == "done"
            assert [line.ok for line in result.receipt.calls] == [True, False, True]
            results = [each for m in result.messages if hasattr(m, "results") for each in m.results]
            assert results[0].text == "3"
            assert "it broke" in results[1].text
            assert any(isinstance(part, Image) and part.data == b"\x89PNG" for part in results[2].content)
            spec = next(spec for spec in model.requests[0].tools if spec.name == "add")
            assert set(spec.schema["properties"]) == {"a", "b"}
            assert spec.description == "Add two numbers."
            assert server.instructions == "Only for tests."

    asyncio.run(main())


@KINDS
@pytest.mark.promise("P1", "P4")
def test_a_stop_tells_the_server_and_leaves_the_session_usable(kind: str):
    async def main():
        async with connected(kind) as server:
            agent = Agent(
                ScriptedModel(call("slow"), call("wait_for_cancel"), call("add", a=2, b=2), "done"), tools=[server]
            )
            run = agent.start("go")
            progress = []
            async for event in run:
                if isinstance(event, ToolProgress):
                    progress.append(event.progress)
                    run.cancel("enough")
            receipt = await run.stopped()
            assert progress == [{"progress": 1.0, "total": 2.0, "message": "half way"}]
            assert receipt.calls[0].outcome is Outcome.UNKNOWN
            assert "was told to stop" in receipt.calls[0].detail
            assert not faults(agent.messages)
            result = await agent.invoke_async("go on")
            assert [line.detail for line in result.receipt.calls] == ["", ""]
            results = [each.text for m in result.new_messages if hasattr(m, "results") for each in m.results]
            assert results == ["1", "4"]

    asyncio.run(main())


@KINDS
@pytest.mark.promise("P4", "P8")
def test_stopping_one_call_tells_the_server_and_the_run_goes_on(kind: str):
    async def main():
        async with connected(kind) as server:
            agent = Agent(ScriptedModel(call("slow"), call("wait_for_cancel"), "done"), tools=[server])
            run = agent.start("go")
            async for event in run:
                if isinstance(event, ToolProgress):
                    run.cancel_tool(event.call_id)
            result = await run
            assert result.text == "done"
            assert [line.outcome for line in result.receipt.calls] == [Outcome.UNKNOWN, Outcome.COMPLETED]

    asyncio.run(main())


@KINDS
@pytest.mark.promise("P4", "P7")
def test_a_server_that_dies_is_a_tool_error(kind: str):
    async def main():
        async with connected(kind) as server:
            agent = Agent(ScriptedModel(call("die"), call("add", a=1, b=1), "Oh well."), tools=[server])
            result = await agent.invoke_async("go")
            assert result.text == "Oh well."
            assert [line.ok for line in result.receipt.calls] == [False, False]
            if kind == "stdio":
                assert "has ended (exit code 3)" in result.receipt.calls[1].detail
                await server.restart()
                agent = Agent(ScriptedModel(call("add", a=1, b=1), "ok"), tools=[server])
                assert (await agent.invoke_async("go")).receipt.calls[0].ok

    asyncio.run(main())


@KINDS
@pytest.mark.promise("P4")
def test_resources_and_prompts_can_be_read(kind: str):
    async def main():
        async with connected(kind) as server:
            (resource,) = await server.resources()
            assert resource.uri == "note://today"
            assert await server.read_resource(resource.uri) == (Text("Water the plants."),)
            (template,) = await server.resource_templates()
            assert (template.uri_template, template.description) == ("note://{day}/of/{month}", "The note of a day.")
            assert await server.read_resource("note://1/of/May") == (Text("Nothing on 1 May."),)
            (prompt,) = await server.prompts()
            assert (prompt.name, prompt.arguments) == ("greet", ("name",))
            (part,) = await server.prompt("greet", name="Ada")
            assert part.content == (Text("Say hello to Ada."),)
            with pytest.raises(ToolError, match="says"):
                await server.read_resource("note://nowhere")

    asyncio.run(main())


async def until_there_is(server: MCPServer, name: str) -> None:
    async with asyncio.timeout(20):
        while name not in {each.name for each in server.tools}:
            await asyncio.sleep(0.005)


@KINDS
@pytest.mark.promise("P4", "P8")
def test_new_tools_of_a_server_are_there_for_the_next_agent(kind: str):
    async def main():
        async with connected(kind) as server:
            before = Agent(
                ScriptedModel(call("learn", what="fresh"), "ok", call("add", a=1, b=1), "ok"), tools=[server]
            )
            await before.invoke_async("go")
            await until_there_is(server, "fresh")
            after = Agent(ScriptedModel(call("fresh"), "ok"), tools=[server])
            assert (await after.invoke_async("go")).receipt.calls[0].ok
            assert "fresh" not in before.tools
            assert (await before.invoke_async("go on")).receipt.calls[0].ok

    asyncio.run(main())


def old_server() -> MCPServer:
    return MCPServer.stdio(sys.executable, str(Path(SERVER).parent / "mcp_old_server.py"))


@pytest.mark.promise("P4", "P8")
def test_new_tools_of_an_old_server_are_there_too():
    async def main():
        async with old_server() as server:
            agent = Agent(ScriptedModel(call("learn"), "ok"), tools=[server])
            assert (await agent.invoke_async("go")).receipt.calls[0].ok
            await until_there_is(server, "learnt")

    asyncio.run(main())


@pytest.mark.promise("P4", "P8")
@pytest.mark.parametrize(
    ("method", "params", "answer"),
    [
        ("sampling/createMessage", {"messages": [], "maxTokens": 5}, "Sampling not supported"),
        ("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
         "Elicitation not supported"),
        ("roots/list", {}, "List roots not supported"),
        ("nonsense/ask", {}, "Method not found"),
        ("ping", {}, "{}"),
    ],
)  # fmt: skip
def test_what_a_server_asks_of_us_is_answered_or_refused_in_words(method: str, params: dict, answer: str):
    async def main():
        async with old_server() as server:
            assert server.instructions == "{}", "nothing is offered that would be refused"
            agent = Agent(ScriptedModel(call("ask", method=method, params=params), "ok"), tools=[server])
            result = await agent.invoke_async("go")
            assert answer in result.messages[2].results[0].text
            assert result.text == "ok"

    asyncio.run(main())


@pytest.mark.promise("P8")
def test_the_reason_of_a_stop_is_not_sent_to_the_server(tmp_path: Path):
    heard = tmp_path / "heard"

    async def main():
        old = MCPServer.stdio(sys.executable, str(Path(SERVER).parent / "mcp_old_server.py"), str(heard))
        async with old as server:
            agent = Agent(ScriptedModel(call("wait"), "ok"), tools=[server])
            run = agent.start("go")
            async for event in run:
                if isinstance(event, ToolStarted):
                    run.cancel("Ada has been fired")
            await run.stopped()

    asyncio.run(main())
    lines = heard.read_text()
    assert "tools/call" in lines
    assert "Ada" not in lines


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.promise("P5")
@pytest.mark.case("codex#7985")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize(("own_session", "own_environment"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_server_is_ended_with_everything_it_started(own_session: bool, own_environment: bool, frozen: bool):
    async def main():
        async with stdio() as server:
            spawn = call("spawn", own_session=own_session, own_environment=own_environment)
            agent = Agent(ScriptedModel(spawn, "ok"), tools=[server])
            result = await agent.invoke_async("go")
            grandchild = int(next(m for m in result.messages if hasattr(m, "results")).results[0].text)
            leader = server._connection.process.pid
            assert alive(grandchild)
            for pid in (grandchild, leader) if frozen else ():
                os.kill(pid, signal.SIGSTOP)
        assert not alive(grandchild)
        assert not Path(f"/proc/{leader}").exists()

    asyncio.run(main())


@pytest.mark.promise("P5")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a subreaper")
def test_a_grandchild_that_was_forked_twice_ends_with_its_server():
    """It has a session of its own, no environment, and its parent has ended: only a subreaper finds it."""

    async def main():
        async with stdio() as server:
            result = await Agent(ScriptedModel(call("spawn_detached"), "ok"), tools=[server]).invoke_async("go")
            grandchild = int(next(m for m in result.messages if hasattr(m, "results")).results[0].text)
            assert alive(grandchild)
        assert not alive(grandchild)

    asyncio.run(main())


@pytest.mark.promise("P5")
def test_a_server_that_is_left_by_an_error_or_a_cancellation_is_ended_too():
    async def main():
        pids: list[int] = []

        async def use() -> None:
            async with stdio() as server:
                pids.append(server._connection.process.pid)
                await asyncio.Event().wait()

        task = asyncio.create_task(use())
        while not pids:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not alive(pids[0])

    asyncio.run(main())


@pytest.mark.promise("P8")
def test_the_sync_api_and_many_loops_use_one_connection():
    with stdio() as server:
        agent = Agent(ScriptedModel(call("add", a=1, b=2), "sync", call("add", a=1, b=2), "async"), tools=[server])
        assert agent("go").receipt.calls[0].ok
        assert asyncio.run(agent.invoke_async("go")).receipt.calls[0].ok
        assert server.wait_for(server.resources)[0].name == "note"

        async def stop_from_another_loop():
            slow = Agent(ScriptedModel(call("slow"), call("wait_for_cancel"), "ok"), tools=[server])
            run = slow.start("go")
            async for event in run:
                if isinstance(event, ToolProgress):
                    run.cancel()
            assert (await run.stopped()).calls[0].outcome is Outcome.UNKNOWN
            return await slow.invoke_async("and?")

        assert asyncio.run(stop_from_another_loop()).receipt.calls[0].ok
        pid = server._connection.process.pid
    assert not alive(pid)
    close_portals()


@pytest.mark.promise("P4")
def test_what_cannot_be_reached_is_said_plainly():
    async def main():
        with pytest.raises(ConfigurationError, match="cannot be started"):
            await MCPServer.stdio("/no/such/program").connect()
        with pytest.raises(ConfigurationError, match="cannot be used"):
            await MCPServer.http("http://127.0.0.1:9/mcp").connect()
        with pytest.raises(ConfigurationError, match="cannot be used"):
            await MCPServer.stdio(sys.executable, "-c", "print('no json')").connect()
        with pytest.raises(ConfigurationError, match="did not answer"):
            await MCPServer.stdio(sys.executable, SERVER, "--deaf", connect_timeout=0.5).connect()
        with pytest.raises(ConfigurationError, match="not the address"):
            MCPServer.http("ftp://x")
        with pytest.raises(ConfigurationError, match="no tools yet"):
            Agent(ScriptedModel(), tools=[stdio()])

    asyncio.run(main())


@pytest.mark.promise("P4")
def test_names_choices_and_secrets():
    async def main():
        os.environ["MY_SECRET_KEY"] = "hush"
        try:
            async with stdio(prefix="t.", only={"add", "environment"}, env={"GIVEN": "yes"}) as server:
                assert [each.name for each in server.tools] == ["t_add", "t_environment"]
                names = ("MY_SECRET_KEY", "GIVEN")
                calls = [Call("t_environment", {"name": name}) for name in names]
                result = await Agent(ScriptedModel(calls, "ok"), tools=[server]).invoke_async("go")
                results = next(m for m in result.messages if hasattr(m, "results")).results
                assert [each.text for each in results] == ["(unset)", "yes"]
        finally:
            del os.environ["MY_SECRET_KEY"]
        assert "token" not in repr(MCPServer.http("http://me:token@host/mcp?key=token"))

    asyncio.run(main())


@pytest.mark.promise("P4", "P8")
def test_an_mcp_call_can_have_an_undo_and_run_beside_others():
    async def main():
        undone = []
        async with stdio() as server:
            (add,) = [each for each in server.tools if each.name == "add"]

            @add.undo
            def subtract(a: int, b: int) -> None:
                undone.append((a, b))

            @tool
            def local() -> str:
                return "here"

            model = ScriptedModel([Call("add", {"a": 1, "b": 2}), Call("local"), Call("add", {"a": 3, "b": 4})], "ok")
            result = await Agent(model, tools=[server, local]).invoke_async("go")
            await result.undo()
            assert sorted(undone) == [(1, 2), (3, 4)]

    asyncio.run(main())


@pytest.mark.promise("P1")
def test_a_stop_does_not_wait_for_a_server_that_reads_nothing():
    """The server is frozen: it neither reads its stdin nor answers. The stop takes what it always takes."""

    async def main():
        async with stdio() as server:
            process = server._connection.process
            agent = Agent(ScriptedModel([Call("add", {"a": n, "b": n}) for n in range(20)]), tools=[server])
            os.killpg(process.pid, signal.SIGSTOP)
            try:
                run = agent.start("go")
                started = 0
                async for event in run:
                    started += isinstance(event, ToolStarted)
                    if started == 20 and not run.done:
                        run.cancel("it hangs")
                receipt = await run.stopped()
                assert {line.outcome for line in receipt.calls} == {Outcome.UNKNOWN}
                assert receipt.still_running == ()
            finally:
                os.killpg(process.pid, signal.SIGCONT)

    asyncio.run(main())


@KINDS
@pytest.mark.promise("P8")
async def test_half_a_character_in_an_argument_does_not_cost_the_connection(kind: str):
    async with connected(kind) as server:
        (greeting,) = await server.prompt("greet", name="\ud800")
        assert "\ufffd" in greeting.content[0].text
        with pytest.raises(ToolError):
            await server.read_resource("data:\ud800")
        model = ScriptedModel([Call("add")], "done")
        result = await Agent(model, tools=[server], middleware=[HalfACharacter()]).invoke_async("go")
        assert "valid integer" in result.messages[2].results[0].text
        assert await server.prompts()
