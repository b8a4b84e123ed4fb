"""Every-point injection over tools with processes, shields, timeouts and calls that are left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import oddities
import pytest
from tool_runs import stray_processes

from quiesce import Agent, ToolContext
from quiesce.events import ToolStarted
from quiesce.testing import ALL_SOURCES, Call, Gate, Harness, Say, ScriptedModel, stop_everywhere, virtual_time
from quiesce.tools.tool import Tool

pytestmark = [
    pytest.mark.promise("P1", "P5"),
    pytest.mark.leaves("tasks"),  # the injector looks for them itself, at every point
]

GRACE = 0.02


def scripted(*calls: Call) -> ScriptedModel:
    return ScriptedModel([Say("Let me."), *calls], then="Done.")


def killable() -> Agent:
    tools = [
        Tool(oddities.speak, on_stop="kill", grace=GRACE),
        Tool(oddities.asynchronous, on_stop="kill", grace=GRACE),
    ]
    return Agent(scripted(Call("speak", {"words": "hello"}), Call("asynchronous")), tools=tools)


def killable_in_turn() -> Agent:
    tools = [
        Tool(oddities.speak, on_stop="kill", grace=GRACE),
        Tool(oddities.exit_at_once, on_stop="kill", grace=GRACE),
    ]
    calls = (Call("speak", {"words": "one"}), Call("exit_at_once"), Call("speak", {"words": "two"}))
    return Agent(scripted(*calls), tools=tools, tool_execution="sequential")


def killable_with_a_timeout() -> Agent:
    def sleeps() -> str:
        import time

        time.sleep(1000)
        return "never"

    return Agent(scripted(Call("sleeps")), tools=[Tool(sleeps, on_stop="kill", grace=GRACE, timeout=0.01)])


def programs() -> Agent:
    async def run(ctx: ToolContext) -> str:
        first = await ctx.run_process(["sh", "-c", "echo one"])
        second = await ctx.run_process(["cat"], input=first.stdout, report=False)
        return second.stdout

    return Agent(scripted(Call("run")), tools=[Tool(run, grace=GRACE)])


def shielded() -> Agent:
    async def transfer(ctx: ToolContext) -> str:
        await asyncio.sleep(1)
        async with ctx.shield("transfer"):
            await asyncio.sleep(1)
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        return "transferred"

    async def quick(ctx: ToolContext) -> str:
        async with ctx.shield():
            return "quick"

    return Agent(scripted(Call("transfer"), Call("quick")), tools=[Tool(transfer, grace=10), Tool(quick, grace=10)])


def shielded_for_too_long() -> Agent:
    async def transfer(ctx: ToolContext) -> str:
        async with ctx.shield("transfer"):
            await asyncio.sleep(20)
        return "transferred"

    return Agent(scripted(Call("transfer")), tools=[Tool(transfer, grace=3)])


async def abandoned(harness: Harness) -> None:
    gate = Gate()
    harness.on_close(gate.open)

    def waits() -> str:
        gate.wait()
        return "late"

    async def insists() -> str:
        for _ in range(3):
            try:
                await asyncio.sleep(2)
            except asyncio.CancelledError:
                continue
        return "insisted"

    tools = [Tool(waits, grace=1, timeout=5), Tool(insists, grace=1)]
    await harness.invoke(Agent(scripted(Call("waits"), Call("insists")), tools=tools), "go")
    gate.open()
    await asyncio.sleep(10)


async def one_call_cancelled(harness: Harness) -> None:
    async def endless() -> str:
        await asyncio.sleep(1000)
        return "never"

    async def brief() -> str:
        await asyncio.sleep(1)
        return "brief"

    agent = Agent(scripted(Call("endless"), Call("brief")), tools=[Tool(endless, grace=1), Tool(brief, grace=1)])
    run = harness.start(agent, "go")
    run.tap(
        lambda event: (
            isinstance(event, ToolStarted) and event.call.name == "endless" and run.cancel_tool(event.call.id, "test")
        )
    )
    await run


def timed_out() -> Agent:
    async def slow() -> str:
        await asyncio.sleep(1000)
        return "never"

    return Agent(scripted(Call("slow"), Call("slow")), tools=[Tool(slow, timeout=5, grace=1)])


IN_PROCESSES = [killable, killable_in_turn, killable_with_a_timeout, programs]
IN_THE_LOOP = [shielded, shielded_for_too_long, abandoned, one_call_cancelled, timed_out]


@pytest.mark.parametrize("workload", IN_THE_LOOP, ids=lambda each: each.__name__)
def test_some_points(workload: Callable[..., object]) -> None:
    print(stop_everywhere(workload, sources=ALL_SOURCES, stride=5))


@pytest.mark.proof
@pytest.mark.parametrize("workload", IN_THE_LOOP, ids=lambda each: each.__name__)
def test_every_point(workload: Callable[..., object]) -> None:
    print(stop_everywhere(workload, sources=ALL_SOURCES))


@pytest.mark.parametrize("workload", [killable, killable_in_turn, programs], ids=lambda each: each.__name__)
def test_some_points_with_processes(workload: Callable[..., object]) -> None:
    print(stop_everywhere(workload, sources=("loop", "thread", "kill", "task", "after_tools"), stride=5))
    assert stray_processes() == []


@pytest.mark.proof
@pytest.mark.parametrize("workload", IN_PROCESSES, ids=lambda each: each.__name__)
def test_every_point_with_processes(workload: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    if workload is killable_with_a_timeout:  # its process says nothing: each jump of the clock would wait two seconds
        monkeypatch.setattr(virtual_time, "PROCESS_TIMEOUT", 0.3)
    print(stop_everywhere(workload, sources=ALL_SOURCES))
    assert stray_processes() == []


@pytest.mark.proof
@pytest.mark.parametrize("workload", IN_THE_LOOP, ids=lambda each: each.__name__)
def test_between_any_two_lines(workload: Callable[..., object]) -> None:
    print(stop_everywhere(workload, sources=("line",)))
