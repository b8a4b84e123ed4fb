"""What belongs to one run: deps, state, the conversation that a call names, and options of one call."""

from __future__ import annotations

import asyncio
import contextvars
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quiesce import (
    Agent,
    Conversation,
    Limits,
    OutputMissing,
    RunContext,
    Session,
    SharedConversationWarning,
    ToolContext,
    tool,
)
from quiesce.errors import ConfigurationError, ConversationBusy, InvalidTool, RunError, StateNotSaved
from quiesce.hooks import AfterRun, BeforeToolCall
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.run.handle import wait_for

pytestmark = pytest.mark.promise("P8")


@dataclass
class Shop:
    user: str


@tool
async def whose(ctx: ToolContext[Shop]) -> str:
    """Who is asking."""
    ctx.state["seen"] = [*ctx.state.get("seen", []), ctx.deps.user]
    return ctx.deps.user


def shop_agent(**options: Any) -> Agent[Shop, str]:
    model = options.pop("model", None) or ScriptedModel(*[[Call("whose")], [Say("done")]] * 50)
    return Agent(model, deps_type=Shop, tools=[whose], **options)


async def test_each_run_has_its_own_deps_at_the_same_time() -> None:
    agent = shop_agent()
    results = await asyncio.gather(
        *(agent.invoke_async("hi", deps=Shop(f"user {n}"), conversation=None) for n in range(20))
    )
    for number, result in enumerate(results):
        assert set(re.findall(r"user \d+", str(result.messages))) <= {f"user {number}"}
    assert len(re.findall(r"user \d+", str([result.messages for result in results]))) >= 20


async def test_hooks_and_instructions_see_the_deps() -> None:
    seen: list[object] = []

    def watch(event: AfterRun | BeforeToolCall) -> None:
        seen.append((type(event).__name__, event.deps, event.context.agent, event.state))

    async def later(ctx: RunContext[Shop]) -> str:
        await asyncio.sleep(0)
        return f"You serve {ctx.deps.user}."

    model = ScriptedModel([Call("whose")], [Say("done")])
    agent = shop_agent(model=model, hooks=[watch], instructions=["Be short.", later, lambda ctx: None])
    await agent.invoke_async("hi", deps=Shop("ada"))
    assert [request.instructions for request in model.requests] == ["Be short.\n\nYou serve ada."] * 2
    assert [name for name, *_ in seen] == ["BeforeToolCall", "AfterRun"]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
    assert all(deps == Shop("ada") for _, deps, *_ in seen)  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]


async def test_instructions_that_fail_fail_the_run_in_words() -> None:
    def broken(ctx: RunContext[None]) -> str:
        raise ValueError("no database")

    agent = Agent(ScriptedModel([Say("never")]), instructions=broken)
    with pytest.raises(RunError, match="broken raised ValueError: no database"):
        await agent.invoke_async("hi")
    assert (await Agent(ScriptedModel([Say("next")])).invoke_async("again")).output == "next"


async def test_a_run_without_fitting_deps_does_not_start() -> None:
    agent = shop_agent()
    with pytest.raises(ConfigurationError, match="needs deps of type Shop, and got NoneType"):
        agent.start("hi")
    with pytest.raises(ConfigurationError, match="got str"):
        agent.start("hi", deps="ada")  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert agent.messages == ()


def test_a_tool_that_needs_other_deps_is_refused() -> None:
    with pytest.raises(InvalidTool, match="'whose' needs deps of type Shop, and the agent has no deps_type"):
        Agent(ScriptedModel(), tools=[whose])
    with pytest.raises(InvalidTool, match="the agent has str"):
        Agent(ScriptedModel(), tools=[whose], deps_type=str)


async def test_a_sub_agent_has_the_deps_of_its_parent() -> None:
    child = shop_agent(name="child")
    parent = Agent(
        ScriptedModel([Call("child", {"prompt": "who?"})], [Say("ok")]), deps_type=Shop, tools=[child.as_tool()]
    )
    result = await parent.invoke_async("go", deps=Shop("bob"))
    assert "bob" in str(result.children[0].messages)


# --- State ----------------------------------------------------------------------------------------------------------


async def test_state_belongs_to_the_conversation_and_begins_as_a_copy() -> None:
    agent = shop_agent(state={"seen": ["nobody"]})
    one, two = Conversation(), Conversation()
    for conversation, user in ((one, "ada"), (two, "bob"), (one, "eve")):
        await agent.invoke_async("hi", deps=Shop(user), conversation=conversation)
    assert one.state == {"seen": ["nobody", "ada", "eve"]}
    assert two.state == {"seen": ["nobody", "bob"]}
    assert agent.state == {"seen": ["nobody"]}


