"""What an agent, its results and its runs are to a type checker. Nothing here is run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, assert_type

from quiesce import Agent, Conversation, Document, Image, Limits, Run, RunContext, RunResult, Session, Text, UserMessage
from quiesce.cancellation import Source
from quiesce.events import Event, RunEnded, TextDelta
from quiesce.models.base import Model
from quiesce.phases import Phase
from quiesce.receipt import EndReason, Receipt
from quiesce.result import StopReason
from quiesce.run.events.stream import EventStream


@dataclass
class Shop:
    user: str


@dataclass
class Reply:
    text: str


class Clock(Protocol):
    def now(self) -> float: ...


# --- What an agent is ------------------------------------------------------------------------------------------------

plain = Agent("openai:gpt-5")
assert_type(plain, Agent[None, str])
assert_type(Agent("m", deps_type=Shop), Agent[Shop, str])
assert_type(Agent("m", output_type=Reply), Agent[None, Reply])
shop = Agent("m", deps_type=Shop, output_type=Reply)
assert_type(shop, Agent[Shop, Reply])
assert_type(Agent("m", output_type=int | None), Agent[None, int | None])
assert_type(Agent("m", output_type=list[Reply]), Agent[None, list[Reply]])
assert_type(Agent("m", output_type=Literal["yes", "no"]), Agent[None, Literal["yes", "no"]])
assert_type(Agent("m", deps_type=Clock), Agent[Clock, str])
any_agent: Agent[Any, Any] = shop

Agent(5)  # error
Agent("m", timout=3)  # error
Agent("m", output_type=5)  # error
Agent("m", deps_type=5)  # error
Agent("m", limits={})  # error
Agent("m", timeout="5")  # error
Agent("m", tools=5)  # error
Agent("m", retry=5)  # error
Agent("m", settings=[])  # error
Agent("m", state=5)  # error
Agent("m", cut_note=None)  # error
Agent("m", on_busy="wait")  # error
Agent("m", on_prompt="wait")  # error
Agent("m", tool_execution="both")  # error
Agent("m", stop_policy="wait")  # error
Agent("m", conversation=["x"])  # error
Agent("m", instructions=5)  # error

# --- Instructions ----------------------------------------------------------------------------------------------------


def greeting(ctx: RunContext[Shop]) -> str:
    assert_type(ctx.deps, Shop)
    assert_type(ctx.session, str | None)
    assert_type(ctx.owner, str)
    return ctx.deps.user


async def later(ctx: RunContext[Shop]) -> str | None:
    return None


def number(ctx: RunContext[Shop]) -> int:
    return 5


def of_reply(ctx: RunContext[Reply]) -> str:
    return ctx.deps.text


Agent("m", deps_type=Shop, instructions="Be short.")
Agent("m", deps_type=Shop, instructions=greeting)
Agent("m", deps_type=Shop, instructions=["Be short.", greeting, later])
Agent("m", deps_type=Shop, instructions=("Be short.", greeting, later))
Agent("m", deps_type=Shop, instructions=number)  # error
Agent("m", deps_type=Shop, instructions=of_reply)  # error
shop("hi", deps=Shop("ada"), instructions=greeting)
shop("hi", deps=Shop("ada"), instructions=number)  # error

# --- Calls -----------------------------------------------------------------------------------------------------------

assert_type(plain("hi"), RunResult[str])
assert_type(plain("hi").output, str)
assert_type(shop("hi", deps=Shop("ada")), RunResult[Reply])
assert_type(shop("hi", deps=Shop("ada")).output, Reply)
assert_type(shop("hi", deps=Shop("ada"), output_type=int), RunResult[int])
assert_type(plain("hi", output_type=int | None).output, int | None)
assert_type(plain.start("hi"), Run[str])
assert_type(shop.start("hi", deps=Shop("ada")), Run[Reply])
assert_type(plain.start("hi", output_type=bool), Run[bool])
assert_type(plain.stream("hi"), Iterator[Event])
assert_type(plain.stream_async("hi"), EventStream[str])
assert_type(plain.stream_async("hi", output_type=int), EventStream[int])
assert_type(plain.stream_async("hi", output_type=int).run, Run[int])
assert_type(shop.answer({"id": True}, deps=Shop("ada")), RunResult[Reply])
assert_type(shop.start_answer({"id": True}, deps=Shop("ada")), Run[Reply])
assert_type(shop.continue_(deps=Shop("ada")), RunResult[Reply])
assert_type(shop.start_continue(deps=Shop("ada")), Run[Reply])
assert_type(shop.fork(), Agent[Shop, Reply])
assert_type(shop.conversation, Conversation)
assert_type(shop.session, Session | None)

plain("hi", timout=3)  # error
plain("hi", timeout="3")  # error
plain("hi", limits={})  # error
plain("hi", token="t")  # error
plain("hi", session=5)  # error
plain("hi", conversation=["x"])  # error
plain("hi", on_busy="wait")  # error
plain("hi", output_type=5)  # error
plain("hi", deps=Shop("ada"))  # error
shop("hi", deps="ada")  # error
shop("hi", deps=Reply("ada"))  # error
plain.start("hi", timout=3)  # error
plain.stream_async("hi", timout=3)  # error
plain.answer(["x"])  # error

# --- Prompts ---------------------------------------------------------------------------------------------------------

plain(["What is this?", Image(url="https://example.org/a.png")])
plain(["one", "two"])
plain([Text("one"), Document(data=b"")])
plain(("one", Image()))
plain(UserMessage((Text("hi"),)))
plain(5)  # error
plain({"text": "hi"})  # error
plain(["hi", 5])  # error
plain(b"hi")  # error

# --- Stopping --------------------------------------------------------------------------------------------------------

plain.cancel("enough", mode="after_turn", source="user")
plain.cancel(mode="softly")  # error
plain.cancel(source="nobody")  # error
plain.start("hi").cancel(mode="kill", undo=True)
plain.start("hi").cancel(mode="softly")  # error
plain.start("hi").steer("wait", mode="softly")  # error

# --- Replaced in tests -----------------------------------------------------------------------------------------------


def overridden(fake: Model) -> None:
    with shop.override(model=fake, deps=Shop("test"), instructions="Be short.", tools=[]):
        shop("hi", deps=Shop("ada"))
    with shop.override(deps="test"):  # error
        pass
    with shop.override(modle=fake):  # error
        pass


# --- A run, its result and its events --------------------------------------------------------------------------------


async def runs(run: Run[Reply], stream: EventStream[Reply]) -> None:
    assert_type(await run, RunResult[Reply])
    assert_type((await run).output, Reply)
    assert_type(await run.stopped(), Receipt)
    assert_type(run.wait(5), RunResult[Reply])
    assert_type(run.phase, Phase)
    assert_type(await shop.invoke_async("hi", deps=Shop("ada")), RunResult[Reply])
    assert_type(await plain.invoke_async("hi", output_type=int), RunResult[int])
    assert_type(await shop.answer_async({}, deps=Shop("ada")), RunResult[Reply])
    assert_type(await shop.continue_async(deps=Shop("ada")), RunResult[Reply])
    async for event in run:
        assert_type(event, Event)
    events: AsyncIterator[Event] = stream
    async for event in events:
        if isinstance(event, TextDelta):
            assert_type(event.text, str)
            assert_type(event.type, Literal["text"])
        elif isinstance(event, RunEnded):
            assert_type(event.stop_reason, EndReason)
    async with stream:
        assert_type(stream.run, Run[Reply])


def results(result: RunResult[Reply]) -> None:
    assert_type(result.stop_reason, StopReason)
    assert_type(result.output, Reply)
    assert_type(result.finished, bool)
    assert_type(result.text, str)
    assert_type(result.receipt.stop_reason, EndReason)
    if result.receipt.cause is not None:
        assert_type(result.receipt.cause.source, Source)
        if result.receipt.cause.source == "softly":  # error: strict
            pass
    if result.stop_reason == "ended":  # error: strict
        pass
    if result.receipt.phase is Phase.ENDED:
        pass
    result.stop_reason = "end_turn"  # error
    Limits(turns="5")  # error
