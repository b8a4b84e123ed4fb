"""Workloads that reach limits and run into timeouts: each stopped at every point."""

from __future__ import annotations

import asyncio
from typing import Any

from quiesce import Agent, Limits, Retry, ToolContext, tool
from quiesce.errors import RunError
from quiesce.testing import Call, Harness, Pause, Say, ScriptedModel, Stall, Used
from tests.injection.registry import Workloads
from tests.injection.saved_workloads import saved_agent
from tests.injection.tools import quick, slow

WORKLOADS = Workloads()
workload = WORKLOADS.add


@tool
async def tick(ctx: ToolContext) -> int:
    """A number that is never the same."""
    ctx.state["ticks"] = ctx.state.get("ticks", 0) + 1
    return int(ctx.state["ticks"])


async def raised(agent: Agent, harness: Harness, answer: object = True, **options: Any) -> None:
    """Bring the agent to where a limit is asked about, and answer."""
    assert (await harness.invoke(agent, "Go", target=False, **options)).stop_reason == "interrupt"
    (interrupt,) = agent.interrupts
    await harness.start_answer(agent, {interrupt.id: answer}, target=True)


# --- One last answer -------------------------------------------------------------------------------------------------


@workload
async def last_answer_after_turns(harness: Harness) -> None:
    harness.expect_cause("budget")
    model = ScriptedModel([Call("tick")], [Call("slow")], Say("That is all I know.", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, tools=[tick, slow], on_limit="answer"), "Go", limits=Limits(turns=2))


@workload
async def last_answer_instead_of_tools(harness: Harness) -> None:
    harness.expect_cause("budget")
    model = ScriptedModel([Say("Both: "), Call("tick"), Call("slow")], Say("Neither.", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, tools=[tick, slow], on_limit="answer"), "Go", limits=Limits(tool_calls=1))


@workload
async def last_answer_after_a_cut_one(harness: Harness) -> None:
    harness.expect_cause("budget")
    cut = [Say("Let me see: ", pause=0.1), Call("slow", pause=0.1), Used(10, 100)]
    model = ScriptedModel(cut, Say("Not seen.", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, tools=[slow], on_limit="answer"), "Go", limits=Limits(output_tokens=20))


@workload
async def last_answer_that_asks_for_tools(harness: Harness) -> None:
    harness.expect_cause("budget")
    again = [Say("Again: ", pause=0.1), Call("tick")]
    model = ScriptedModel([Call("tick")], again, then="Yes.")
    await harness.invoke(Agent(model, tools=[tick], on_limit="answer"), "Go", limits=Limits(turns=1))


@workload
async def long_answer_that_is_the_last(harness: Harness) -> None:
    harness.expect_cause("budget")
    model = ScriptedModel(Say("so many words that the budget is gone before the end", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, on_limit="answer"), "Go", limits=Limits(output_tokens=8))


@workload
async def steered_in_the_last_answer(harness: Harness) -> None:
    harness.expect_cause("budget")
    model = ScriptedModel([Call("tick")], *[Say("The last answer, a long one.", pause=0.5)] * 2, then="Yes.")
    run = harness.start(Agent(model, tools=[tick], on_limit="answer"), "Go", limits=Limits(turns=1))
    asyncio.get_running_loop().call_later(1, lambda: run.steer("No, shorter!"))
    await run


@workload
async def child_reaches_the_parents_limit(harness: Harness) -> None:
    harness.expect_cause("budget")
    child = Agent(ScriptedModel(*[[Call("tick")]] * 9), tools=[tick], name="child")
    model = ScriptedModel([Call("child", {"prompt": "go"}), Call("slow")], Say("So be it.", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, tools=[child, slow], on_limit="answer"), "Go", limits=Limits(turns=3))


# --- Asking a person -------------------------------------------------------------------------------------------------


@workload
async def asking_for_turns(harness: Harness) -> None:
    model = ScriptedModel([Call("tick")], [Call("slow")], then="Yes.")
    await harness.invoke(Agent(model, tools=[tick, slow], on_limit="ask"), "Go", limits=Limits(turns=2))


@workload
async def asking_for_tokens(harness: Harness) -> None:
    model = ScriptedModel(Say("so many words that the budget is gone before the end", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, on_limit="ask"), "Go", limits=Limits(output_tokens=8))


