"""Readers that come late: they get the run's events from the first one, joined and bounded."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import pytest

from quiesce import Agent, tool
from quiesce.errors import ConfigurationError
from quiesce.events import (
    ChildEvent,
    Event,
    EventsDropped,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolProgress,
    ToolStarted,
)
from quiesce.run.events import history
from quiesce.run.events.fanout import EventFanout
from quiesce.run.handle import state_of
from quiesce.testing import Call, Harness, Pause, Say, ScriptedModel, Stall, Think, run_virtual, stop_everywhere
from quiesce.tools.context import ToolContext

pytestmark = pytest.mark.promise("P3")


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(1)
    return "seen"


def names(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def talking(**options: object) -> Agent:
    model = ScriptedModel(
        [Think("Hm, hm, hm, hm."), Say("I look. " * 10), Call("look")], then=[Say("It is seen. " * 10)]
    )
    return Agent(model, tools=[look], **options)  # type: ignore[arg-type]


def test_a_reader_after_an_await_loses_nothing() -> None:
    async def main() -> None:
        run = talking().start("go")
        first = run.events()
        await asyncio.sleep(1.5)
        late = run.events()
        await run
        at_once, joined = [event async for event in first], [event async for event in late]
        after = [event async for event in run]
        for each in (joined, after):
            assert isinstance(each[0], RunStarted)
            assert isinstance(each[-1], RunEnded)
            assert text(each) == text(at_once) == "I look. " * 10 + "It is seen. " * 10
            no_deltas = [event for event in each if not isinstance(event, TextDelta | ReasoningDelta)]
            assert names([event for event in at_once if not isinstance(event, TextDelta | ReasoningDelta)]) == names(
                no_deltas
            )
        assert names(after).count("TextDelta") == 2, "one for each answer"
        assert ReasoningDelta("Hm, hm, hm, hm.") in after

    run_virtual(main())


def test_without_history_a_reader_begins_now() -> None:
    async def main() -> None:
        run = talking().start("go")
        await asyncio.sleep(0.5)
        from_now = run.events(history=False)
        await run
        seen = [event async for event in from_now]
        assert text(seen) == "It is seen. " * 10
        assert RunStarted not in {type(event) for event in seen}
        assert names([event async for event in run.events(history=False)]) == ["RunEnded"]

    run_virtual(main())


def test_signatures_and_the_arguments_of_different_calls_stay_apart() -> None:
    async def main() -> None:
        fanout = EventFanout()
        for event in (
            ReasoningDelta("a"), ReasoningDelta("b"), ReasoningDelta("", signature="s"), ReasoningDelta("c"),
            ToolCallArguments("1", "{"), ToolCallArguments("1", "}"), ToolCallArguments("2", "[]"),
            ChildEvent("1", "r", TextDelta("x")), ChildEvent("1", "r", TextDelta("y")),
            ChildEvent("1", "q", TextDelta("z")),
        ):  # fmt: skip
            fanout.push(event)
        reader = fanout.reader()
        fanout.close(TextDelta("last"))
        assert [event async for event in reader] == [
            ReasoningDelta("ab"), ReasoningDelta("", signature="s"), ReasoningDelta("c"),
            ToolCallArguments("1", "{}"), ToolCallArguments("2", "[]"),
            ChildEvent("1", "r", TextDelta("xy")), ChildEvent("1", "q", TextDelta("z")), TextDelta("last"),
        ]  # fmt: skip

    asyncio.run(main())


def test_too_many_events_are_dropped_from_the_oldest_and_that_is_told() -> None:
    async def main() -> None:
        fanout, count = EventFanout(), history.MAX_EVENTS + 500
        for number in range(count):
            fanout.push(ToolProgress("1", "work", number))
        seen = [event async for event in _closed(fanout)]
        assert seen[0] == EventsDropped(501)
        assert len(seen) == history.MAX_EVENTS + 1
        assert seen[1] == ToolProgress("1", "work", 501)
        assert len(fanout._history.recent) == 0

    asyncio.run(main())


def test_too_much_text_is_dropped_and_the_end_of_it_is_kept() -> None:
    async def main() -> None:
        fanout = EventFanout()
        for _ in range(3 * history.MAX_TEXT // 1000):
            fanout.push(TextDelta("x" * 1000))
        seen = [event async for event in _closed(fanout)]
        assert isinstance(seen[0], EventsDropped)
        assert 0.8 * history.MAX_TEXT < len(text(seen)) <= history.MAX_TEXT + 10

    asyncio.run(main())


def _closed(fanout: EventFanout):
    fanout.close(TextDelta("last"))
    return fanout.reader()


def test_a_run_whose_tool_never_stops_reporting_keeps_a_bounded_history() -> None:
    @tool
    async def noisy(ctx: ToolContext) -> str:
        for number in range(30_000):
            ctx.report(number)
        return "done"

    async def main() -> None:
        run = Agent(ScriptedModel([Call("noisy")], "Fine."), tools=[noisy]).start("go")
        await run
        kept = [event async for event in run]
        assert isinstance(kept[0], EventsDropped)
        assert len(kept) == history.MAX_EVENTS + 1

    run_virtual(main())


def test_a_late_reader_that_does_not_read_what_was_before_does_not_hold_up_the_run() -> None:
    async def main() -> None:
        run = Agent(ScriptedModel([Say("x" * 50_000, chunk=1, pause=0.001), Pause(5), Say("End.")])).start("go")
        await asyncio.sleep(52)
        reader = run.events()
        assert (await asyncio.wait_for(run.stopped(), 10)).stop_reason == "end_turn"
        assert text([event async for event in reader]).endswith("xEnd.")

    run_virtual(main())


def test_the_history_is_freed_with_the_run() -> None:
    async def main() -> weakref.ref[object]:
        run = talking().start("go")
        await run
        return weakref.ref(state_of(run).events._history)

    kept = run_virtual(main())
    gc.collect()
    assert kept() is None


def test_with_a_store_a_late_reader_gets_only_what_is_saved(tmp_path: Path) -> None:
    async def main() -> None:
        agent = talking(session="s", store=tmp_path / "s.db")
        run = agent.start("go")
        seen: list[Event] = []
        run.tap(seen.append)
        while ToolStarted not in {type(event) for event in seen}:
            await asyncio.sleep(0)
        late = run.events()
        await run
        events = [event async for event in late]
        assert text(events) == text(seen)
        assert names(events)[-1] == "RunEnded"
        assert agent.session is not None
        stored = [event for _, event in await agent.session.events(run.id)]
        assert text(stored) == text(events)

    asyncio.run(main())


# --- Two tasks, one reader ------------------------------------------------------------------------------------------


def test_a_second_task_that_reads_from_the_same_reader_gets_an_error() -> None:
    async def main() -> None:
        run = Agent(ScriptedModel([Say("Well"), Stall()])).start("go")
        reader = run.events()

        async def read() -> None:
            async for _ in reader:
                pass

        first = asyncio.create_task(read())
        await asyncio.sleep(1)
        with pytest.raises(ConfigurationError, match="Another task waits"):
            await anext(reader)
        run.cancel()
        await asyncio.wait_for(first, 10)

    run_virtual(main())


# --- Stopped everywhere ---------------------------------------------------------------------------------------------


async def a_late_reader(harness: Harness) -> None:
    """One reads from the start, another comes in the middle of the tool, a third when all is over."""
    async with harness.start(talking(), "Go.") as run:
        early: list[Event] = []
        run.tap(early.append)
        await asyncio.sleep(0.5)
        late = [event async for event in run.events()]
        assert isinstance(late[-1], RunEnded)
        assert text(late) == text(early)
        again = [event async for event in run]
        assert text(again) == text(early)


def test_a_stop_at_every_point_of_a_run_with_late_readers() -> None:
    report = stop_everywhere(a_late_reader)
    assert report.runs > 100
