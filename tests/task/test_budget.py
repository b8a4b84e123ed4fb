"""The budget and the deadline of a task: an approval does not begin them anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quiesce import Agent, Conversation, ConversationState, Limits, RunResult, Session, ToolContext, tool
from quiesce.events import Delta
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Call, ScriptedModel, Used
from quiesce.testing import run_virtual

from .shop import Shop, approval

pytestmark = pytest.mark.promise("P6")


async def approve_all(agent: Agent, most: int, **options: Any) -> tuple[RunResult, int]:
    """Approve what is asked, at most so often; the last result, and the number of answers."""
    result = await agent.invoke_async("go", **options)
    for number in range(most):
        if result.stop_reason != "interrupt":
            return result, number
        result = await agent.answer_async(approval(number), **options)
    return result, most


async def test_a_limit_holds_over_all_approvals() -> None:
    shop = Shop()
    result, _ = await approve_all(shop.agent(20, limits=Limits(tool_calls=3)), 20)
    assert (result.stop_reason, len(shop.log)) == ("limit", 3)
    assert "with those of the earlier runs of the task" in str(result.receipt.cause)


async def test_turns_are_counted_over_all_approvals() -> None:
    shop = Shop()
    result, answers = await approve_all(shop.agent(20, limits=Limits(turns=2)), 20)
    assert (result.stop_reason, answers, len(shop.log)) == ("limit", 2, 2)


async def test_the_task_of_a_conversation_in_memory_is_stored_with_it() -> None:
    agent = Shop().agent(20, limits=Limits(tool_calls=3))
    first = await agent.invoke_async("go")
    stored = msgspec.json.encode(agent.conversation.snapshot())
    restored = Conversation.restore(msgspec.json.decode(stored, type=ConversationState))
    assert restored.task is not None
    assert restored.task == agent.conversation.task == first.receipt.task
    result = await agent.answer_async(approval(0), conversation=restored)
    assert restored.task == result.receipt.task
    assert len(result.receipt.task.run_ids) == 2


async def test_tokens_are_counted_over_all_approvals() -> None:
    @tool(requires_approval=True)
    async def step() -> str:
        return "done"

    turns = [[Call("step", id=f"s{n}"), Used(input=100, output=10)] for n in range(10)]
    agent = Agent(ScriptedModel(*turns, "End."), tools=[step], limits=Limits(tokens=350))
    result = await agent.invoke_async("go")
    answers = 0
    while result.stop_reason == "interrupt":
        result = await agent.answer_async({f"s{answers}:approval": True})
        answers += 1
    assert result.stop_reason == "limit"
    assert answers == 3


async def test_a_new_prompt_has_a_budget_of_its_own() -> None:
    shop = Shop()
    agent = shop.agent(4, limits=Limits(tool_calls=2))
    result, _ = await approve_all(agent, 4)
    assert result.stop_reason == "limit"
    again = await agent.invoke_async("more")
    assert again.stop_reason == "interrupt"
    assert again.receipt.task is not None
    assert again.receipt.task.run_ids == (again.run_id,)


async def test_what_is_left_is_left_after_a_restart(tmp_path: Path) -> None:
    shop = Shop()
    store = tmp_path / "store.db"
    first = shop.agent(20, limits=Limits(tool_calls=2), session=Session("s", store))
    await first.invoke_async("go")
    await first.answer_async(approval(0))
    model = ScriptedModel(*[[Call("order", {"what": f"x{n}"}, id=f"x{n}")] for n in range(9)])
    second = Agent(model, tools=list(first.tools.values()), session=Session("s", store))
    result = await second.answer_async(approval(1))
    assert (result.stop_reason, shop.log) == ("limit", ["+item0", "+item1"])
    task = result.receipt.task
    assert task is not None
    assert (len(task.run_ids), task.used.tool_calls) == (3, 2)


async def test_continuing_has_what_is_left() -> None:
    @tool
    async def look() -> str:
        return "nothing"

    agent = Agent(ScriptedModel(then=[Call("look")]), tools=[look], limits=Limits(turns=3, repeated_calls=None))
    assert (await agent.invoke_async("go")).stop_reason == "limit"
    again = await agent.continue_async()
    assert (again.stop_reason, again.usage.calls) == ("limit", 0)
    raised = await agent.continue_async(limits=Limits(turns=5, repeated_calls=None))
    assert (raised.stop_reason, raised.usage.calls) == ("limit", 2)


async def test_a_child_that_asks_has_one_budget() -> None:
    shop = Shop()
    clerk = shop.agent(9, limits=Limits(tool_calls=2), name="clerk")
    agent = Agent(ScriptedModel([Call("clerk", {"prompt": "Order."}, id="c")], "Well."), tools=[clerk])
    result = await agent.invoke_async("go")
    answers = 0
    while result.stop_reason == "interrupt":
        result = await agent.answer_async({f"c:o{answers}:approval": True})
        answers += 1
    assert (len(shop.log), answers) == (2, 2)


async def test_the_receipt_sums_up() -> None:
    shop = Shop()
    result, _ = await approve_all(shop.agent(3), 3)
    task = result.receipt.task
    assert task is not None
    assert (task.used.turns, task.used.tool_calls, task.usage.calls, len(task.run_ids)) == (4, 3, 4, 4)
    assert "task      4 runs in" in str(result.receipt)
    assert "4 turns, 3 tool calls" in str(result.receipt)


async def test_tools_know_their_task() -> None:
    seen: list[str] = []

    @tool(requires_approval=True)
    async def look(ctx: ToolContext) -> str:
        seen.append(ctx.task)
        return "seen"

    agent = Agent(ScriptedModel([Call("look", id="a")], [Call("look", id="b")], "Done."), tools=[look])
    first = await agent.invoke_async("go")
    await agent.answer_async({"a:approval": True})
    await agent.answer_async({"b:approval": True})
    assert seen == [first.run_id, first.run_id]


@pytest.mark.promise("P1")
def test_the_time_that_a_person_takes_does_not_count() -> None:
    async def main() -> None:
        @tool(requires_approval=True)
        async def work() -> str:
            await asyncio.sleep(4)
            return "done"

        turns = [[Call("work", id=f"w{n}")] for n in range(9)]
        agent = Agent(ScriptedModel(*turns, "End."), tools=[work], timeout=10)
        result = await agent.invoke_async("go")
        answers = 0
        while result.stop_reason == "interrupt":
            await asyncio.sleep(3600)
            result = await agent.answer_async({f"w{answers}:approval": True})
            answers += 1
        assert (result.stop_reason, answers) == ("cancelled", 3)
        assert result.receipt.cause is not None
        assert result.receipt.cause.source == "deadline"
        assert "over all runs of the task" in str(result.receipt.cause)

    run_virtual(main())


@pytest.mark.promise("P6", "P9")
async def test_what_a_sub_agent_begins_is_counted_in_the_store_first(tmp_path: Path) -> None:
    """A crash in its turn, or in its tool, does not give the task another one."""
    store = tmp_path / "store.db"
    seen: list[tuple[int, int]] = []

    async def look() -> None:
        session = Session("s", store)
        await session.load()
        assert session.task is not None
        seen.append((session.task.used.turns, session.task.used.tool_calls))

    class Looking(ScriptedModel):
        @asynccontextmanager
        async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
            await look()
            async with super().stream(request) as deltas:
                yield deltas

    @tool
    async def work() -> str:
        """Work."""
        await look()
        return "done"

    clerk = Agent(Looking([Call("work")], then="Done."), name="clerk", tools=[work])
    agent = Agent(Looking([Call("clerk", {"prompt": "Go."})], then="Done."), tools=[clerk], session=Session("s", store))
    await agent.invoke_async("go")
    assert seen == [(1, 0), (2, 1), (2, 2), (3, 2), (4, 2)]
