"""What the soak runs: a model that answers at random, tools of every kind, and agents below agents."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

from quiesce import Agent, Limits, Retry, ToolContext, tool
from quiesce.as_tool import handoff
from quiesce.errors import ConnectionFailed, Overloaded
from quiesce.events import Delta
from quiesce.messages import ToolMessage, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Call, Drop, Fail, Pause, Say, ScriptedModel, Stall, Step, Think, TornCall, Used
from quiesce.usage.prices import Price

TOOLS = ("fetch", "read", "count", "slow", "careless", "pay", "choose", "helper", "notebook", "colleague")
# A process for each call: a few of them.
KILLABLE = ("crunch", "program")


class Pace:
    """How long everything takes: the soak slows down until it needs no more of the processor than it may."""

    def __init__(self) -> None:
        self.scale = 1.0

    def adjust(self, used: float, wanted: float, lag: float) -> None:
        """`used` and `wanted` are parts of one core; a loop that is late has too much to do on this machine."""
        factor = 1.3 if lag > 0.2 else min(1.5, max(0.8, used / wanted))
        self.scale = min(12.0, max(0.3, self.scale * factor))


class RandomModel:
    """Answers with text, reasoning and calls; now and then it fails, breaks off, or stalls."""

    name = "soak"
    price = Price(Decimal(1), Decimal(2))

    def __init__(self, dice: random.Random, pace: Pace) -> None:
        self._dice = dice
        self._pace = pace
        self._ids = itertools.count(1)
        self.open_streams = 0

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """One answer."""
        self.open_streams += 1
        try:
            async with ScriptedModel(list(self._answer(request)), name=self.name).stream(request) as deltas:
                yield deltas
        finally:
            self.open_streams -= 1

    def _answer(self, request: ModelRequest) -> list[Step]:
        dice, pause = self._dice, self._dice.expovariate(1.0) * self._pace.scale
        said: list[Step] = [Pause(pause * 0.5)]
        if dice.random() < 0.2:
            said.append(Think("Let me think about it. ", pause=0.05 * pause))
        said.append(Say("word " * dice.randint(1, 8), chunk=10, pause=0.2 * pause))
        what = dice.random()
        if what < 0.01:
            return [*said, Fail(Overloaded("The model is overloaded."))]
        if what < 0.02:
            return [Fail(ConnectionFailed("There is no connection."))]
        if what < 0.03:
            return [*said, Drop()]
        if what < 0.04:
            return [*said, TornCall("fetch", id=self._id()), Stall()]
        if what < 0.05:
            return [*said, Stall()]
        if what < 0.55 and _turns(request) < 3 and request.tools:
            said += [self._call(request) for _ in range(dice.choice((1, 1, 2, 3)))]
        return [*said, Used(input=100, output=20)]

    def _id(self) -> str:
        return f"call_{next(self._ids)}"

    def _call(self, request: ModelRequest) -> Call:
        there = {spec.name for spec in request.tools}
        wanted = KILLABLE if self._dice.random() < 0.02 else TOOLS
        name = self._dice.choice([name for name in wanted if name in there] or ["fetch"])
        seconds = round(self._dice.expovariate(1.0) * self._pace.scale, 3)
        match name:
            case "helper" | "notebook":
                arguments: dict[str, Any] = {"prompt": "Find out."}
            case "colleague":
                arguments = {}
            case "read" | "slow" | "crunch" | "program":
                arguments = {"seconds": min(seconds, 0.5)}
            case _:
                arguments = {"seconds": seconds}
        return Call(name, arguments, id=self._id())


def _turns(request: ModelRequest) -> int:
    """How many turns with tools there were since the last prompt."""
    count = 0
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            break
        count += isinstance(message, ToolMessage)
    return count


# --- Tools --------------------------------------------------------------------------------------------------------


@tool
async def fetch(seconds: float) -> str:
    """Wait, in the loop."""
    await asyncio.sleep(seconds)
    return "fetched " * 10


@tool(on_stop="finish", grace=1)
def read(seconds: float) -> str:
    """Wait, in a thread, to the end."""
    time.sleep(seconds)
    return "read"


@tool(on_stop="abandon")
def slow(seconds: float) -> str:
    """Wait, in a thread that is left behind by a stop."""
    time.sleep(seconds)
    return "at last"


@tool
async def count(seconds: float) -> AsyncIterator[str]:
    """Report while it waits."""
    for number in range(3):
        await asyncio.sleep(seconds / 3)
        yield f"{number}"


@tool(timeout=0.5)
async def careless(ctx: ToolContext, seconds: float) -> str:
    """Fail, or take too long."""
    with ctx.shield("a short one"):
        await asyncio.sleep(min(seconds, 0.05))
    await asyncio.sleep(seconds / 2)
    raise ValueError("That did not work.")


@tool(requires_approval=True)
async def pay(seconds: float) -> str:
    """Ask a person first."""
    await asyncio.sleep(min(seconds, 0.1))
    return "paid"


@pay.undo
async def pay_back() -> str:
    """Take it back."""
    return "paid back"


@tool
def choose(ctx: ToolContext, seconds: float) -> str:
    """Ask a person in the middle."""
    return f"{ctx.interrupt('which', reason='one of two')} after {seconds}"


@tool(on_stop="kill", grace=0.2)
def crunch(seconds: float) -> str:
    """Wait, in a process of its own."""
    time.sleep(seconds)
    return "crunched"


@tool
async def program(ctx: ToolContext, seconds: float) -> str:
    """Wait, in a program."""
    return (await ctx.run_process(["sleep", str(seconds)])).stdout or "nothing"


IN_LOOP = (fetch, count, careless, pay)


def make_agent(dice: random.Random, pace: Pace, *, threads: bool = True) -> tuple[list[Agent[Any, Any]], RandomModel]:
    """An agent with all tools, two agents below it, and one beside it. Without `threads`, all is in the loop.

    The first of the agents is the one that the others work for.
    """
    model = RandomModel(dice, pace)
    retry = Retry(attempts=3, first=0.05, longest=0.2)
    limits = Limits(turns=20, output_tokens=20_000)
    below = Agent(model, name="below", tools=[fetch, read, count] if threads else [fetch, count], retry=retry)
    beside = Agent(model, name="beside", tools=[fetch, pay], retry=retry)
    own = (fetch, read, slow, count, careless, pay, choose, crunch, program) if threads else IN_LOOP
    delegates = (below.as_tool("helper"), below.as_tool("notebook", memory=True), handoff(beside, name="colleague"))
    return [Agent(model, name="soak", tools=[*own, *delegates], retry=retry, limits=limits), below, beside], model