@pytest.mark.promise("P2")
async def test_state_is_saved_with_a_session(tmp_path: Path) -> None:
    agent = shop_agent(store=tmp_path / "s.db")
    await agent.invoke_async("hi", deps=Shop("ada"), session="user-1")
    again = Session("user-1", tmp_path / "s.db")
    await again.load()
    assert again.state == {"seen": ["ada"]}
    await agent.invoke_async("hi", deps=Shop("eve"), conversation=again)
    third = Session("user-1", tmp_path / "s.db")
    await third.load()
    assert third.state == {"seen": ["ada", "eve"]}


async def test_state_without_a_json_form_fails_the_run_and_names_the_key(tmp_path: Path) -> None:
    @tool
    async def keep(ctx: ToolContext) -> str:
        """Keep something that cannot be saved."""
        ctx.state["good"] = 1
        ctx.state["db"] = {"connection": object()}
        return "kept"

    agent = Agent(ScriptedModel([Call("keep")], [Say("no")]), tools=[keep], session="s", store=tmp_path / "s.db")
    with pytest.raises(StateNotSaved, match=r"state\['db'\]\['connection'\] has no JSON form"):
        await agent.invoke_async("hi")
    again = Session("s", tmp_path / "s.db")
    assert "kept" in str(await again.load())


async def test_memory_of_a_sub_agent_is_apart_for_each_parent_conversation(tmp_path: Path) -> None:
    child_model = ScriptedModel([Say("one")], [Say("two")], [Say("three")])
    child = Agent(child_model, name="child")
    script = [[Call("child", {"prompt": f"prompt {n}"})] if n % 2 == 0 else [Say("ok")] for n in range(6)]
    parent = Agent(ScriptedModel(*script), tools=[child.as_tool(memory=True)], store=tmp_path / "s.db")
    await parent.invoke_async("a", session="ada")
    await parent.invoke_async("b", session="bob")
    await parent.invoke_async("c", session=Session("ada", tmp_path / "s.db"))
    sent = [str(request.messages) for request in child_model.requests]
    assert "prompt 0" not in sent[1]
    assert "prompt 0" in sent[2]
    assert "prompt 2" not in sent[2]


# --- Conversations --------------------------------------------------------------------------------------------------


async def test_one_agent_serves_many_sessions(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(*[[Say("hello")]] * 4), store=tmp_path / "s.db")
    await asyncio.gather(*(agent.invoke_async(f"I am {n}", session=f"user-{n}") for n in range(4)))
    for number in range(4):
        session = Session(f"user-{number}", tmp_path / "s.db")
        messages = str(await session.load())
        assert f"I am {number}" in messages
        assert messages.count("I am") == 1
    assert agent.messages == ()


async def test_two_prompts_to_one_session_name_share_the_session(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel([Stall()]), store=tmp_path / "s.db")
    run = agent.start("hi", session="user")
    with pytest.raises(ConversationBusy):
        agent.start("again", session="user")
    run.cancel()
    await run.stopped()


async def test_a_question_without_a_conversation_is_not_remembered() -> None:
    model = ScriptedModel([Say("one")], [Say("two")])
    agent = Agent(model)
    await agent.invoke_async("first", conversation=None)
    await agent.invoke_async("second", conversation=None)
    assert "first" not in str(model.requests[1].messages)
    assert agent.messages == ()


async def test_a_late_stop_does_not_reach_the_next_run_of_another_user() -> None:
    agent = Agent(ScriptedModel(*[[Say("fine")]] * 2))
    agent.cancel("too late")
    other = await agent.invoke_async("hi", conversation=Conversation())
    assert other.stop_reason == "end_turn"
    own = await agent.invoke_async("hi")
    assert own.stop_reason == "cancelled"


async def test_a_web_handler_that_shares_the_own_conversation_is_warned() -> None:
    agent = Agent(ScriptedModel(*[[Say("fine")]] * 3))

    async def handler() -> None:
        await agent.invoke_async("hi")

    await asyncio.create_task(handler())
    with pytest.warns(SharedConversationWarning, match='session="user-42"'):
        await asyncio.create_task(handler())
    await asyncio.create_task(handler())  # said once


def test_threads_that_share_the_own_conversation_are_warned() -> None:
    agent = Agent(ScriptedModel(*[[Say("fine")]] * 3))

    def handler() -> None:
        agent("hi")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            thread = threading.Thread(target=handler)
            thread.start()
            thread.join()
    assert [each.category for each in caught] == [SharedConversationWarning]


