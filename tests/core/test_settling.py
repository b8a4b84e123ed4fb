"""What settling does between the stop and the end: what is told, in which order, and how long each part may take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quiesce import Agent, Limits, tool
from quiesce.cancellation.cause import parse_mode
from quiesce.cancellation.raised import raised_in
from quiesce.errors import UnknownMode
from quiesce.events import AnswerEnd, MessageAdded, RunEnded, TextDelta, ToolEnded
from quiesce.hooks import AfterRun, OnStop
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.phases import Phase
from quiesce.run.handle import state_of
from quiesce.testing import run_virtual
from tests.core.kit import is_a, passes, stopped_at


@tool
async def look() -> str:
    """Look."""
    return "nothing"


# --- What is told ----------------------------------------------------------------------------------------------------


@pytest.mark.promise("P3", "P7")
async def test_readers_are_told_of_each_message_that_a_stop_seals() -> None:
    agent = Agent(ScriptedModel([Say("Well"), Call("look")], [Say("So"), Stall()]), tools=[look])
    end = await stopped_at(agent, is_a(TextDelta, 2))
    assert [event.message for event in end.of(MessageAdded)] == list(end.result.new_messages)


@pytest.mark.promise("P4")
async def test_the_receipt_says_in_which_phase_the_stop_was_asked_for() -> None:
    end = await stopped_at(Agent(ScriptedModel([Say("Well"), Stall()])), is_a(TextDelta))
    assert end.result.receipt.asked_during is Phase.STREAMING
    late = await stopped_at(Agent(ScriptedModel("Well.")), is_a(AnswerEnd))
    assert (late.reason, late.result.receipt.asked_during) == ("end_turn", None)


@pytest.mark.promise("P7")
async def test_a_stop_that_comes_as_the_last_answer_of_a_limit_is_complete_comes_too_late() -> None:
    model = ScriptedModel([Call("look")], "There is nothing.")
    agent = Agent(model, tools=[look], limits=Limits(turns=1), on_limit="answer")
    end = await stopped_at(agent, is_a(AnswerEnd, 2))
    assert (end.reason, end.result.text) == ("limit", "There is nothing.")


@pytest.mark.promise("P1")
async def test_the_latency_on_the_receipt_is_that_of_the_whole_end() -> None:
    async def slow(event: AfterRun) -> None:
        time.sleep(0.05)  # in real time, by which latencies are measured

    end = await stopped_at(Agent(ScriptedModel([Say("Well"), Stall()]), hooks=[slow]), is_a(TextDelta))
    assert end.result.receipt.latency >= 0.05


@pytest.mark.promise("P3")
async def test_a_stopped_run_accepts_no_message_that_it_could_not_return() -> None:
    accepted = []

    def late(event: AfterRun) -> None:
        accepted.append((run.enqueue("late"), run.steer("later")))

    agent = Agent(ScriptedModel([Say("Well"), Stall()]), hooks=[late])
    run = agent.start("go")
    async for event in run:
        if isinstance(event, TextDelta):
            run.cancel()
    result = await run
    assert accepted == [(False, False)]
    assert result.unsent == ()


# --- How long it takes -----------------------------------------------------------------------------------------------


@pytest.mark.promise("P1")
@pytest.mark.parametrize("kind", [OnStop, AfterRun])
def test_a_kill_waits_for_no_hook(kind: type) -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Say("Well"), Stall()]))

        @agent.hook(kind)
        async def endless(_: object) -> None:
            await asyncio.get_running_loop().create_future()

        await stopped_at(agent, is_a(TextDelta), mode="kill")
        assert asyncio.get_running_loop().time() == 0

    run_virtual(main())


@pytest.mark.promise("P1")
@pytest.mark.parametrize("kind", [OnStop, AfterRun])
def test_a_stop_that_becomes_a_kill_ends_the_wait_for_a_hook(kind: type) -> None:
    async def main() -> None:
        agent, loop = Agent(ScriptedModel([Say("Well"), Stall()])), asyncio.get_running_loop()

        @agent.hook(kind)
        async def endless(_: object) -> None:
            loop.call_later(0.25, lambda: agent.cancel(mode="kill", arm=False))
            await loop.create_future()

        await stopped_at(agent, is_a(TextDelta))
        assert loop.time() == pytest.approx(0.25)

    run_virtual(main())


class SlowToClose:
    """A model whose connection takes ten seconds to close."""

    name = "slow"
    price = None

    @asynccontextmanager
    async def stream(self, request: object) -> AsyncGenerator[AsyncIterator[TextDelta]]:
        async def deltas() -> AsyncGenerator[TextDelta]:
            while True:
                await asyncio.sleep(0)
                yield TextDelta("word ")

        try:
            yield deltas()
        finally:
            await asyncio.sleep(10)


@pytest.mark.promise("P1")
@pytest.mark.parametrize(("mode", "seconds"), [("now", 0.5), ("kill", 0.1)])
def test_a_connection_that_does_not_close_is_waited_for_no_longer_than_the_stop_allows(
    mode: str, seconds: float
) -> None:
    async def main() -> None:
        await stopped_at(Agent(SlowToClose()), is_a(TextDelta), mode=mode)
        assert asyncio.get_running_loop().time() == pytest.approx(seconds)

    run_virtual(main())


@pytest.mark.promise("P1", "P8")
def test_the_end_of_many_calls_is_in_steps_that_take_no_time() -> None:
    """Each call costs 0.1 ms at the end of its run, in which nothing else of the event loop can go on."""
    passed: list[str] = []

    async def main() -> None:
        calls = [Call("look")] * 60
        run = Agent(ScriptedModel([*calls, Stall()]), tools=[look]).start("go")

        def see(event: object) -> None:
            if isinstance(event, MessageAdded) and run.phase is Phase.SETTLING:
                asyncio.get_running_loop().call_soon(passed.append, "a step of another run")
            if isinstance(event, RunEnded):
                passed.append("the end")

        run.tap(see)
        await passes(400)
        run.cancel()
        await run
        assert asyncio.get_running_loop().time() == 0

    run_virtual(main())
    assert passed[-1] == "the end"
    assert len(passed) > 1


# --- What is left ----------------------------------------------------------------------------------------------------


@pytest.mark.promise("P5")
@pytest.mark.parametrize("stop", [True, False])
async def test_nothing_watches_the_token_of_a_run_that_has_ended(stop: bool) -> None:
    run = Agent(ScriptedModel([Call("look")], "Done."), tools=[look]).start("go")
    run.tap(lambda event: stop and isinstance(event, ToolEnded) and run.cancel())
    await run
    assert state_of(run).token._watchers == {}


@pytest.mark.promise("P9")
def test_it_is_known_which_package_an_exception_came_through() -> None:
    """A journal in which Ctrl-C was raised is half done, and is read anew."""
    with pytest.raises(UnknownMode) as raised:
        parse_mode("softly")
    assert raised_in(raised.value, "quiesce.cancellation") is True
    assert raised_in(raised.value, "quiesce.sessions") is False
