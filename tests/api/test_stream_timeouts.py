"""Timeouts for the first word of an answer and for gaps in its stream, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from quiesce import Agent, Retry, Summarise
from quiesce.errors import ConfigurationError, ModelTimeout, StreamBroken
from quiesce.events import RetryScheduled
from quiesce.messages import AssistantMessage
from quiesce.models.scripted import Call, Pause, Say, ScriptedModel, Stall, Think, Used
from quiesce.testing import VirtualLoop
from tests.injection.tools import slow

pytestmark = pytest.mark.promise("P1", "P8")
_T = TypeVar("_T")


def in_virtual_time(main: Callable[[], Awaitable[_T]]) -> tuple[_T, float]:
    """What it returns, and how long it took by the loop's clock."""

    async def timed() -> tuple[_T, float]:
        began = asyncio.get_running_loop().time()
        value = await main()
        return value, asyncio.get_running_loop().time() - began

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(timed())


def failure(agent: Agent, **options: Any) -> tuple[Exception, float]:
    async def main() -> Exception:
        with pytest.raises((ModelTimeout, StreamBroken)) as raised:
            await agent.invoke_async("go", **options)
        return raised.value

    return in_virtual_time(main)


ONCE = Retry(attempts=1)


def test_a_model_that_never_begins_is_given_up_after_ten_minutes() -> None:
    error, took = failure(Agent(ScriptedModel(Stall()), retry=ONCE))
    assert isinstance(error, ModelTimeout)
    assert "within 600 s" in str(error)
    assert took == pytest.approx(600)


def test_a_stream_that_stalls_is_cut_after_two_minutes() -> None:
    error, took = failure(Agent(ScriptedModel([Say("It was "), Pause(100), Say("and "), Stall()]), retry=ONCE))
    assert isinstance(error, StreamBroken)
    assert "nothing came for 120 s" in str(error)
    assert 220 <= took <= 220 + 120 / 8
    result: Any = getattr(error, "result", None)
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert last.cut
    assert last.text.startswith("It was and")


@pytest.mark.parametrize("first_word_at", [1.0, 7.0, 11.0, 19.5])
def test_the_gap_is_measured_from_the_last_part(first_word_at: float) -> None:
    agent = Agent(ScriptedModel([Pause(first_word_at), Say("Hm"), Stall()]), retry=ONCE)
    _, took = failure(agent, first_token_timeout=20, stream_gap_timeout=5)
    assert first_word_at + 5 <= took <= first_word_at + 5 + 5 / 8


def test_an_answer_that_comes_slowly_but_surely_is_not_cut() -> None:
    steps = [step for number in range(40) for step in (Pause(4.9), Say(f"{number} "))]
    agent = Agent(ScriptedModel([*steps, Call("slow", {"seconds": 1}, pause=4.9)], "Done."), tools=[slow])
    result, took = in_virtual_time(lambda: agent.invoke_async("go", stream_gap_timeout=5))
    assert result.output == "Done."
    assert took > 190


def test_a_report_of_usage_is_not_the_first_word() -> None:
    agent = Agent(ScriptedModel([Used(10, 0), Pause(300), Say("Done.")]), retry=ONCE)
    result, took = in_virtual_time(lambda: agent.invoke_async("go"))
    assert result.output == "Done."
    assert took == pytest.approx(300)


def test_reasoning_is_a_first_word() -> None:
    error, _ = failure(Agent(ScriptedModel([Think("Hm."), Stall()]), retry=ONCE))
    assert "nothing came for 120 s" in str(error)


def test_a_first_word_that_is_late_is_tried_again() -> None:
    async def main() -> Any:
        run = Agent(ScriptedModel(Stall(), "There.")).start("go", first_token_timeout=30)
        run.tap(events.append)
        return await run

    events: list[Any] = []
    result, took = in_virtual_time(main)
    assert result.output == "There."
    assert 30 < took < 35
    assert "within 30 s" in next(event for event in events if isinstance(event, RetryScheduled)).error
    assert [entry.ended for entry in result.usage.entries] == ["failed", "completed"]


@pytest.mark.parametrize("where", ["agent", "call"])
def test_none_switches_them_off(where: str) -> None:
    off: dict[str, Any] = {"first_token_timeout": None, "stream_gap_timeout": None}
    agent = Agent(ScriptedModel([Pause(5000), Say("Hm"), Pause(5000), Say("m.")]), **(off if where == "agent" else {}))
    result, took = in_virtual_time(lambda: agent.invoke_async("go", **(off if where == "call" else {})))
    assert result.output == "Hmm."
    assert took == pytest.approx(10_000)


def test_one_of_them_alone() -> None:
    agent = Agent(ScriptedModel([Pause(5000), Say("Hm"), Stall()]), first_token_timeout=None, retry=ONCE)
    _, took = failure(agent)
    assert 5120 <= took <= 5120 + 120 / 8
    agent = Agent(ScriptedModel([Pause(5), Say("Hm"), Pause(5000), Say("m.")]), stream_gap_timeout=None, retry=ONCE)
    result, _ = in_virtual_time(lambda: agent.invoke_async("go", first_token_timeout=10))
    assert result.output == "Hmm."


def test_tools_and_slow_readers_are_no_gap() -> None:
    async def main() -> str:
        text = ""
        async for event in agent.stream_async("go"):
            await asyncio.sleep(1)
            text += getattr(event, "text", "")
        return text

    model = ScriptedModel([Say("x" * 900, chunk=1), Call("slow", {"seconds": 500})], "Done.")
    agent = Agent(model, tools=[slow], stream_gap_timeout=5)
    text, _ = in_virtual_time(main)
    assert text == "x" * 900 + "Done."


@pytest.mark.parametrize("wrong", [0, -1, "5", True, float("nan"), float("inf"), pytest.param(10**400, id="huge"), []])
@pytest.mark.parametrize("name", ["first_token_timeout", "stream_gap_timeout"])
def test_timeouts_that_make_no_sense_are_refused(name: str, wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Agent(ScriptedModel("x"), **{name: wrong})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match=name):
        Agent(ScriptedModel("x"))("go", **{name: wrong})  # pyright: ignore[reportArgumentType]


def test_a_summary_on_the_side_is_watched_too() -> None:
    agent = Agent(
        ScriptedModel("long " * 2000, "Fine."),
        context=Summarise(500, model=ScriptedModel([Say("It was"), Stall()])),
        retry=ONCE,
    )

    async def main() -> Any:
        await agent.invoke_async("tell")
        return await agent.invoke_async("and now?")

    result, took = in_virtual_time(main)
    assert 120 <= took <= 120 + 120 / 8
    assert result.output == "Fine."
