"""Results that are too long for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from quiesce import Agent, Session, tool
from quiesce.errors import ConfigurationError, InvalidTool
from quiesce.events import MessageAdded, ToolEnded, ToolProgress
from quiesce.messages import Image, Outcome, Text, ToolMessage
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.tools.builtin import coding_tools, make_shell

pytestmark = pytest.mark.promise("P3", "P4")

BIG = "".join(f"line {number}\n" for number in range(200_000))


@tool
async def dump() -> str:
    """Dump."""
    return BIG


def killable_dump() -> str:
    """Dump."""
    return "".join(f"line {number}\n" for number in range(200_000))


def result_of(messages: Any, index: int = 2) -> Any:
    return messages[index].results[0]


async def test_the_middle_of_a_long_result_is_cut_out_and_can_be_read() -> None:
    model = ScriptedModel(
        [Call("dump", id="c1")], [Call("read_result", {"handle": "c1", "offset": 1_000_000, "length": 30})], "Done."
    )
    agent = Agent(model, tools=[dump])
    run = agent.start("Go.")
    events = [event async for event in run]
    result = await run
    given = result_of(result.messages)
    assert len(given.text) <= 100_000
    assert given.full_length == len(BIG)
    assert given.text.startswith("line 0\n")
    assert given.text.endswith("line 199999\n")
    assert 'read_result(handle="c1", offset=49850)' in given.text
    assert f"of {len(BIG):,} characters left out" in given.text
    assert result_of(result.messages, 4).text.startswith(BIG[1_000_000:1_000_030])
    assert [call.full_length for call in result.receipt.calls] == [len(BIG), None]
    sizes = [len(event.result.text) for event in events if isinstance(event, ToolEnded)]
    assert sizes[0] == len(given.text)
    added = [event.message for event in events if isinstance(event, MessageAdded)]
    assert next(len(each.results[0].text) for each in added if isinstance(each, ToolMessage)) == len(given.text)
    assert [tuple(spec.name for spec in request.tools) for request in model.requests] == [
        ("dump",),
        ("dump", "read_result"),
        ("dump", "read_result"),
    ]


@pytest.mark.promise("P9")
def test_what_was_cut_out_can_be_read_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    Agent(ScriptedModel([Call("dump", id="c1")], "Done."), tools=[dump], session=Session("s", store=store))("Go.")
    store.close().result()
    assert path.stat().st_size < 4_500_000  # the text of 2.3 MB once, not six times
    store = SQLiteStore(path)
    model = ScriptedModel([Call("read_result", {"handle": "c1", "offset": 70})], "Done.")
    result = Agent(model, session=Session("s", store=store))("And?")
    assert result.messages[-2].results[0].text.startswith(BIG[70:20_070])
    store.close().result()


def test_a_tool_in_a_process_and_a_sub_agent_are_cut_too() -> None:
    killable = tool(on_stop="kill", name="dump")(killable_dump)
    result = Agent(ScriptedModel([Call("dump")], "Done."), tools=[killable])("Go.")
    assert result_of(result.messages).full_length == len(BIG)
    helper = Agent(ScriptedModel(BIG), name="helper")
    above = Agent(ScriptedModel([Call("helper", {"prompt": "x"})], "Done."), tools=[helper], max_result=2000)
    given = result_of(above("Go.").messages)
    assert len(given.text) <= 2000
    assert given.full_length == len(BIG)


@pytest.mark.parametrize(
    ("agent_most", "tool_most", "cut"), [(None, "agent", False), (5000, None, False), (None, 1000, True)]
)
def test_the_limit_is_the_tools_or_the_agents(agent_most: Any, tool_most: Any, cut: bool) -> None:
    @tool(max_result=tool_most)
    async def dump() -> str:
        """Dump."""
        return BIG

    result = Agent(ScriptedModel([Call("dump")], "Done."), tools=[dump], max_result=agent_most)("Go.")
    assert (result_of(result.messages).full_length == len(BIG)) == cut
    assert (result_of(result.messages).text == BIG) != cut


def test_pictures_stay_beside_text_that_is_cut() -> None:
    @tool
    async def look() -> list[Any]:
        """Look."""
        return [Text("a" * 80_000), Image(data=b"png"), Text("b" * 80_000)]

    given = result_of(Agent(ScriptedModel([Call("look")], "Done."), tools=[look])("Go.").messages)
    assert [type(part) for part in given.content] == [Text, Image]
    assert given.text.startswith("aaa")
    assert given.text.endswith("bbb")


def test_old_long_results_make_room_and_their_handles_say_so() -> None:
    huge = "x" * 9_000_000

    @tool
    async def dump() -> str:
        """Dump."""
        return huge

    calls = [[Call("dump", id=f"c{number}")] for number in range(3)]
    reads = [[Call("read_result", {"handle": handle})] for handle in ("c0", "c2", "c9")]
    result = Agent(ScriptedModel(*calls, *reads, "Done."), tools=[dump])("Go.")
    texts = [message.results[0].text for message in result.messages if isinstance(message, ToolMessage)][3:]
    assert "no longer kept" in texts[0]
    assert texts[1].startswith("xxx")
    assert "no long result" in texts[2]


@pytest.mark.promise("P4")
def test_a_result_that_failed_is_cut_and_still_failed() -> None:
    @tool
    async def fail() -> str:
        """Fail."""
        raise ValueError("x" * 200_000)

    given = result_of(Agent(ScriptedModel([Call("fail")], "Done."), tools=[fail])("Go.").messages)
    assert (given.is_error, given.outcome, given.full_length) == (True, Outcome.COMPLETED, 200_012)


@pytest.mark.promise("P2")
@pytest.mark.parametrize("wrong", [0, -1, True, "much", 2.5, 999])
def test_a_limit_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        Agent(ScriptedModel("x"), max_result=wrong)
    with pytest.raises(InvalidTool):
        tool(max_result=wrong)(killable_dump)


@pytest.mark.parametrize("is_undoable", [True, False])
async def test_the_middle_of_what_a_command_printed_can_be_read(tmp_path: Path, is_undoable: bool) -> None:
    """The model gets 30,000 characters and a handle. They were cut by the shell itself, and the middle was lost."""
    model = ScriptedModel(
        [Call("shell", {"command": "seq 1 280000"}, id="c1")],
        [Call("read_result", {"handle": "c1", "offset": 900_000, "length": 14})],
        "Seen.",
    )
    snapshot: Literal["copy"] | None = "copy" if is_undoable else None
    agent = Agent(model, tools=coding_tools(str(tmp_path), approve="none", snapshot=snapshot))
    run = agent.start("Count.")
    told = sum([len(event.progress["stdout"]) async for event in run if isinstance(event, ToolProgress)])
    results = [each for message in (await run).messages for each in getattr(message, "results", ())]
    whole = "\n".join(map(str, range(1, 280_001)))
    assert results[0].full_length == len(whole)
    assert len(results[0].text) <= 30_000
    assert results[0].text.startswith("1\n2\n")
    assert results[0].text.endswith("\n280000")
    assert results[1].text.startswith(whole[900_000:900_014])
    assert told < 300_000


async def test_a_limit_of_the_output_is_the_only_one() -> None:
    shell = make_shell(max_output=40_000)
    agent = Agent(ScriptedModel([Call("shell", {"command": "seq 1 20000"})], then="Seen."), tools=[shell])
    result = (await agent.invoke_async("Count.")).messages[2].results[0]  # type: ignore[union-attr]
    assert result.full_length is None
    assert result.text.count("left out") == 1
