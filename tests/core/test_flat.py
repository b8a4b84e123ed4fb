"""A turn of a long run does as much work as a turn of a short one. Function calls are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from quiesce import Agent, Limits, Session, tool
from quiesce.hooks import BeforeModelCall, OnMessage
from quiesce.models.scripted import Call, Say, ScriptedModel
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.telemetry import Telemetry

pytestmark = pytest.mark.promise("P1")

SHORT, LONG = 50, 400
Options = Callable[[Path], dict[str, Any]]


@tool
async def nothing(number: int) -> str:
    """Do nothing."""
    return f"Nothing was done, {number} times."


async def before(event: BeforeModelCall) -> None:
    assert event.request.messages


async def message(event: OnMessage) -> None:
    assert event.message


def _stored(folder: Path) -> dict[str, Any]:
    return {"session": Session("flat", SQLiteStore(folder / "flat.db"))}


async def _calls_per_turn(turns: int, options: dict[str, Any]) -> float:
    """How many functions one turn calls, on average."""
    script = [[Call("nothing", {"number": number})] for number in range(turns - 1)]
    agent = Agent(ScriptedModel(*script, [Say("Done.")]), tools=[nothing], limits=Limits(turns=turns), **options)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        result = await agent.invoke_async("Go.")
    finally:
        sys.setprofile(None)
    assert result.text == "Done."
    assert len(result.messages) == 2 * turns
    return calls / turns


@pytest.mark.one_loop  # what is counted is ours; a loop in C would only be counted less
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(lambda _: {}, id="plain"),
        pytest.param(lambda _: {"hooks": [before, message]}, id="hooks"),
        pytest.param(lambda _: {"telemetry": Telemetry(tracer_provider=TracerProvider())}, id="telemetry"),
        pytest.param(_stored, id="store"),
    ],
)
async def test_a_turn_of_a_long_run_does_no_more_than_one_of_a_short_run(options: Options, tmp_path: Path) -> None:
    await _calls_per_turn(5, {})  # what is imported with the first run does not count
    short, long = tmp_path / "short", tmp_path / "long"
    short.mkdir()
    long.mkdir()
    few = await _calls_per_turn(SHORT, options(short))
    many = await _calls_per_turn(LONG, options(long))
    assert many <= few * 1.1, f"{few:.0f} calls in each of {SHORT} turns, {many:.0f} in each of {LONG}"
