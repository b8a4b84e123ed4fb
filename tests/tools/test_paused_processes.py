"""Background processes go on while their task waits for a person, and end with the task."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tool_runs import stray_processes

from quiesce import Agent, RunResult, Session
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.run import settle
from quiesce.run.state import RunState
from quiesce.tools.builtin import coding_tools
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.promise("P5", "P9")
START = [Call("start_process", {"command": "cat"})]
ASK = [Call("write_file", {"path": "a.txt", "content": "a"}, id="w")]
ON = [
    [Call("write_process", {"process": "p1", "text": "still here\n"})],
    [Call("read_process", {"process": "p1", "seconds": 5})],
]
YES = {"w:approval": True}


def tools(root: Path) -> list[Tool]:
    return [
        each.with_(requires_approval=True) if each.name == "write_file" else each
        for each in coding_tools(str(root), approve="none")
    ]


def agent(root: Path, *answers: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel(*answers, then="Done."), tools=tools(root), **options)


async def ask(agent: Agent, **options: Any) -> RunResult:
    result = await agent.invoke_async("Go.", **options)
    assert result.stop_reason == "interrupt"
    assert [each.rpartition(" (")[2] for each in result.receipt.still_running] == ["cat)"]
    assert result.receipt.processes == ("p1 (cat): running",)
    return result


async def until_gone() -> None:
    async with asyncio.timeout(20):
        while stray_processes() or len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_stored", [True, pytest.param(False, marks=pytest.mark.proof)])
def test_they_go_on_over_an_approval(tmp_path: Path, is_stored: bool) -> None:
    """Also when the agent and its session are made anew for each request, as a web application does."""

    async def main() -> RunResult:
        def session() -> dict[str, Any]:
            return {"session": Session("s", tmp_path / "store.db")} if is_stored else {}

        first = agent(tmp_path, START, ASK, *ON, **session())
        await ask(first)
        second = agent(tmp_path, *ON, **session()) if is_stored else first
        return await second.answer_async(YES)

    result = asyncio.run(main())
    texts = [each.text for message in result.messages for each in getattr(message, "results", ())]
    assert texts[-1] == "still here\n[p1 is running]"
    assert result.receipt.still_running == ()
    assert result.receipt.processes == ("p1 (cat): ended by signal 15",)
    assert "  processes p1 (cat): ended by signal 15" in str(result.receipt)
    assert stray_processes() == []


@pytest.mark.parametrize(
    "how", ["prompt", *(pytest.param(each, marks=pytest.mark.proof) for each in ("undo", "cancel_pending"))]
)
def test_they_end_when_the_task_does_not_go_on(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        asking = agent(tmp_path, START, ASK)
        await ask(asking)
        match how:
            case "prompt":
                await asking.invoke_async("Something else.")
            case "undo":
                await asking.undo_async()
            case _:
                asking.conversation.cancel_pending()
        await until_gone()

    asyncio.run(main())


def test_a_stop_at_the_question_ends_them(tmp_path: Path) -> None:
    async def main() -> None:
        run = agent(tmp_path, START, ASK).start("Go.")
        async for event in run:
            if event.type == "interrupt_raised":
                run.cancel("no")
        receipt = await run.stopped()
        assert receipt.still_running == ()
        assert stray_processes() == []

    asyncio.run(main())


@pytest.mark.leaves("tasks")  # the one that ends the processes when `asyncio.run` cancels it
@pytest.mark.parametrize("is_closed_at_once", [True, pytest.param(False, marks=pytest.mark.proof)])
def test_they_end_with_the_event_loop(tmp_path: Path, is_closed_at_once: bool) -> None:
    asking = agent(tmp_path, START, ASK, *ON)
    if is_closed_at_once:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(ask(asking))
        loop.close()
    else:
        asyncio.run(ask(asking))
    result = asyncio.run(asking.answer_async(YES))
    texts = [each.text for message in result.messages for each in getattr(message, "results", ())]
    assert texts[-1].startswith("There is no process 'p1'.")
    assert stray_processes() == []


def test_a_stop_in_the_last_moment_before_the_question_ends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When everything else was stopped, the run was still about to ask."""
    original = settle._return_prompts

    async def stop_and_return(state: RunState) -> None:
        state.token.cancel("just in time")
        await original(state)

    monkeypatch.setattr(settle, "_return_prompts", stop_and_return)

    async def main() -> None:
        result = await agent(tmp_path, START, ASK).invoke_async("Go.")
        assert (result.stop_reason, result.interrupts) == ("cancelled", ())
        assert result.receipt.still_running == ()
        await until_gone()

    asyncio.run(main())
