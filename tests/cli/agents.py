"""Agents for the command line's tests, loaded by name as people load theirs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from quiesce import Agent, ToolContext, tool
from quiesce.errors import AuthenticationFailed
from quiesce.events import Delta
from quiesce.messages import ToolMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Call, Fail, Pause, Say, ScriptedModel, Stall, Used

WORDS = "Bread is flour, water, salt and time. "


@tool(on_stop="cancel", grace=30)
async def build(target: str, ctx: ToolContext) -> str:
    """Build something, slowly, and do not hurry when asked to stop."""
    try:
        for step in range(1, 4):
            ctx.report({"done": step, "total": 10, "message": f"step {step}"})
            await asyncio.sleep(0.05)
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        await asyncio.sleep(600)  # takes its grace
        raise
    return f"built {target}"


@tool(on_stop="finish", grace=30)
async def look(what: str) -> str:
    """Look something up."""
    await asyncio.sleep(0.05)
    return f"{what}: fine"


def short() -> Agent:
    return Agent(ScriptedModel([Say("Hello there."), Used(input=12, output=3)], then="And again."), name="short")


def foreign() -> Agent:
    return Agent(ScriptedModel(then="Café done."), name="foreign")


def tools() -> Agent:
    return Agent(
        ScriptedModel(
            [Say("Let me look."), Call("look", {"what": "oven"}), Used(input=20, output=9)],
            [Say("It is fine."), Used(input=40, output=4)],
        ),
        tools=[look],
        name="tools",
    )


def endless() -> Agent:
    """Speaks until it is stopped; after that, answers at once."""
    return Agent(
        ScriptedModel([Say(WORDS * 2000, chunk=6, pause=0.02)], then=[Say("Very well."), Used(input=50, output=2)]),
        name="endless",
    )


def stalled() -> Agent:
    """Says a few words and then nothing more."""
    return Agent(ScriptedModel([Say("One moment"), Stall()], then="Very well."), name="stalled")


def slow_tool() -> Agent:
    return Agent(
        ScriptedModel(
            [Say("I shall build it."), Call("build", {"target": "all"}), Used(input=20, output=9)],
            then=[Say("Very well."), Used(input=60, output=2)],
        ),
        tools=[build],
        name="slow",
    )


def brief_wait() -> Agent:
    """Long enough to queue something meanwhile."""
    return Agent(ScriptedModel([Say("First."), Pause(1.5), Say(" Done.")], then="Second."), name="brief")


def failing() -> Agent:
    return Agent(ScriptedModel([Say("I will"), Fail(AuthenticationFailed("The key was refused."))]), name="failing")


def hostile() -> Agent:
    """Tries to give the terminal orders."""
    return Agent(ScriptedModel("Before\x1b]0;owned\x07\x1b[2Jafter"), name="hostile")


class TellsOfItsEnd(ScriptedModel):
    """Makes the file that $CLOSED names when its stream has been closed."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        try:
            async with super().stream(request) as deltas:
                yield deltas
        finally:
            Path(os.environ["CLOSED"]).touch()


def flood() -> Agent:
    """Says far more than a pipe holds."""
    return Agent(TellsOfItsEnd([Say(WORDS * 20_000, chunk=60, pause=0.001), Stall()]), name="flood")


@tool(requires_approval=True, preview=lambda arguments: f"-{arguments['path']}\n+nothing\x1b[2J")
async def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


def careful() -> Agent:
    """Asks before it deletes."""
    return Agent(
        ScriptedModel([Say("I need to ask."), Call("delete", {"path": "a.txt"})], then="As you wish."),
        tools=[delete],
        name="careful",
    )


@tool(on_stop="abandon", grace=0.1)
def dig() -> str:
    """A thread that cannot be stopped, and ends when the file that $GO_ON names is there."""
    while not Path(os.environ["GO_ON"]).exists():
        time.sleep(0.01)
    return "a hole"


def digging() -> Agent:
    return Agent(ScriptedModel([Say("I dig."), Call("dig")], then="Very well."), tools=[dig], name="digging")


@tool
async def write(path: str) -> str:
    """Write a file."""
    Path(path).write_text("written")
    return f"wrote {path}"


@write.undo
async def unwrite(path: str) -> None:
    Path(path).unlink()


@tool
async def mail(to: str) -> str:
    """Send a letter, which nobody can take back."""
    return f"sent to {to}"


@tool
async def book(room: str) -> str:
    """Book a room."""
    return f"booked {room}"


@book.undo
async def unbook(room: str) -> None:
    """Takes long."""
    if room == "never":
        raise RuntimeError("the hotel does not answer")
    await asyncio.sleep(600)


def writing() -> Agent:
    """Writes the files that $FILES names, and a letter."""
    calls = [Call("write", {"path": path}) for path in os.environ["FILES"].split()]
    return Agent(
        ScriptedModel([Say("I write."), *calls, Call("mail", {"to": "Ann"})], then="All written."),
        tools=[write, mail],
        name="writing",
    )


def booking() -> Agent:
    return Agent(
        ScriptedModel([Call("book", {"room": "blue"}), Call("book", {"room": "red"})], then="Booked."),
        tools=[book],
        name="booking",
    )


def failing_undo() -> Agent:
    return Agent(ScriptedModel([Call("book", {"room": "never"})], then="Booked."), tools=[book], name="failing")


class _Deleter(ScriptedModel):
    """Asks to delete a file, and says what came of it."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        last = request.messages[-1]
        text = last.results[0].text if isinstance(last, ToolMessage) else "nothing to do"
        if len(request.messages) == 1:
            model = ScriptedModel([Call("delete", {"path": "old.txt"})])
        else:
            model = ScriptedModel([Say(f"Done: {text}.")])
        async with model.stream(request) as deltas:
            yield deltas


def deletes() -> Agent:
    return Agent(_Deleter(), tools=[delete], name="deleter")
