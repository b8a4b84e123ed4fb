"""What tools and hooks are to a type checker. Nothing here is run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

from quiesce import Agent, Tool, ToolContext, tool
from quiesce.cancellation import TokenView
from quiesce.hooks import (
    AfterModelCall,
    AfterRun,
    AfterToolCall,
    BeforeModelCall,
    BeforeRun,
    BeforeToolCall,
    HookEvent,
    OnLateOutcome,
    OnMessage,
    OnStop,
)
from quiesce.messages import AssistantMessage, ToolCall


@dataclass
class Shop:
    user: str


# --- A tool keeps its signature --------------------------------------------------------------------------------------


@tool
def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


@tool(on_stop="finish", grace=5)
async def orders(ctx: ToolContext[Shop], since: str) -> list[str]:
    """The orders."""
    assert_type(ctx.deps, Shop)
    assert_type(ctx.deps.user, str)
    assert_type(ctx.state, dict[str, Any])
    assert_type(ctx.token, TokenView)
    assert_type(ctx.call_id, str)
    ctx.deps.address  # error
    ctx.deps = Shop("eve")  # error
    return [since]


@tool
async def count(to: int) -> AsyncIterator[int]:
    """Count."""
    for number in range(to):
        yield number


assert_type(add(1), int)
assert_type(add(1, b=3), int)
assert_type(add.name, str)
add("1")  # error
add()  # error
add(1, c=3)  # error


async def called(ctx: ToolContext[Shop], other: ToolContext[int]) -> None:
    assert_type(await orders(ctx, since="today"), list[str])
    await orders(ctx)  # error
    await orders(other, since="today")  # error
    coroutine: Coroutine[Any, Any, list[str]] = orders(ctx, "today")
    await coroutine
    async for number in count(3):
        assert_type(number, int)


@tool(on_stop="softly")  # error
def bad_policy() -> None: ...


@tool(graze=5)  # error
def bad_option() -> None: ...


@add.undo
def take_back(a: int) -> None: ...


assert_type(take_back(1), None)
several: list[Tool] = [add, orders]
agent = Agent("m", deps_type=Shop, tools=[add, orders, count, Agent("m").as_tool(), Agent("m")])
assert_type(agent, Agent[Shop, str])
Agent("m", tools=["add"])  # error

# --- Hooks -----------------------------------------------------------------------------------------------------------


def before_run(event: BeforeRun) -> None: ...


async def tool_calls(event: BeforeToolCall | AfterToolCall) -> None:
    assert_type(event.call, ToolCall)
    event.cancel(mode="softly")  # error


def everything(event: HookEvent) -> None: ...


def model_calls(event: BeforeModelCall | AfterModelCall) -> None:
    if isinstance(event, AfterModelCall):
        assert_type(event.message, AssistantMessage)


def messages(event: OnMessage) -> None: ...
def stops(event: OnStop) -> None: ...
def late(event: OnLateOutcome) -> None: ...
def after_run(event: AfterRun) -> None: ...
def of_a_number(event: int) -> None: ...
def of_nothing() -> None: ...
def of_two(event: BeforeRun, more: int) -> None: ...


class Watcher:
    def on_stop(self, event: OnStop) -> None: ...

    async def __call__(self, event: AfterRun) -> None: ...


Agent("m", hooks=[before_run])
Agent("m", hooks=[before_run, tool_calls, everything, model_calls, messages, stops, late, after_run])
Agent("m", hooks=(Watcher(), Watcher().on_stop))
Agent("m", hooks=[of_a_number])  # error
Agent("m", hooks=[of_nothing])  # error
Agent("m", hooks=[of_two])  # error
Agent("m", hooks=5)  # error
Agent("m", hooks=before_run)  # error


@agent.hook()
def registered(event: OnStop) -> None:
    assert_type(event.cause.reason, str)


@agent.hook(BeforeRun, AfterRun)
def chosen(event: BeforeRun | AfterRun) -> None: ...


@agent.hook()  # error
def refused(event: int) -> None: ...


agent.hook(int)  # error
