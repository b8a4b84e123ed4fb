"""`coding_tools` with a folder for each owner: one agent, two users, and no path between their folders."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tool_runs import stray_processes

from quiesce import Agent, RunContext, RunResult
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.receipt import Undone
from quiesce.tools.builtin import coding_tools

pytestmark = pytest.mark.promise("P4", "P8")

TURNS = (
    [Call("edit_file", {"path": "a.txt", "edits": [{"old": "old", "new": "new"}]}, "e")],
    [Call("shell", {"command": "pwd; echo made > b.txt"}, "s"), Call("start_process", {"command": "pwd; cat"}, "p")],
    [Call("read_process", {"process": "p1", "seconds": 5}), Call("search_files", {"pattern": "new|made"})],
    [Call("list_files", {}), Call("read_file", {"path": "../ann/a.txt"})],
)


def texts(result: RunResult) -> dict[str, str]:
    return {each.name: each.text for message in result.messages for each in getattr(message, "results", ())}


def test_two_users_of_one_agent(tmp_path: Path) -> None:
    for user in ("ann", "bob"):
        (tmp_path / user).mkdir()
        (tmp_path / user / "a.txt").write_text(f"old {user}\n")

    def folder(ctx: RunContext[Any]) -> str:
        return str(tmp_path / ctx.deps)

    async def work(user: str) -> RunResult:
        tools = coding_tools(folder, approve="none", snapshot="copy")
        edit = next(each for each in tools if each.name == "edit_file").with_(requires_approval=True)
        model = ScriptedModel(*TURNS, then="Done.")
        agent = Agent(model, tools=[edit, *(each for each in tools if each.name != "edit_file")])
        asked = await agent.invoke_async("Go.", deps=user)
        assert asked.interrupts[0].preview == f"--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-old {user}\n+new {user}\n"
        return await agent.answer_async({"e:approval": True}, deps=user)

    async def main() -> None:
        ann, bob = await asyncio.gather(work("ann"), work("bob"))
        for user, result in (("ann", ann), ("bob", bob)):
            told = texts(result)
            place = os.path.realpath(tmp_path / user)
            assert told["shell"] == place
            assert told["read_process"].startswith(place)
            assert told["search_files"] == f"a.txt:1:new {user}\nb.txt:1:made"
            assert told["list_files"].split() == ["a.txt", "b.txt"]
            assert "outside of the folder" in told["read_file"]
        assert [each.outcome for each in await bob.undo()] == [Undone.UNDONE] * 2
        assert (tmp_path / "bob" / "a.txt").read_text() == "old bob\n"
        assert not (tmp_path / "bob" / "b.txt").exists()
        assert (tmp_path / "ann" / "a.txt").read_text() == "new ann\n"

    asyncio.run(main())
    assert stray_processes() == []


def test_outside_of_a_run_there_is_no_folder(tmp_path: Path) -> None:
    tools = {each.name: each for each in coding_tools(lambda ctx: str(tmp_path))}
    preview = tools["write_file"].preview_text({"path": "a", "content": "b"})
    assert preview == "There is no preview: The folder depends on the run, and this is not part of a run."


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bwrap")
def test_commands_in_a_sandbox(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    root = tmp_path / "root"
    root.mkdir()
    command = f"echo in > in.txt; echo out > {outside}"  # a sandbox has a /tmp of its own
    model = ScriptedModel(
        [Call("shell", {"command": command}), Call("start_process", {"command": f"{command}; echo over; cat"})],
        [Call("read_process", {"process": "p1", "seconds": 5})],
        then="Done.",
    )
    tools = coding_tools(str(root), approve="none", sandbox=True)
    result = asyncio.run(Agent(model, tools=tools).invoke_async("Go."))
    assert (root / "in.txt").exists()
    assert not outside.exists()
    assert texts(result)["read_process"] == "over\n[p1 is running]"
    assert stray_processes() == []


def test_a_sandbox_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    calls = [Call("shell", {"command": "echo"}), Call("start_process", {"command": "echo"})]
    tools = coding_tools(str(tmp_path), approve="none", sandbox=True)
    result = asyncio.run(Agent(ScriptedModel(calls, then="Done."), tools=tools).invoke_async("Go."))
    assert ["needs bwrap" in text for text in texts(result).values()] == [True, True]
