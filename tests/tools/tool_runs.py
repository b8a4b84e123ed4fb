"""What the tests of tools share: one call in one run, stopped when the tool says that it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from quiesce import Agent, RunResult
from quiesce.conversation.validity import check
from quiesce.events import Event, ToolProgress
from quiesce.messages import ToolMessage, ToolResult
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.processes.kill_tree import children, descendants
from quiesce.processes.supervised import fork_server
from quiesce.run.handle import Run
from quiesce.tools.tool import Tool


def killable(function: Callable[..., Any], **options: Any) -> Tool:
    """A tool that runs in a process of its own, with little grace."""
    return Tool(function, on_stop="kill", **{"grace": 0.05, **options})


def agent_with(*tools: Tool, calls: list[Call] | None = None, **options: Any) -> Agent:
    """An agent that calls each tool once, with the arguments given, and then says that it is done."""
    asked = calls or [Call(tool.name) for tool in tools]
    return Agent(ScriptedModel(asked, then="done"), tools=tools, **options)


def results(outcome: RunResult) -> dict[str, ToolResult]:
    """The tool results of a run, by tool name."""
    check(outcome.messages)
    messages = [message for message in outcome.new_messages if isinstance(message, ToolMessage)]
    return {result.name: result for message in messages for result in message.results}


async def call(tool: Tool, arguments: dict[str, Any] | None = None, **options: Any) -> ToolResult:
    """The result of one call."""
    agent = agent_with(tool, calls=[Call(tool.name, arguments or {})], **options)
    return results(await agent.invoke_async("go"))[tool.name]


async def stop_when(
    agent: Agent, act: Callable[[Run], object], *, ready: Callable[[Event], bool] | None = None
) -> tuple[RunResult, list[Event]]:
    """Run, and call `act(run)` once, at the first event that is `ready`: by default the report "ready"."""
    run = agent.start("go")
    events: list[Event] = []
    acted = False
    async for event in run:
        events.append(event)
        is_ready = ready(event) if ready else isinstance(event, ToolProgress) and event.progress == "ready"
        if is_ready and not acted:
            acted = True
            act(run)
    assert acted, events
    return await run, events


def stray_processes() -> list[int]:
    """Everything below the fork server that is neither a supervisor nor its one idle worker."""
    if fork_server.pid is None:
        return []
    strays: list[int] = []
    for supervisor in children(fork_server.pid):
        worker, *others = children(supervisor) or [None]
        strays += others + ([] if worker is None else descendants(worker))
    return strays


def run_async(main: Any) -> Any:
    """Run a test's coroutine; what it leaves behind in the loop fails the test."""

    async def whole() -> Any:
        outcome = await main
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, left
        return outcome

    return asyncio.run(whole())
