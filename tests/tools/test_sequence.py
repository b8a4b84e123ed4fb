"""The calls of one turn that touch the same thing run in their order; the others run in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent
from quiesce.messages import Outcome
from quiesce.receipt import Receipt
from quiesce.testing import Call, ScriptedModel, VirtualLoop
from quiesce.tools.builtin import make_files
from quiesce.tools.tool import Sequential, Tool

pytestmark = pytest.mark.promise("P3")


def in_virtual_time(main: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def recorded(sequential: Sequential, log: list[str], **options: Any) -> Tool:
    """A tool that takes as many seconds as it is told, and notes its begin and its end."""

    async def work(place: str, seconds: float = 1.0) -> str:
        log.append(f"+{place}")
        await asyncio.sleep(seconds)
        log.append(f"-{place}")
        return place

    return Tool(work, sequential=sequential, **options)


def work(*calls: tuple[str, float], name: str = "work") -> list[Call]:
    return [Call(name, {"place": place, "seconds": seconds}) for place, seconds in calls]


def test_the_last_of_many_writes_wins(tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to("b.txt")
    _, write_file = make_files(str(tmp_path))
    spellings = ("a.txt", "./a.txt", "b.txt", "alias", str(tmp_path / "b.txt"))
    calls = [Call("write_file", {"path": spellings[n % 5], "content": str(n)}) for n in range(150)]
    Agent(ScriptedModel(calls, "Written."), tools=[write_file])("Write")
    assert (tmp_path / "a.txt").read_text() == "146"
    assert (tmp_path / "b.txt").read_text() == "149"


def test_equal_keys_are_in_order_and_others_in_parallel() -> None:
    log: list[str] = []
    tool = recorded(lambda arguments: arguments["place"][0], log)

    async def main() -> None:
        calls = work(("a1", 5), ("b1", 1), ("a2", 1), ("b2", 1))
        await Agent(ScriptedModel(calls, "Done."), tools=[tool]).invoke_async("Go")

    in_virtual_time(main)
    assert log == ["+a1", "+b1", "-b1", "+b2", "-b2", "-a1", "+a2", "-a2"]


def test_true_is_in_order_with_every_key_and_none_with_no_key() -> None:
    log: list[str] = []
    keys = {"a": "a", "b": "b", "free": None}
    keyed = recorded(lambda arguments: keys[arguments["place"]], log)
    alone = recorded(True, log, name="alone")

    async def main() -> None:
        calls = [*work(("a", 2), ("b", 1)), *work(("all", 1), name="alone"), *work(("a", 1), ("b", 1), ("free", 9))]
        await Agent(ScriptedModel(calls, "Done."), tools=[keyed, alone]).invoke_async("Go")

    in_virtual_time(main)
    assert log == ["+a", "+b", "+free", "-b", "-a", "+all", "-all", "+a", "+b", "-a", "-b", "-free"]


def test_a_key_that_cannot_be_made_means_in_order() -> None:
    log: list[str] = []
    tool = recorded(lambda arguments: arguments["none"], log)

    async def main() -> None:
        await Agent(ScriptedModel(work(("a", 2), ("b", 1)), "Done."), tools=[tool]).invoke_async("Go")

    in_virtual_time(main)
    assert log == ["+a", "-a", "+b", "-b"]


@pytest.mark.promise("P4")
def test_cancelling_a_call_that_waits_lets_the_next_begin() -> None:
    log: list[str] = []
    keyed = recorded(lambda arguments: arguments["place"], log)
    alone = recorded(True, log, name="alone")

    async def main() -> Receipt:
        calls = [*work(("a", 5)), *work(("all", 1), name="alone"), *work(("b", 1))]
        run = Agent(ScriptedModel(calls, "Done."), tools=[keyed, alone]).start("Go")
        await asyncio.sleep(1)
        assert run.cancel_tool("call_2")
        return (await run).receipt

    receipt = in_virtual_time(main)
    assert log == ["+a", "+b", "-b", "-a"]
    assert [line.outcome for line in receipt.calls] == [Outcome.COMPLETED, Outcome.NEVER_STARTED, Outcome.COMPLETED]


def stopped_at(step: int, calls: Iterable[Call], log: list[str]) -> Receipt | None:
    """The receipt of a run that was stopped before this step; None if it was over by then."""
    loop = VirtualLoop()
    tools = [recorded(lambda arguments: arguments["place"], log, grace=3), recorded(True, log, name="alone", grace=3)]

    async def main() -> Receipt | None:
        run = Agent(ScriptedModel(list(calls), "Done."), tools=tools).start("Go")
        first = loop.steps

        def before_step() -> None:
            if loop.steps - first == step:
                run.cancel("here")

        loop.before_step = before_step
        result = await run
        loop.before_step = None
        return result.receipt if result.stop_reason == "cancelled" else None

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


@pytest.mark.promise("P4")
def test_calls_that_wait_never_start_after_a_stop_at_any_point() -> None:
    calls = [*work(("a", 2), ("a", 1), ("b", 1)), *work(("all", 1), name="alone"), *work(("b", 1))]
    places = ["a", "a", "b", "all", "b"]
    points = 0
    while True:
        log: list[str] = []
        receipt = stopped_at(points + 1, calls, log)
        if receipt is None:
            break
        points += 1
        begun = [place for place, line in zip(places, receipt.calls, strict=False) if line.outcome != "never_started"]
        assert sorted(begun) == sorted(entry[1:] for entry in log if entry[0] == "+")
        ended = [place for place, line in zip(places, receipt.calls, strict=False) if line.outcome == "completed"]
        assert sorted(ended) == sorted(entry[1:] for entry in log if entry[0] == "-")
    assert points > 20
