"""Servers over HTTP that refuse, forget, break off, go away and come back: an error for one call at most."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from quiesce import Agent, Receipt
from quiesce.errors import ConfigurationError
from quiesce.events import ToolProgress
from quiesce.mcp import MCPServer, ToolAnnotations
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, ScriptedModel

from ..support.mcp_odd_http import TOOLS, OddHttpServer
from .test_odd_servers import results


@asynccontextmanager
async def connected(**options: float):
    odd = OddHttpServer()
    async with odd.running() as url, MCPServer.http(url, **options) as server:
        yield odd, server


@pytest.mark.promise("P4")
@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_a_server_that_refuses_is_quoted_with_its_status(status: int):
    odd = OddHttpServer()
    odd.refuse = status
    async with odd.running() as url:
        with pytest.raises(ConfigurationError, match=f"it answered {status} [A-Z].*headers"):
            await MCPServer.http(url).connect()


@pytest.mark.promise("P4", "P8")
async def test_a_refusal_or_a_broken_answer_is_an_error_of_that_call_alone():
    async with connected() as (odd, server):
        calls = (Call("status", {"code": 401}), Call("drop"), Call("break_off"), Call("add"))
        refused, dropped, broken, after = await results(server, *calls)
        assert "answered 401 Unauthorized" in refused.text
        assert "whether it did what was asked is not known" in dropped.text
        assert "whether it did what was asked is not known" in broken.text
        assert "cannot be reached" not in broken.text
        assert after.text == "2"
        assert len(odd.sessions) == 1


@pytest.mark.promise("P4", "P8")
async def test_a_broken_answer_leaves_the_other_calls_alone():
    async with connected() as (_, server):
        agent = Agent(ScriptedModel([Call("wait"), Call("break_off"), Call("drop"), Call("add")]), tools=[server])
        run = agent.start("go")
        ended: list[str] = []
        async for event in run:
            if type(event).__name__ == "ToolEnded":
                ended.append(event.result.call_id)
                if len(ended) == 3 and not run.done:
                    run.cancel("three are enough")
        receipt = await run.stopped()
        assert receipt.calls[0].outcome is Outcome.UNKNOWN
        assert [line.ok for line in receipt.calls[1:]] == [False, False, True]


@pytest.mark.promise("P3")
async def test_a_result_may_be_long_over_http_too():
    async with connected() as (_, server):
        (long,) = await results(server, Call("big", {"size": 5_000_000}))
        assert len(long.text) == 5_000_000


@pytest.mark.promise("P4", "P8")
@pytest.mark.parametrize("said", ["", "No valid session ID provided", "Server not initialized"])
async def test_a_session_that_the_server_has_forgotten_is_begun_again(said: str):
    async with connected() as (odd, server):
        odd.unknown_session = said
        odd.known.clear()
        agent = Agent(ScriptedModel([Call("add") for _ in range(5)], "done"), tools=[server])
        result = await agent.invoke_async("go")
        assert [line.ok for line in result.receipt.calls] == [True] * 5
        assert odd.sessions == ["session-1", "session-2"], "one new session for all who need it"
    assert odd.deleted == ["session-2"], "what the server has forgotten need not be ended"


@pytest.mark.promise("P4", "P8")
async def test_a_server_that_goes_away_and_comes_back_is_there_again():
    odd = OddHttpServer()
    server: MCPServer
    async with odd.running() as url:
        server = MCPServer.http(url)
        await server.connect()
    (away,) = await results(server, Call("add"))
    assert "cannot be reached" in away.text
    odd.known.clear()
    async with odd.running():
        assert [each.text for each in await results(server, Call("add"), Call("add"))] == ["2", "2"]
        await server.close()


@pytest.mark.promise("P4", "P8")
async def test_a_server_that_forgets_and_cannot_be_reached_then_is_tried_again_later():
    async with connected() as (odd, server):
        odd.known.clear()
        odd.refuse = 404
        (refused,) = await results(server, Call("add"))
        assert refused.is_error
        odd.refuse = None
        assert [each.text for each in await results(server, Call("add"))] == ["2"]


@pytest.mark.promise("P4")
async def test_a_server_that_does_not_take_the_new_session_is_quoted():
    async with connected() as (odd, server):
        odd.unknown_session = "No valid session ID provided"
        odd.forgets = True
        odd.known.clear()
        (refused,) = await results(server, Call("add"))
        assert refused.is_error
        assert "No valid session ID provided" in refused.text
        assert len(odd.sessions) == 2, "one new session is tried, not more"


@pytest.mark.promise("P4")
async def test_a_server_that_forgets_and_refuses_a_new_session_is_quoted():
    async with connected() as (odd, server):
        odd.unknown_session = "No valid session ID provided"
        odd.known.clear()
        odd.refuse_new = 503
        (refused,) = await results(server, Call("add"))
        assert refused.is_error
        assert "503 Service Unavailable" in refused.text


@pytest.mark.promise("P4")
async def test_a_bad_request_in_a_session_that_is_known_leaves_the_session():
    async with connected() as (odd, server):
        (refused,) = await results(server, Call("status", {"code": 400}))
        assert "400" in refused.text
        assert odd.sessions == ["session-1"]


@pytest.mark.promise("P4")
async def test_what_a_server_says_about_its_tools_can_be_used_for_approvals():
    async with connected() as (_, server):
        add, big, *_ = server.tools
        assert add.annotations == ToolAnnotations("Addition", read_only=True, open_world=False)
        assert big.annotations == ToolAnnotations()
        asked = [tool.with_(requires_approval=not tool.annotations.read_only) for tool in server.tools]
        agent = Agent(ScriptedModel([Call("add"), Call("big", {"size": 1})], "done"), tools=asked)
        result = await agent.invoke_async("go")
        assert [each.tool_name for each in result.interrupts] == ["big"]


@pytest.mark.promise("P3")
async def test_structured_content_is_kept_beside_the_text():
    async with connected() as (_, server):
        (result,) = await results(server, Call("add"))
        assert (result.text, result.structured_content) == ("2", {"sum": 2})
        short = server.tools[0].with_(max_result=1000)
        assert short.annotations.read_only


@pytest.mark.promise("P4")
async def test_an_older_protocol_can_be_asked_for():
    odd = OddHttpServer()
    async with odd.running() as url, MCPServer.http(url, protocol="legacy") as server:
        assert len(server.tools) == len(TOOLS)
    assert "server/discover" not in odd.methods
    with pytest.raises(ConfigurationError, match="2019"):
        MCPServer.http(url, protocol="2019-01-01")


async def stopped_under_way(agent: Agent, calls: int) -> Receipt:
    """Stop a run when so many calls have reported progress."""
    run = agent.start("go")
    under_way = 0
    async for event in run:
        under_way += isinstance(event, ToolProgress)
        if under_way == calls and not run.done:
            run.cancel("enough")
    return await run.stopped()


@pytest.mark.promise("P1", "P8")
async def test_a_stop_does_not_wait_until_the_server_has_heard_of_it():
    """Of before 2026-07-28: the word is a request of its own. This server takes it and never answers it."""
    async with connected() as (odd, server):
        odd.deaf = True
        calls = [Call("wait") for _ in range(5)]
        agent = Agent(ScriptedModel(calls, [Call("add")], "done"), tools=[server])
        receipt = await stopped_under_way(agent, 5)
        assert {line.outcome for line in receipt.calls} == {Outcome.UNKNOWN}
        assert receipt.still_running == ()
        assert (await agent.invoke_async("go on")).receipt.calls[0].ok
        async with asyncio.timeout(20):
            while len(odd.cancelled) < 5:
                await asyncio.sleep(0.005)


@pytest.mark.promise("P1", "P4")
async def test_any_number_of_calls_run_at_once_and_each_is_told_to_stop():
    """However long the server of this test, in the same loop, takes to hear so many requests on a busy machine."""
    async with connected(grace=60.0) as (odd, server):
        agent = Agent(ScriptedModel([Call("wait") for _ in range(120)]), tools=[server])
        assert (await stopped_under_way(agent, 120)).still_running == ()
        async with asyncio.timeout(20):
            while len(odd.cancelled) < 120:
                await asyncio.sleep(0.005)
        assert len(set(odd.cancelled)) == 120


@pytest.mark.promise("P8")
@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("https://mcp.example.com/api/s/MDhkZjQ5ZjItNGU0MA/mcp", "https://mcp.example.com/api/s/***/mcp"),
        ("https://u:hunter2@mcp.example.com/mcp?key=hunter2#hunter2", "mcp.example.com/mcp"),
        (
            "https://a-very-long-host-2.example.com/model-context",
            "https://a-very-long-host-2.example.com/model-context",
        ),
    ],
)
def test_errors_do_not_show_what_may_be_secret_in_an_address(url: str, label: str):
    assert repr(MCPServer.http(url)) == f"<MCPServer {label}, not connected>"
