"""The sentences of the chat."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, get_args

import pytest

from quiesce import Agent, Limits, ToolContext, tool
from quiesce.cli.chat_backend import ChatPrompt, LocalBackend
from quiesce.cli.chat_controller import ChatController, RunningTool
from quiesce.cli.chat_draft import compose
from quiesce.cli.chat_text import ENDINGS, answer_command, bar, fraction, hint, progress_text, question
from quiesce.cli.sanitize import clean, one_line
from quiesce.events import TextDelta
from quiesce.interrupts import Answers
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.result import StopReason
from quiesce.tools.policy import ToolStopPolicy, ToolStopPolicyName

pytestmark = pytest.mark.feature


@pytest.mark.parametrize(
    ("progress", "part"),
    [
        (0.25, 0.25),
        (1, 1.0),
        ({"done": 3, "total": 4}, 0.75),
        ({"progress": 9, "total": 4}, 1.0),
        (True, None),
        (42, None),
        ("half", None),
        ({"done": 3}, None),
        ({"done": "x", "total": 4}, None),
        ({"done": 3, "total": 0}, None),
    ],
)
def test_progress_is_a_bar_only_where_it_says_how_much(progress: Any, part: float | None) -> None:
    assert fraction(progress) == part


def test_bars_and_words() -> None:
    assert bar(0.5, 4) == "━━╌╌  50%"
    assert progress_text({"done": 1, "total": 2, "message": "a\x1b[2J"}).endswith("50%  a�[2J")
    assert progress_text("copying\nfiles") == "copying files"
    assert progress_text(None) == ""


def test_nothing_that_a_terminal_obeys_is_left() -> None:
    every = "".join(map(chr, range(0x2100)))
    assert not [each for each in clean(every) if each not in "\n\t" and (ord(each) < 32 or 127 <= ord(each) < 160)]
    assert clean("a\r\nb\tc") == "a\nb\tc"
    assert one_line("a\n b  c", 5) == "a b c"
    assert one_line("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("on_stop", "says"),
    [
        ("cancel", "Esc stops bake (it has 2 s to end)"),
        ("finish", "Esc stops after bake has finished (at most 2 s)"),
        ("abandon", "Esc stops waiting for bake after 2 s (it may go on)"),
        ("kill", "Esc stops bake (killed after 2 s)"),
    ],
)
@pytest.mark.case("claude-code#16905")
async def test_the_hint_says_what_esc_will_do_in_every_state(on_stop: ToolStopPolicyName, says: str) -> None:
    controller = ChatController(LocalBackend(Agent(ScriptedModel([Say("Well"), Stall()], then="Good."))))
    assert hint(controller) == "At rest: Esc has nothing to stop"
    run = await controller.say(compose("hi"))
    reader = run.events()
    async for event in reader:
        controller.on_event(event)
        if getattr(event, "text", "") == "Well":
            break
    assert hint(controller) == "Esc stops the answer; the text so far stays"
    controller.tools["1"] = RunningTool("1", "bake", ToolStopPolicy(on_stop, 2.0))
    assert hint(controller) == says
    controller.stop("Esc")
    assert hint(controller) == "Stopping: waiting for bake, 0 s · Esc again forces it: no more grace"
    controller.stop("Esc")
    assert hint(controller) == "Stopping by force: waiting for bake, 0 s · Esc can do no more"
    controller.on_event(await last_event(reader))
    assert await controller.wait_for_end() is None
    assert hint(controller) == "At rest: Esc has nothing to stop"
    assert await answer_command(controller, "/ps") == "Nothing is running."
    assert await answer_command(controller, "/stop") == "Nothing is running."


async def follow(controller: ChatController, prompt: ChatPrompt | Answers) -> str:
    """Run to the end; returns the text of the answers."""
    text = ""
    async for event in (await controller.say(prompt)).events():
        controller.on_event(event)
        text += event.text if isinstance(event, TextDelta) else ""
    await controller.wait_for_end()
    return text


async def last_event(reader: Any) -> Any:
    last = None
    async for event in reader:
        last = event
    return last


def test_every_way_to_end_has_a_word() -> None:
    said_elsewhere = {"cancelled", "error"}  # with its cause, and with its failure
    assert set(ENDINGS) | said_elsewhere == set(get_args(StopReason))
    in_the_console = (files("quiesce.server") / "static" / "words.js").read_text()
    for reason in get_args(StopReason):
        assert f"\n  {reason}: [" in in_the_console


@pytest.mark.parametrize(
    ("given", "reply"),
    [("/approve", "Approved: The limit"), ("/answer 3", "Answered: The limit"), ("/deny", "Denied: The limit")],
)
async def test_a_limit_is_raised_in_the_chat(given: str, reply: str) -> None:
    @tool
    async def tick(ctx: ToolContext) -> int:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return int(ctx.state["n"])

    model = ScriptedModel([Call("tick")], [Call("tick")], "Done.")
    controller = ChatController(LocalBackend(Agent(model, tools=[tick], limits=Limits(turns=2), on_limit="ask")))
    await follow(controller, compose("go"))
    says = question(controller)
    assert says.startswith("The limit of 2 turns is reached. /approve allows as much again")
    assert await answer_command(controller, "/answer many") == says
    assert (await answer_command(controller, given) or "").startswith(reply)
    assert await follow(controller, controller.complete_answers() or {}) == ("" if given == "/deny" else "Done.")
    assert controller.receipts[-1].stop_reason == ("limit" if given == "/deny" else "end_turn")