@workload
async def asking_for_tokens_with_a_call(harness: Harness) -> None:
    cut = [Say("Let me see: ", pause=0.1), Call("slow", pause=0.1), Used(10, 100)]
    model = ScriptedModel(cut, then="Yes.")
    await harness.invoke(Agent(model, tools=[slow], on_limit="ask"), "Go", limits=Limits(output_tokens=20))


@workload
async def more_turns(harness: Harness) -> None:
    model = ScriptedModel([Call("tick")], [Call("slow")], Say("Done at last.", pause=0.1), then="Yes.")
    await raised(Agent(model, tools=[tick, slow], limits=Limits(turns=1), on_limit="ask"), harness, 5)


@workload
async def more_tool_calls(harness: Harness) -> None:
    model = ScriptedModel([Say("Both: "), Call("tick"), Call("slow")], Say("Both done.", pause=0.1), then="Yes.")
    await raised(Agent(model, tools=[tick, slow], limits=Limits(tool_calls=1), on_limit="ask"), harness)


@workload
async def more_tokens(harness: Harness) -> None:
    long = Say("so many words that the budget is gone before the end", pause=0.1)
    model = ScriptedModel(long, Say("and a few more words", pause=0.1), then="Yes.")
    await raised(Agent(model, limits=Limits(output_tokens=8), on_limit="ask"), harness, 1000)


@workload
async def more_tokens_and_tools(harness: Harness) -> None:
    cut = [Say("Let me see: ", pause=0.1), Call("slow", pause=0.1), Used(10, 100)]
    model = ScriptedModel(cut, Say("Seen.", pause=0.1), then="Yes.")
    await raised(Agent(model, tools=[slow], limits=Limits(output_tokens=20), on_limit="ask"), harness, 1000)


@workload
async def asked_twice(harness: Harness) -> None:
    model = ScriptedModel(*[[Call("tick")]] * 5, then="Yes.")
    await raised(Agent(model, tools=[tick], limits=Limits(turns=2), on_limit="ask"), harness)


@workload
async def refused(harness: Harness) -> None:
    harness.expect_cause("budget")
    model = ScriptedModel([Call("tick")], then="Yes.")
    await raised(Agent(model, tools=[tick], limits=Limits(turns=1), on_limit="ask"), harness, False)


@workload
async def more_turns_in_a_session(harness: Harness) -> None:
    model = ScriptedModel([Call("tick")], [Call("slow")], Say("Done at last.", pause=0.1), then="Yes.")
    await raised(saved_agent(harness, model, [tick, slow]), harness, 5, limits=Limits(turns=1), on_limit="ask")


@workload
async def more_tokens_in_a_session(harness: Harness) -> None:
    long = Say("so many words that the budget is gone before the end", pause=0.1)
    agent = saved_agent(harness, ScriptedModel(long, Say("and a few more words", pause=0.1), then="Yes."))
    await raised(agent, harness, 1000, limits=Limits(output_tokens=8), on_limit="ask")


@workload
async def refused_in_a_session(harness: Harness) -> None:
    harness.expect_cause("budget")
    model = ScriptedModel([Say("Both: "), Call("tick"), Call("slow")], then="Yes.")
    agent = saved_agent(harness, model, [tick, slow])
    await raised(agent, harness, False, limits=Limits(tool_calls=1), on_limit="ask")


# --- Repeated calls --------------------------------------------------------------------------------------------------


@workload
async def repeated_calls(harness: Harness) -> None:
    harness.expect_cause("budget")
    model = ScriptedModel(*[[Say("Again. "), Call("quick"), Call("slow", {"seconds": 1})]] * 3, then="Yes.")
    await harness.invoke(Agent(model, tools=[quick, slow]), "Go", limits=Limits(repeated_calls=3))


# --- Timeouts --------------------------------------------------------------------------------------------------------


@workload
async def first_word_too_late_twice(harness: Harness) -> None:
    model = ScriptedModel(Stall(), [Pause(50), Say("Too late.")], Say("In time.", pause=0.1), then="Yes.")
    agent = Agent(model, first_token_timeout=20, stream_gap_timeout=5, retry=Retry(attempts=5))
    await harness.invoke(agent, "Go")


@workload
async def gap_in_an_answer(harness: Harness) -> None:
    model = ScriptedModel([Say("It was ", pause=0.1), Pause(50), Say("late.")], then="Yes.")
    try:
        await harness.invoke(Agent(model), "Go", stream_gap_timeout=5)
    except RunError as error:
        assert "nothing came for 5 s" in str(error)  # noqa: PT017