async def test_a_script_is_not_warned() -> None:
    """The configuration of pytest ignores this warning, so it is recorded here."""
    model = ScriptedModel(*[[Say("fine")]] * 3)
    agent = Agent(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await agent.invoke_async("one")
        await asyncio.create_task(agent.invoke_async("two"))
        await agent.invoke_async("three")
    assert [each.category for each in caught] == []
    assert [request.messages[-1].text for request in model.requests] == ["one", "two", "three"]


async def test_a_task_that_uses_many_agents_does_not_grow() -> None:
    def size() -> int:
        return sum(sys.getsizeof(value) for value in contextvars.copy_context().values())

    async def use_another() -> None:
        await Agent(ScriptedModel("fine")).invoke_async("hi")

    await use_another()
    before = size()
    for _ in range(100):
        await use_another()
    assert size() == before


async def test_tasks_that_start_each_other_do_not_grow() -> None:
    async def use_another_and_go_on(left: int) -> int:
        await Agent(ScriptedModel("fine")).invoke_async("hi")
        if left:
            return await asyncio.create_task(use_another_and_go_on(left - 1))
        return sum(sys.getsizeof(value) for value in contextvars.copy_context().values())

    assert await use_another_and_go_on(100) == await use_another_and_go_on(50)


# --- Options of one call --------------------------------------------------------------------------------------------


async def test_a_call_can_replace_model_instructions_tools_and_settings() -> None:
    @tool
    def other() -> str:
        """Another tool."""
        return "other"

    mine, agent = ScriptedModel([Say("mine")]), Agent(ScriptedModel([Say("agent's")]), instructions="A.")
    result = await agent.invoke_async(
        "hi", model=mine, instructions="B.", tools=[other], settings={"temperature": 0}, limits=Limits(turns=3)
    )
    (request,) = mine.requests
    assert (result.output, request.instructions, request.settings) == ("mine", "B.", {"temperature": 0})
    assert [spec.name for spec in request.tools] == ["other"]
    assert (await agent.invoke_async("hi")).output == "agent's"


@pytest.fixture
def overridden() -> Iterator[tuple[Agent[Shop, str], ScriptedModel]]:
    agent, fake = shop_agent(), ScriptedModel([Call("whose")], [Say("fake")])
    with agent.override(model=fake, deps=Shop("test")):
        yield agent, fake


def test_model_and_deps_can_be_replaced_for_a_block(overridden: tuple[Agent[Shop, str], ScriptedModel]) -> None:
    agent, fake = overridden
    with agent.override(instructions="inner"):
        result = agent("hi", deps=Shop("real"), conversation=None)
    assert result.output == "fake"
    assert "test" in str(result.messages)
    assert fake.requests[0].instructions == "inner"


async def test_output_of_a_run_that_did_not_finish_says_why() -> None:
    agent = Agent(ScriptedModel([Say("half"), Stall()]), output_type=int)
    run = agent.start("count")
    await run.events().__anext__()
    run.cancel()
    result = await wait_for(run)
    assert not result.finished
    with pytest.raises(OutputMissing, match="stop_reason='cancelled'"):
        _ = result.output
    assert "cancelled" in repr(result)


async def test_output_is_typed_and_may_be_none() -> None:
    agent = Agent(ScriptedModel([Say("null")], [Say("3")]), output_type=int | None)  # pyright: ignore[reportArgumentType]
    assert (await agent.invoke_async("?")).output is None
    assert (await agent.invoke_async("?", output_type=int)).output == 3


# --- Tools in a process of their own ----------------------------------------------------------------------------------


@tool(on_stop="kill")
def whose_process(ctx: ToolContext[Shop]) -> str:
    """Who is asking, from another process."""
    return f"{ctx.deps.user} of {ctx.agent} {ctx.owner or '-'}"


@dataclass
class LockedShop(Shop):
    lock: Any = None


async def test_deps_travel_to_a_tool_in_a_process() -> None:
    agent = Agent(ScriptedModel([Call("whose_process")], [Say("ok")]), deps_type=Shop, tools=[whose_process], name="a")
    result = await agent.invoke_async("hi", deps=Shop("ada"), owner="key 1")
    assert "ada of a key 1" in str(result.messages)


async def test_deps_that_cannot_travel_say_so_where_they_are_used() -> None:
    agent = Agent(ScriptedModel([Call("whose_process")], [Say("ok")]), deps_type=Shop, tools=[whose_process])
    result = await agent.invoke_async("hi", deps=LockedShop("ada", threading.Lock()))
    assert "ctx.deps is not available in a tool with on_stop='kill': LockedShop cannot be sent" in str(result.messages)
