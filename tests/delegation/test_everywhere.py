"""Trees of agents, stopped before every step, from every source."""

from __future__ import annotations

import asyncio

import pytest

from quiesce import Agent, Conversation, ToolContext, handoff, tool
from quiesce.conversation.validity import faults
from quiesce.run.handle import state_of
from quiesce.testing import ALL_SOURCES, Call, Harness, Say, ScriptedModel, Used, stop_everywhere

from ..injection.sources import SOME_POINTS

pytestmark = pytest.mark.promise("P2", "P8")


@tool
async def quick(word: str = "quick") -> str:
    """Answer at once."""
    return word


@tool
async def nap() -> str:
    """Take a moment."""
    await asyncio.sleep(1)
    return "slept"


def ask(*names: str) -> list[Call]:
    return [Call(name, {"prompt": "Go."}) for name in names]


def scout(name: str, *tools) -> Agent:
    steps = [Say("On it. "), *(Call(each.name) for each in tools), Used(input=5, output=5)]
    return Agent(ScriptedModel(steps, then=[Say("Found it."), Used(input=6, output=2)]), tools=tools, name=name)


def boss(*children: Agent) -> Agent:
    model = ScriptedModel([Say("Asking. "), *ask(*(child.name for child in children))], then="All done.")
    return Agent(model, tools=[child.as_tool() for child in children], name="boss")


async def check_children(harness: Harness, agent: Agent) -> None:
    """The run, and then what it left below."""
    run = harness.start(agent, "Go.")
    try:
        await run
    finally:
        result = run.inspect().result
        if result is not None:
            for child in result.children:
                assert not faults(child.messages)
                assert all(entry.ended != "open" for entry in child.usage.entries)
                ours = {entry.id for entry in result.usage.entries}
                assert {entry.id for entry in child.usage.entries} <= ours
            assert all(child.state.progress.ended for child in state_of(run).family.children)


async def two_children(harness: Harness) -> None:
    await check_children(harness, boss(scout("left", quick, nap), scout("right")))


async def three_levels(harness: Harness) -> None:
    middle = boss(scout("leaf", nap))
    middle_tool = middle.as_tool("middle")
    top = Agent(ScriptedModel([Say("Top. "), *ask("middle")], then="Topped."), tools=[middle_tool, quick], name="top")
    await check_children(harness, top)


async def handed_over(harness: Harness) -> None:
    french = scout("french")  # without tools of its own, because the log wraps the tools of the first agent only
    triage = Agent(ScriptedModel([Say("Hold on. "), Call("hand_over_to_french")], then="Back."),
                   tools=[handoff(french)], name="triage")  # fmt: skip
    await harness.invoke(triage, "Salut")


async def left_alone(harness: Harness) -> None:
    """A tool starts a child and does not wait for it: the child is still busy when its parent has finished."""
    child = scout("child", nap)

    @tool
    async def send(context: ToolContext) -> str:
        """Start a child."""
        child.start("Go.", within=context, conversation=Conversation())
        return "sent"

    model = ScriptedModel([Say("Sending. "), Call("send")], then="Sent.")
    await check_children(harness, Agent(model, tools=[send], name="boss"))


WORKLOADS = [two_children, three_levels, handed_over, left_alone]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_stop_a_tree_at_many_points(workload):
    sources = ("loop", "kill", "task", "escalate", "hook")
    print(stop_everywhere(workload, sources=sources, stride=SOME_POINTS, name=workload.__name__))


@pytest.mark.proof
@pytest.mark.parametrize("workload", WORKLOADS)
def test_stop_a_tree_at_every_point_from_every_source(workload):
    print(stop_everywhere(workload, sources=ALL_SOURCES, name=workload.__name__))
    print(stop_everywhere(workload, sources=("line",), stride=7, name=workload.__name__))


async def ten_deep(harness: Harness) -> None:
    agent = scout("level0", nap)
    for level in range(1, 10):
        agent = Agent(ScriptedModel(ask(f"level{level - 1}"), then="Up."), tools=[agent.as_tool()],
                      name=f"level{level}")  # fmt: skip
    await check_children(harness, agent)


async def wide(harness: Harness) -> None:
    await check_children(harness, boss(*(scout(f"child{number}") for number in range(20))))


@pytest.mark.parametrize("workload", [ten_deep, wide])
def test_stop_a_large_tree_at_many_points(workload):
    print(stop_everywhere(workload, sources=("loop", "kill"), stride=61, name=workload.__name__))
