"""What people met elsewhere when they stopped one agent of many."""

from __future__ import annotations

import asyncio

import pytest

from quiesce import Agent, Run, ToolContext, tool
from quiesce.events import TextDelta
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

from .kit import asks, until


@pytest.mark.promise("P4", "P7")
@pytest.mark.case("claude-code#76807", "claude-code#26117")
def test_no_child_is_stopped_silently_and_none_survives_unseen():
    async def main():
        children = [Agent(ScriptedModel([Say("Half of "), Stall()]), name=name) for name in ("left", "right")]
        parent = Agent(ScriptedModel(asks("left", "right")), tools=[child.as_tool() for child in children])
        run = parent.start("go")
        while [child.phase for child in run.children] != ["streaming", "streaming"]:
            await until(run, TextDelta, depth=1)
        run.cancel("Esc")
        result = await run
        assert [child.agent for child in result.children] == ["left", "right"]
        for child in result.children:
            assert child.stop_reason == "cancelled"
            assert child.receipt.cause.source == "parent"
            assert child.receipt.cause.origin.reason == "Esc"
            assert child.receipt.still_running == ()
        assert result.receipt.still_running == ()
        assert {call.name for call in result.receipt.calls} == {"left", "right"}
        assert all(agent.active_runs == () for agent in (parent, *children))

    asyncio.run(main())


@pytest.mark.promise("P5", "P8")
@pytest.mark.case("claude-code#71294", "claude-code#78151")
def test_an_agent_that_was_sent_to_the_background_goes_on_and_is_seen():
    async def main():
        indexer = Agent(ScriptedModel([Say("Indexing. "), Stall()]), name="indexer")
        sent: list[Run] = []

        @tool
        async def send_indexer(ctx: ToolContext) -> str:
            """Start the indexer on its own: it belongs to the program, not to this run."""
            sent.append(indexer.start("index everything"))
            return f"The indexer runs as {sent[0].id}."

        parent = Agent(ScriptedModel([Call("send_indexer")], [Say("Meanwhile, "), Stall()]), tools=[send_indexer])
        run = parent.start("go")
        await until(run, TextDelta)
        run.cancel("Esc")
        receipt = await run.stopped()
        (background,) = sent
        assert receipt.still_running == ()  # it is not the run's
        assert not background.done
        assert indexer.active_runs == (background,)
        background.cancel("it has indexed enough")
        assert (await background.stopped()).cause.source == "user"
        assert indexer.active_runs == ()

    asyncio.run(main())
