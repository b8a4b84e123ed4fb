"""Servers that ask a person in the middle of a call: an interrupt, and the call again with the answer.

Over both transports, and in both ways of asking: of before 2026-07-28 (a request to the client while the call goes on),
and since (an answer to the call that says what is missing).
"""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import pytest

from quiesce import Agent, Conversation, ConversationState, Deny
from quiesce._threads.background_loop import close_portals
from quiesce.mcp import MCPServer
from quiesce.mcp.connection import MCPConnection
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, Say, ScriptedModel
from quiesce.testing import Harness, stop_everywhere

from .test_everywhere import real_time  # noqa: F401

SERVER = str(Path(__file__).parent.parent / "support" / "mcp_asking_server.py")


@contextmanager
def asking_server(kind: str):
    if kind == "stdio":
        yield MCPServer.stdio(sys.executable, SERVER, elicitation=True)
        return
    process = subprocess.Popen([sys.executable, SERVER, "--http"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline())
        yield MCPServer.http(f"http://127.0.0.1:{port}/mcp", elicitation=True)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@asynccontextmanager
async def connected(kind: str):
    with asking_server(kind) as server:
        async with server:
            yield server


def on_asyncio(test):
    """Each of these starts servers, which takes a while: once is enough."""

    @functools.wraps(test)
    def run(**given):
        asyncio.run(test(**given))

    return run


KINDS = pytest.mark.parametrize("kind", ["stdio", "http"])


@pytest.fixture
def old(monkeypatch):
    options = MCPConnection.client_options
    monkeypatch.setattr(MCPConnection, "client_options", lambda self: {**options(self), "mode": "legacy"})


@pytest.fixture(params=["old", "new"])
def era(request):
    if request.param == "old":
        request.getfixturevalue("old")
    return request.param


def booking(*calls: Call) -> ScriptedModel:
    return ScriptedModel([Say("Let me see. "), *calls], then="Booked.")


@KINDS
@pytest.mark.promise("P2", "P4")
@on_asyncio
async def test_what_a_server_asks_is_an_interrupt_and_the_call_is_made_again_with_the_answer(kind: str, era: str):
    async with connected(kind) as server:
        agent = Agent(booking(Call("book", {"city": "Rome"}), Call("add", {"a": 1, "b": 2})), tools=[server])
        result = await agent.invoke_async("A hotel in Rome")
        assert result.stop_reason == "interrupt"
        answers = {"Which hotel in Rome?": "Astoria", "How long?": {"nights": 2, "breakfast": True}}
        for _ in range(2):
            (interrupt,) = result.interrupts
            assert (interrupt.kind, interrupt.tool_name) == ("question", "book")
            assert interrupt.reason["schema"]["type"] == "object"
            result = await agent.answer_async({interrupt.id: answers[interrupt.reason["message"]]})
        assert result.text == "Booked."
        texts = [each.text for each in result.messages[2].results]
        assert texts == ["Astoria, 2 nights, breakfast: True", "3"]


@pytest.mark.promise("P4", "P8")
@on_asyncio
async def test_an_old_server_is_told_that_the_call_is_off_and_begins_again(old):
    async with connected("stdio") as server:
        agent = Agent(booking(Call("book_mid_way", {"city": "Rome"})), tools=[server])
        (interrupt,) = (await agent.invoke_async("A hotel in Rome")).interrupts
        result = await agent.answer_async({interrupt.id: {"name": "Bristol"}})
        assert result.messages[2].results[0].text == "Bristol (2)", "what stood before the question was done twice"


@pytest.mark.promise("P2", "P4")
@pytest.mark.parametrize(
    ("answer", "told", "outcome"),
    [(False, "decline, decline", Outcome.COMPLETED), (Deny("no"), "a person said no", Outcome.CANCELLED)],
)
@on_asyncio
async def test_a_no(answer, told: str, outcome: Outcome):
    async with connected("stdio") as server:
        agent = Agent(booking(Call("book", {"city": "Rome"})), tools=[server])
        result = await agent.invoke_async("A hotel in Rome")
        while result.interrupts:
            result = await agent.answer_async({each.id: answer for each in result.interrupts})
        (line,) = result.messages[2].results
        assert told in line.text
        assert line.outcome is outcome


@pytest.mark.promise("P4", "P9")
@on_asyncio
async def test_the_question_survives_the_process_that_asked():
    async with connected("stdio") as server:
        agent = Agent(booking(Call("book", {"city": "Rome"})), tools=[server])
        (interrupt,) = (await agent.invoke_async("A hotel in Rome")).interrupts
        stored = msgspec.json.encode(agent.conversation.snapshot())
    async with connected("stdio") as server:
        conversation = Conversation.restore(msgspec.json.decode(stored, type=ConversationState))
        agent = Agent(ScriptedModel(then="Booked."), tools=[server], conversation=conversation)
        (second,) = (await agent.answer_async({interrupt.id: "Astoria"})).interrupts
        result = await agent.answer_async({second.id: '{"nights": 1, "breakfast": false}'})
        assert result.messages[2].results[0].text == "Astoria, 1 nights, breakfast: False"


@KINDS
@pytest.mark.promise("P4", "P8")
@on_asyncio
async def test_each_of_several_calls_asks_for_itself(kind: str, old):
    async with connected(kind) as server:
        calls = [Call("book", {"city": city}) for city in ("Rome", "Oslo")]
        agent = Agent(booking(*calls), tools=[server])
        result = await agent.invoke_async("Two hotels")
        assert [each.reason["message"] for each in result.interrupts] == [
            "Which hotel in Rome?",
            "Which hotel in Oslo?",
        ]
        result = await agent.answer_async({each.id: each.arguments["city"] for each in result.interrupts})
        stay = {"nights": 1, "breakfast": True}
        result = await agent.answer_async({each.id: stay for each in result.interrupts})
        texts = [each.text.partition(",")[0] for each in result.messages[2].results]
        assert texts == ["Rome", "Oslo"]


@pytest.mark.promise("P4")
@on_asyncio
async def test_without_the_option_nothing_is_offered():
    async with MCPServer.stdio(sys.executable, SERVER) as server:
        agent = Agent(booking(Call("book", {"city": "Rome"})), tools=[server])
        result = await agent.invoke_async("A hotel in Rome")
        assert result.messages[2].results[0].is_error
        assert result.text == "Booked."


async def ask_and_answer(harness: Harness, server: MCPServer, target: int = 0) -> None:
    """Three runs: two that end with a question, and one to the end. One of them is to be stopped."""
    agent = Agent(booking(Call("book", {"city": "Rome"}), Call("add", {"a": 1, "b": 2})), tools=[server])
    result = await harness.invoke(agent, "A hotel in Rome", target=target == 0)
    for number, answer in enumerate(("Astoria", {"nights": 2, "breakfast": True}), 1):
        if result.interrupts:
            answers = {each.id: answer for each in result.interrupts}
            result = await harness.start_answer(agent, answers, target=target == number)


# Each transport and each way of asking once: they do not depend on each other.
@pytest.mark.parametrize(
    ("kind", "era"),
    [
        ("stdio", "old"),
        ("http", "new"),
        pytest.param("stdio", "new", marks=pytest.mark.proof),
        pytest.param("http", "old", marks=pytest.mark.proof),
    ],
    indirect=["era"],
)
@pytest.mark.promise("P1", "P2")
def test_a_stop_at_every_point_of_asking_and_answering(kind: str, era: str):
    with asking_server(kind) as server, server:
        for target in range(3):

            async def to_the_end(harness: Harness, target: int = target) -> None:
                await ask_and_answer(harness, server, target)

            report = stop_everywhere(to_the_end, sources=("loop", "kill", "task"))
            print(report)
            assert report.points["step"] > 5
        assert server.wait_for(lambda: server._call(lambda client: client.call_tool("add", {"a": 2, "b": 2}))).content
    close_portals()


@pytest.mark.promise("P1", "P2")
def test_a_stop_at_many_points_with_the_connection_in_the_same_loop(old, real_time):  # noqa: F811
    with asking_server("http") as server:

        async def in_one_loop(harness: Harness) -> None:
            harness.extra_time = 10.0
            async with server:
                await ask_and_answer(harness, server)

        print(stop_everywhere(in_one_loop, sources=("loop",), stride=17))
