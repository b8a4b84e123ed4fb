"""`Tool.with_` changes a ready tool and keeps the rest of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quiesce import Agent, Tool, tool
from quiesce.errors import ConfigurationError, InvalidTool
from quiesce.messages import Outcome
from quiesce.receipt import Undone
from quiesce.testing import Call, ScriptedModel
from quiesce.tools.builtin import make_files, make_python, make_shell, shell

pytestmark = pytest.mark.feature


def test_the_undo_of_a_ready_tool_stays(tmp_path: Path) -> None:
    _, write_file = make_files(str(tmp_path))
    careful = write_file.with_(name="save", requires_approval=True, grace=3)
    assert (careful.name, careful.requires_approval, careful.policy.grace) == ("save", True, 3)
    assert (write_file.name, write_file.requires_approval, write_file.policy.grace) == ("write_file", False, 10)
    assert careful.policy.on_stop == "finish"
    assert careful.spec.name == "save"
    assert careful.spec.schema == write_file.spec.schema

    async def main() -> None:
        agent = Agent(ScriptedModel([Call("save", {"path": "a", "content": "x"})], "Saved."), tools=[careful])
        asked = await agent.invoke_async("Save")
        assert asked.stop_reason == "interrupt"
        result = await agent.answer_async({asked.interrupts[0].id: True})
        assert (tmp_path / "a").read_text() == "x"
        (receipt,) = await result.undo()
        assert receipt.outcome is Undone.UNDONE
        assert not (tmp_path / "a").exists()

    asyncio.run(main())


def test_descriptions_are_read_again() -> None:
    @tool
    def bake(loaves: int) -> str:
        """Bake.

        Args:
            loaves: how many
        """
        return str(loaves)

    assert bake.spec.description == "Bake."
    other = bake.with_(description="Bake bread.")
    assert other.spec.description == "Bake bread."
    assert other.spec.schema["properties"]["loaves"]["description"] == "how many"
    assert other.with_(name="oven").spec.description == "Bake bread."
    assert other(3) == "3"


def test_tools_of_agents_keep_their_target() -> None:
    helper = Agent(ScriptedModel("hi"), name="helper")
    asking = helper.as_tool().with_(requires_approval=True)
    assert asking.final_grace == helper.as_tool().final_grace
    assert asking.spec.schema["required"] == ["prompt"]


def test_what_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="softly"):
        shell.with_(on_stop="softly")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidTool, match="no option 'graze'"):
        shell.with_(graze=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidTool, match="no option 'graze'"):
        Tool(lambda: None, name="f", graze=1)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("make", [make_shell, make_python])
def test_programs_take_the_options_of_a_tool(make) -> None:
    made = make(requires_approval=True, name="run", sequential=True)
    assert (made.requires_approval, made.name, made.sequential) == (True, "run", True)
    with pytest.raises(ConfigurationError, match="no option 'tmeout'"):
        make(tmeout=3)

    async def main() -> None:
        argument = next(iter(made.spec.schema["properties"]))
        agent = Agent(ScriptedModel([Call("run", {argument: "import sys"})], "Done."), tools=[made])
        asked = await agent.invoke_async("Go")
        assert asked.stop_reason == "interrupt"
        result = await agent.answer_async({asked.interrupts[0].id: True})
        assert [call.outcome for call in result.receipt.calls] == [Outcome.COMPLETED]

    asyncio.run(main())
