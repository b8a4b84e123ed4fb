"""The trace of a run as a tree on the terminal: from a server, and in a chat."""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal

import pytest

from quiesce import Agent, tool
from quiesce.cli import main
from quiesce.cli.chat_backend import ChatPrompt, LocalBackend
from quiesce.cli.chat_controller import ChatController
from quiesce.cli.chat_sessions import ChatSessions
from quiesce.cli.chat_text import answer_command
from quiesce.messages import Text
from quiesce.models.scripted import Call, Say, ScriptedModel, Used
from quiesce.usage.prices import Price

from ..server.support import serving
from ..server.support import start as start_run

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(60)]

PRICE = Price(Decimal(1), Decimal(10))


@tool
async def read(page: int) -> str:
    """Read a page."""
    return f"page {page}"


@tool
async def tear(page: int) -> str:
    """Tear a page."""
    raise ValueError("too thick\x1b[2J")


def agent() -> Agent:
    """An agent with four equal calls, a failing one, and a sub-agent that reads."""
    answers = [[Call("read", {"page": 9}), Used(input=20, output=2)], [Say("Nine."), Used(input=30, output=3)]]
    helper = Agent(ScriptedModel(*answers, name="small", price=PRICE), name="helper", tools=[read])
    calls = [*(Call("read", {"page": n}) for n in range(4)), Call("tear", {"page": 5})]
    script = [
        [*calls, Call("helper", {"prompt": "Which page?"}), Used(input=1000, output=100)],
        [Say("Done."), Used(input=2000, output=200)],
    ]
    model = ScriptedModel(*script, name="large", price=PRICE)
    return Agent(model, tools=[read, tear, helper.as_tool(description="Helps.")])


TREE = """\
├─ large, turn 1  TIME  1,000 in, 100 out, 0.002000 USD
│  ├─ read x4  TIME
│  ├─ tear(page=5)  TIME  failed: ValueError: too thick\N{REPLACEMENT CHARACTER}[2J
│  └─ helper(prompt='Which page?')  TIME
│     ├─ small, turn 1  TIME  20 in, 2 out, 0.000040 USD
│     │  └─ read(page=9)  TIME
│     └─ small, turn 2  TIME  30 in, 3 out, 0.000060 USD
└─ large, turn 2  TIME  2,000 in, 200 out, 0.004000 USD
in all  3,050 in, 305 out, 0.006100 USD
"""


def timeless(text: str) -> str:
    return re.sub(r"\d+(\.\d)? m?s\b", "TIME", text)


def test_the_events_of_a_run_as_a_tree(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(agent()) as served, served.client() as client:
        run = start_run(client, "Read them all")
        assert "run_ended" in client.get(f"/runs/{run}/events").text
        assert main(["logs", run, "--tree", "--url", served.url]) == 0
        assert timeless(capsys.readouterr().out) == TREE
        with pytest.raises(SystemExit):
            main(["logs", run, "--tree", "--json", "--url", served.url])


def test_the_last_run_of_a_chat_as_a_tree() -> None:
    async def chat() -> tuple[str | None, str | None]:
        whole = agent()
        controller = ChatController(LocalBackend(whole, ChatSessions(whole, None, None)))
        before = await answer_command(controller, "/trace")
        run = await controller.say(ChatPrompt("Read them all", (Text("Read them all"),)))
        async for event in run.events():
            controller.on_event(event)
        await controller.wait_for_end()
        return before, await answer_command(controller, "/trace")

    before, after = asyncio.run(chat())
    assert before == "Nothing has run yet."
    assert timeless(f"{after}\n") == TREE
