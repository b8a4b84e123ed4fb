"""Runs that call real MCP servers, stopped before every step, from every source.

First with the connection in another event loop, where one session lives through every stop; then with the connection in
the run's own loop, opened and closed around each.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from quiesce import Agent, tool
from quiesce._threads.background_loop import close_portals
from quiesce.mcp import MCPServer
from quiesce.testing import ALL_SOURCES, Call, Harness, Say, ScriptedModel, Used, VirtualLoop, stop_everywhere, trial

from .test_servers import http_process, stdio

pytestmark = pytest.mark.promise("P2", "P5")


@tool
async def local() -> str:
    """Answer at once."""
    return "here"


def agent_with(server: MCPServer) -> Agent:
    model = ScriptedModel(
        [Say("Let me see. "), Call("add", {"a": 1, "b": 2}), Call("nap"), Call("local"), Used(input=9, output=9)],
        [Say("One more. "), Call("nap")],
        then="Three.",
    )
    return Agent(model, tools=[server, local])


def everywhere(server: MCPServer, sources, **options):
    async def through_mcp(harness: Harness) -> None:
        await harness.invoke(agent_with(server), "Add them up.")

    report = stop_everywhere(through_mcp, sources=sources, **options)
    print(report)
    assert report.points["step"] > 20
    assert server.wait_for(lambda: server._call(lambda client: client.call_tool("add", {"a": 2, "b": 2}))).content
    return report


@pytest.fixture(params=["stdio", "http"])
def lasting_server(request):
    """A server whose one connection lives through all the stops of a test, in a loop of its own."""
    if request.param == "stdio":
        with stdio() as server:
            yield server
    else:
        with http_process() as (_, url), MCPServer.http(url) as server:
            yield server
    close_portals()


def test_one_session_lives_through_a_stop_at_every_point(lasting_server: MCPServer):
    everywhere(lasting_server, ("loop", "kill", "task", "after_tools", "hook"))


@pytest.mark.proof
def test_one_session_lives_through_a_stop_at_every_point_from_every_source(lasting_server: MCPServer):
    everywhere(lasting_server, ALL_SOURCES)
    everywhere(lasting_server, ("loop", "line"), stride=13)


# --- In the run's own loop -------------------------------------------------------------------------------------------


class RealTimeLoop(VirtualLoop):
    """Counts steps like its parent, and lets time be what it is: the other side of a socket knows no other."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self.before_step = None
        self._never = []
        asyncio.SelectorEventLoop.__init__(self)

    def time(self) -> float:
        return time.monotonic()


@pytest.fixture
def real_time(monkeypatch):
    monkeypatch.setattr(trial, "VirtualLoop", RealTimeLoop)


async def in_loop(harness: Harness, server: MCPServer) -> None:
    harness.extra_time = 10.0  # real time on a busy machine: how prompt a stop is, is measured elsewhere
    async with server:
        await harness.invoke(agent_with(server), "Add them up.")


def test_stop_with_an_http_session_in_the_same_loop(real_time):
    with http_process() as (_, url):

        async def over_http(harness: Harness) -> None:
            await in_loop(harness, MCPServer.http(url))

        print(stop_everywhere(over_http, sources=("loop",), stride=7))
        print(stop_everywhere(over_http, sources=("kill", "task"), stride=29))


async def over_stdio(harness: Harness) -> None:
    await in_loop(harness, stdio())


def test_stop_with_a_stdio_session_in_the_same_loop(real_time):
    print(stop_everywhere(over_stdio, sources=("loop",), stride=31))


@pytest.mark.proof
def test_stop_with_sessions_in_the_same_loop_at_every_point(real_time):
    print(stop_everywhere(over_stdio, sources=("loop", "kill")))
    with http_process() as (_, url):

        async def over_http(harness: Harness) -> None:
            await in_loop(harness, MCPServer.http(url))

        print(stop_everywhere(over_http, sources=("loop", "kill", "task", "after_tools", "twice")))
